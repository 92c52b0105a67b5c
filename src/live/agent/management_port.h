#pragma once

// QP1 over the host agent's socket of the UDP port. Management datagrams travel as UD SENDs (IBTA
// 13.5.4).

#include <cstdint>
#include <optional>
#include <span>

#include "live/path/packets/capture_tap.h"
#include "live/path/packets/receiver.h"
#include "live/security/seal.h"
#include "os/unique_fd.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/mad.h"
#include "rdma/wire/packet.h"

namespace tulle::live {

// Returns the headers of a packet from QP1 to QP1 (IBTA 13.5.4).
wire::Packet management_packet(std::uint32_t psn);
// Says whether a packet is one of those.
bool is_management(const wire::Packet& packet);

class ManagementPort {
 public:
  // `socket` is the socket of the agent's slot in the group. With a seal, only sealed datagrams are
  // sent and taken. Both must outlive this object.
  ManagementPort(int socket, std::uint16_t port, Seal* seal = nullptr);

  int socket() const { return socket_; }
  CaptureTap& tap() { return tap_; }

  // Takes the datagrams that have come, and never blocks. Calls `handle` with each valid management
  // datagram as (const wire::IpUdp&, payload). Returns false if more may be waiting.
  template <typename Handle>
  bool receive(Handle handle) {
    constexpr int calls_in_a_turn = 8;
    for (int i = 0; i < calls_in_a_turn; ++i) {
      const int count = receiver_.receive([&](const wire::IpUdp& ip, auto datagram) {
        if (const auto payload = accept(ip, datagram)) handle(ip, *payload);
      });
      if (count < Receiver::messages_max) return true;
    }
    return false;
  }
  // Sends a datagram to the peer's QP1. A datagram that the kernel refuses is lost, as on any
  // network; IBTA lets a manager send again.
  // Datagrams to strangers leave by a separate socket: those to addresses where nobody is fill it,
  // since the kernel keeps them for seconds while it looks for the neighbour.
  void send(const wire::IpUdp& ip, std::uint32_t interface_index,
            std::span<const std::byte> payload, bool is_to_stranger);

 private:
  std::optional<std::span<const std::byte>> accept(const wire::IpUdp& ip,
                                                   std::span<const std::byte> datagram);

  int socket_;
  std::uint16_t port_;
  bool is_ipv6_;
  UniqueFd sender_;
  UniqueFd sender_to_strangers_;
  Seal* seal_;  // null: datagrams are plain
  Receiver receiver_;
  CaptureTap tap_;
  std::uint32_t psn_ = 0;
};

}  // namespace tulle::live
