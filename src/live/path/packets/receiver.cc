#include "live/path/packets/receiver.h"

#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tulle::live {

Receiver::Receiver(int socket, std::uint16_t port, From from)
    : socket_(socket),
      port_(port),
      from_(from),
      buffers_(std::make_unique_for_overwrite<std::byte[]>(messages_max * buffer_bytes)) {
  for (int i = 0; i < messages_max; ++i) {
    pieces_[i] = {buffer(i), buffer_bytes};
    msghdr& header = messages_[i].msg_hdr;
    header.msg_name = &names_[i];
    header.msg_iov = &pieces_[i];
    header.msg_iovlen = 1;
    header.msg_control = controls_[i].bytes;
  }
  drops_seen_ = drops_of_socket();
}

// Returns the kernel's own number, which wraps.
std::uint32_t Receiver::drops_of_socket() const {
  std::array<std::uint32_t, SK_MEMINFO_VARS> values{};
  socklen_t bytes = sizeof values;
  if (from_ != From::udp_socket) return drops_seen_;
  if (getsockopt(socket_, SOL_SOCKET, SO_MEMINFO, values.data(), &bytes) != 0) return drops_seen_;
  return values[SK_MEMINFO_DROPS];
}

std::uint64_t Receiver::kernel_drops() {
  const std::uint32_t now = drops_of_socket();
  drops_ += static_cast<std::uint32_t>(now - std::exchange(drops_seen_, now));
  return drops_;
}

int Receiver::fill() {
  for (int i = 0; i < used_; ++i) {
    messages_[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
    messages_[i].msg_hdr.msg_controllen = receive_control_bytes;
  }
  const int count = recvmmsg(socket_, messages_.data(), messages_max, MSG_DONTWAIT, nullptr);
  used_ = std::clamp(count + 1, 1, messages_max);
  // A relay whose agent is gone is readable and gives empty messages for ever.
  if (from_ == From::relay && count > 0 && messages_[0].msg_len == 0) return 0;
  return std::max(count, 0);
}

}  // namespace tulle::live
