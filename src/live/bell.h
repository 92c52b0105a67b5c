#pragma once

// A process sleeps on its doorbell (`bell`), a socket. The other end (`button`) wakes it.

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle::live {

struct Bell {
  UniqueFd bell;
  UniqueFd button;
};
Result<Bell> create_bell();
// Returns true if a descriptor that somebody else handed over may be a button.
bool is_button(int descriptor);

}  // namespace tulle::live
