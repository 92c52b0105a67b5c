#include "os/system_random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/check.h"

namespace tulle {

std::uint64_t system_random() {
  std::uint64_t number = 0;
  ssize_t bytes = 0;
  do {
    bytes = getrandom(&number, sizeof(number), 0);
  } while (bytes < 0 && errno == EINTR);
  // Requests of up to 256 bytes are never answered in part.
  TULLE_CHECK(bytes == sizeof(number));
  return number;
}

}  // namespace tulle
