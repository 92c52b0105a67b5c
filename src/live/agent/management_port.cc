#include "live/agent/management_port.h"

#include <algorithm>
#include <array>

#include "live/path/packets/udp_socket.h"
#include "rdma/port/framing/roce_v2.h"

namespace tulle::live {
namespace {

constexpr auto ud_send_only = wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);

}  // namespace

wire::Packet management_packet(std::uint32_t psn) {
  wire::Packet packet;
  packet.opcode = ud_send_only;
  packet.migration_state = false;
  packet.destination_qp = wire::general_services_qp;
  packet.source_qp = wire::general_services_qp;
  packet.qkey = wire::general_services_qkey;
  packet.psn = Psn(psn);
  return packet;
}

bool is_management(const wire::Packet& packet) {
  return packet.opcode == ud_send_only && packet.destination_qp == wire::general_services_qp &&
         packet.qkey == wire::general_services_qkey;
}

ManagementPort::ManagementPort(int socket, std::uint16_t port, Seal* seal)
    : socket_(socket),
      port_(port),
      is_ipv6_(is_ipv6(socket)),
      seal_(seal),
      receiver_(socket, port) {
  const std::uint16_t preferred =
      port::source_port(wire::general_services_qp, wire::general_services_qp);
  if (auto bound = bind_sender(preferred)) sender_ = std::move(*bound);
  if (auto bound = bind_sender(preferred + 1u)) sender_to_strangers_ = std::move(*bound);
}

std::optional<std::span<const std::byte>> ManagementPort::accept(
    const wire::IpUdp& ip, std::span<const std::byte> datagram) {
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (seal_ != nullptr) {
    const auto opened = seal_->open(ip, datagram);
    if (!opened) return std::nullopt;
    datagram = *opened;
  }
  if (port::decode(ip, false, datagram, packet, payload) != port::Verdict::ok) return std::nullopt;
  if (!is_management(packet)) return std::nullopt;
  if (tap_.is_open()) tap_.received(ip, datagram);
  return payload;
}

void ManagementPort::send(const wire::IpUdp& route, std::uint32_t interface_index,
                          std::span<const std::byte> payload, bool is_to_stranger) {
  const UniqueFd& sender = is_to_stranger && sender_to_strangers_ ? sender_to_strangers_ : sender_;
  const int socket = sender ? sender.get() : socket_;
  wire::IpUdp ip = route;
  ip.source_port = port_of(socket);
  ip.destination_port = port_;
  const wire::Packet packet = management_packet(psn_++);
  port::FrameBytes frame;
  port::encode(ip, packet, std::array{payload}, frame);
  std::array<std::byte, port::udp_payload_bytes_max + seal_bytes> room;
  std::size_t bytes = 0;
  for (const std::span<const std::byte> piece :
       {std::span<const std::byte>(frame.head).first(frame.head_bytes), payload,
        std::span<const std::byte>(frame.tail).first(frame.tail_bytes)}) {
    std::ranges::copy(piece, room.begin() + seal_header_bytes + bytes);
    bytes += piece.size();
  }
  const std::span<std::byte> plain = std::span(room).subspan(seal_header_bytes, bytes);
  if (tap_.is_open()) tap_.sent(ip, plain);
  std::span<std::byte> datagram = plain;
  if (seal_ != nullptr) {
    datagram = std::span(room).first(bytes + seal_bytes);
    if (!seal_->seal(ip, datagram)) return;
  }
  iovec whole{datagram.data(), datagram.size()};
  SendAddress address;
  fill(address, ip, is_ipv6_, interface_index, port_, 0);
  msghdr message{};
  message.msg_name = &address.name;
  message.msg_namelen = address.name_bytes;
  message.msg_control = address.control;
  message.msg_controllen = address.control_bytes;
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  static_cast<void>(sendmsg(socket, &message, MSG_DONTWAIT));
}

}  // namespace tulle::live
