#pragma once

// Watches for changes of the interfaces and addresses of this network namespace.

#include "os/unique_fd.h"

namespace tulle::live {

class AddressWatch {
 public:
  AddressWatch();

  // Returns a descriptor that is readable when something has changed, or -1 if the host does not
  // report changes. In that case take_changes() always returns true.
  int fd() const { return fd_.get(); }
  // Returns true if something may have changed since the last call.
  bool take_changes();

 private:
  UniqueFd fd_;
};

}  // namespace tulle::live
