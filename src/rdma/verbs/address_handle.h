#pragma once

#include "rdma/verbs/protection_domain.h"
#include "rdma/verbs/types.h"

namespace tulle::verbs {

// The destination of a UD message (IBTA 11.2.2).
class AddressHandle {
 public:
  AddressHandle(ProtectionDomain& pd, const AddressVector& to) : pd(&pd), to(to) {}
  ProtectionDomain* pd;
  AddressVector to;
};

}  // namespace tulle::verbs
