#include "live/process/doorbell.h"

#include <sys/socket.h>

#include <array>

namespace tulle::live {

std::size_t Doorbell::answer() {
  constexpr std::size_t rings_in_row_max = 16;
  std::array<mmsghdr, rings_in_row_max> rings{};
  const int taken = recvmmsg(fd(), rings.data(), rings.size(), MSG_DONTWAIT, nullptr);
  return taken > 0 ? static_cast<std::size_t>(taken) : 0;
}

}  // namespace tulle::live
