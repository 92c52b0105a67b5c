#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rdma/device/owned.h"
#include "rdma/verbs/address_handle.h"
#include "rdma/verbs/protection_domain.h"

namespace tulle::device {

// The address handles of an adapter.
class AddressHandles {
 public:
  explicit AddressHandles(std::uint32_t most) : most_(most) {}

  // Returns null if there are as many as there may be.
  verbs::AddressHandle* create(verbs::ProtectionDomain& pd, const verbs::AddressVector& to) {
    if (handles_.size() >= most_) return nullptr;
    verbs::AddressHandle* handle = handles_.add(std::make_unique<verbs::AddressHandle>(pd, to));
    ++pd.users;
    return handle;
  }
  void destroy(verbs::AddressHandle* handle) {
    --handle->pd->users;
    handles_.destroy(handle);
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    handles_.for_each(visit);
  }

 private:
  std::uint32_t most_;
  Owned<verbs::AddressHandle> handles_;
};

}  // namespace tulle::device
