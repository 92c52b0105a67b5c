#pragma once

#include "verbs/protection_domain.h"
#include "verbs/types.h"

namespace tulle::verbs {

// Where a UD message goes (IBTA 11.2.2).
class AddressHandle {
 public:
  AddressHandle(ProtectionDomain& pd, const AddressVector& to) : pd(&pd), to(to) {}
  ProtectionDomain* pd;
  AddressVector to;
};

}  // namespace tulle::verbs
