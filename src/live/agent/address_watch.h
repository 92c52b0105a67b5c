#pragma once

// Hears of changes of this network namespace's interfaces and addresses.

#include "live/unique_fd.h"

namespace tulle::live {

class AddressWatch {
 public:
  AddressWatch();

  // Readable when something has changed. -1: the host does not tell; then ask anew each time.
  int fd() const { return fd_.get(); }
  // Whether something may have changed since the last call.
  bool take_changes();

 private:
  UniqueFd fd_;
};

}  // namespace tulle::live
