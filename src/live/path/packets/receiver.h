#pragma once

// Takes datagrams from the slot's socket or from a relay, many in one call. Where the kernel has
// joined datagrams (UDP_GRO), each message holds up to 64 KiB of datagrams of equal size.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "live/path/packets/relay.h"
#include "live/path/packets/udp_socket.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::live {

class Receiver {
 public:
  static constexpr int messages_max = 8;

  enum class From : std::uint8_t { udp_socket, relay };
  Receiver(int socket, std::uint16_t port, From from = From::udp_socket);

  // Makes one call to the kernel, which never blocks. Calls `handle` with each datagram as (const
  // wire::IpUdp&, payload). Returns the number of messages; if that is messages_max, more may be
  // waiting.
  template <typename Handle>
  int receive(Handle handle) {
    const int count = fill();
    for (int i = 0; i < count; ++i) {
      std::span<const std::byte> rest(buffer(i), messages_[i].msg_len);
      ReceivedHeaders headers;
      if (from_ == From::udp_socket) {
        headers = read_headers(messages_[i].msg_hdr);
      } else if (!take_relayed_headers(rest, headers)) {
        continue;
      }
      headers.ip.destination_port = port_;
      const std::size_t segment = headers.segment_bytes == 0 ? rest.size() : headers.segment_bytes;
      // A segment's identification is most likely its place in the batch.
      for (headers.ip.identification = 0; !rest.empty(); ++headers.ip.identification) {
        const std::size_t bytes = rest.size() < segment ? rest.size() : segment;
        handle(static_cast<const wire::IpUdp&>(headers.ip), rest.first(bytes));
        rest = rest.subspan(bytes);
      }
    }
    return count;
  }

  // Returns how many datagrams the kernel has dropped since this object was made, nearly always
  // because the socket was full (a wrong UDP checksum is another reason). Costs a call to the
  // kernel.
  std::uint64_t kernel_drops();

 private:
  std::uint32_t drops_of_socket() const;
  static constexpr std::size_t buffer_bytes = 64 * 1024 + sizeof(RelayedHeaders);
  int fill();
  std::byte* buffer(int i) { return buffers_.get() + static_cast<std::size_t>(i) * buffer_bytes; }

  int socket_;
  std::uint16_t port_;
  From from_;
  std::uint32_t drops_seen_ = 0;  // of the socket, which outlives processes
  std::uint64_t drops_ = 0;
  std::unique_ptr<std::byte[]> buffers_;
  std::array<mmsghdr, messages_max> messages_{};
  std::array<iovec, messages_max> pieces_{};
  std::array<sockaddr_storage, messages_max> names_;
  struct Control {
    alignas(cmsghdr) std::byte bytes[receive_control_bytes];
  };
  std::array<Control, messages_max> controls_;
  int used_ = messages_max;  // number of messages whose lengths the last call changed
};

}  // namespace tulle::live
