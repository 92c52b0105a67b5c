#include "live/agent/management_port.h"

#include <array>
#include <cstring>

#include "live/path/packets/udp_socket.h"
#include "port/framing/roce_v2.h"

namespace tulle::live {
namespace {

constexpr auto ud_send_only = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);

}  // namespace

ManagementPort::ManagementPort(int socket, std::uint16_t port)
    : socket_(socket), port_(port), is_ipv6_(is_ipv6(socket)), receiver_(socket, port) {
  const std::uint16_t preferred =
      port::source_port(wire::general_services_qp, wire::general_services_qp);
  if (auto bound = bind_sender(preferred)) sender_ = std::move(*bound);
}

std::optional<std::span<const std::byte>> ManagementPort::accept(
    const wire::IpUdp& ip, std::span<const std::byte> datagram) {
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (port::decode(ip, false, datagram, packet, payload) != port::Verdict::ok) return std::nullopt;
  const bool is_management = packet.opcode == ud_send_only &&
                             packet.destination_qp == wire::general_services_qp &&
                             packet.qkey == wire::general_services_qkey;
  if (!is_management) return std::nullopt;
  if (tap_.is_open()) tap_.received(ip, datagram);
  return payload;
}

void ManagementPort::send(const wire::IpUdp& route, std::uint32_t interface_index,
                          std::span<const std::byte> payload) {
  const int socket = sender_ ? sender_.get() : socket_;
  wire::IpUdp ip = route;
  ip.source_port = port_of(socket);
  ip.destination_port = port_;
  wire::Packet packet;
  packet.opcode = ud_send_only;
  packet.migration_state = false;
  packet.destination_qp = wire::general_services_qp;
  packet.source_qp = wire::general_services_qp;
  packet.qkey = wire::general_services_qkey;
  packet.psn = Psn(psn_++);
  port::FrameBytes frame;
  port::encode(ip, packet, std::array{payload}, frame);
  std::array<iovec, 3> pieces = {
      iovec{frame.head.data(), frame.head_bytes},
      iovec{const_cast<std::byte*>(payload.data()), payload.size()},
      iovec{frame.tail.data(), frame.tail_bytes},
  };
  SendAddress address;
  fill(address, ip, is_ipv6_, interface_index, port_, 0);
  msghdr message{};
  message.msg_name = &address.name;
  message.msg_namelen = address.name_bytes;
  message.msg_control = address.control;
  message.msg_controllen = address.control_bytes;
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  static_cast<void>(sendmsg(socket, &message, MSG_DONTWAIT));
  if (!tap_.is_open()) return;
  std::array<std::byte, port::udp_payload_bytes_max> whole;
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) {
    std::memcpy(whole.data() + bytes, piece.iov_base, piece.iov_len);
    bytes += piece.iov_len;
  }
  tap_.sent(ip, std::span(whole).first(bytes));
}

}  // namespace tulle::live
