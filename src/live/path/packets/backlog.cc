#include "live/path/packets/backlog.h"

#include <linux/sock_diag.h>
#include <sys/socket.h>

namespace tulle::live {
namespace {

// Memory that the kernel charges for a message besides its bytes: struct sk_buff and the rest of
// its pages.
constexpr std::size_t message_overhead_bytes = 2'048;

}  // namespace

bool Backlog::admits(std::uint32_t slot, std::size_t bytes, Time now) {
  Receiver& receiver = receiver_at(slot);
  if (!receiver.socket) return true;
  const std::size_t needed = bytes + message_overhead_bytes;
  if (receiver.room_bytes < needed) receiver.room_bytes = room_of(receiver.socket.get());
  if (receiver.room_bytes >= needed) {
    receiver.room_bytes -= needed;
    receiver.full_since = Time::never();
    return true;
  }
  if (receiver.full_since == Time::never()) receiver.full_since = now;
  return now >= receiver.full_since + patience;
}

Backlog::Receiver& Backlog::receiver_at(std::uint32_t slot) {
  Receiver& receiver = receivers_[slot];
  if (!receiver.is_known) {
    receiver.is_known = true;
    if (vault_) receiver.socket = socket_in(vault_.get(), slot);
  }
  return receiver;
}

// Returns the bytes that may be sent. Half of the buffer is never used, because the kernel charges
// more than a message's bytes (twice as much for a single datagram) and other processes may send at
// the same time.
std::size_t Backlog::room_of(int socket) {
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t bytes = sizeof(memory);
  constexpr std::size_t unknown = std::size_t{1} << 20;
  if (getsockopt(socket, SOL_SOCKET, SO_MEMINFO, memory.data(), &bytes) != 0) return unknown;
  const std::uint32_t used = memory[SK_MEMINFO_RMEM_ALLOC];
  const std::uint32_t size = memory[SK_MEMINFO_RCVBUF];
  return used >= size / 2 ? 0 : (size / 2 - used) / 2;
}

}  // namespace tulle::live
