#pragma once

// An SRD queue pair with memory, whose adapter talks to one peer, for tests that hand it a packet
// and check how it responds.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rdma/optional/srd/carrier.h"
#include "rdma/optional/srd/peers.h"
#include "rdma/optional/transports.h"
#include "rdma/transport/host_test.h"

namespace tulle::transport::srd::testing {

using transport::testing::bytes_of;
using transport::testing::mtu;
using transport::testing::peer_gid;
using transport::testing::peer_qp;
using transport::testing::Pulled;
using wire::Operation;

inline constexpr Qkey qkey{0x1234};
inline constexpr Context peer_context{7, 0};

inline transport::testing::Options with_type(transport::testing::Options options) {
  options.type = verbs::QpType::srd;
  options.transports = &all_transports();
  return options;
}

inline wire::Packet packet(Operation operation, std::uint32_t psn) {
  wire::Packet out = transport::testing::packet(wire::TransportClass::srd, operation, Psn(psn));
  out.srd_context = peer_context.word();
  out.source_qp = peer_qp;
  out.qkey = qkey;
  out.srd_path = 3;
  return out;
}

class Host : public transport::testing::Host {
 public:
  explicit Host(const Settings& settings = {}, const transport::testing::Options& options = {})
      : transport::testing::Host(with_type(options)), handle(pd, to_peer()) {
    environment.peers = std::make_unique<Peers>(environment, settings);
    environment.port(1).gids = {&own_gid, 1};
    connect();
  }
  Peers& peers() { return Peers::of(environment); }
  const Outbound& outbound() { return *peers().find_outbound(peer_gid, peer_qp, 0); }

  void post(verbs::SendRequest request, std::uint32_t bytes,
            verbs::SendFlags flags = verbs::SendFlag::signaled) {
    request.address_handle = &handle;
    request.remote_qp = peer_qp;
    request.remote_qkey = qkey;
    transport::testing::Host::post(request, bytes, flags);
  }
  void post(verbs::SendOpcode opcode, std::uint32_t bytes) {
    verbs::SendRequest request;
    request.opcode = opcode;
    post(request, bytes);
  }
  std::vector<Pulled> pull(std::size_t most = 1'000) {
    std::vector<Pulled> out;
    for (OutgoingPacket packet; out.size() < most && peers().carrier(0).pull(now, packet);) {
      Pulled pulled{packet.packet, {}};
      for (std::uint8_t i = 0; i < packet.piece_count; ++i) {
        pulled.payload.insert(pulled.payload.end(), packet.pieces[i].begin(),
                              packet.pieces[i].end());
      }
      flow_label = packet.to->flow_label;
      out.push_back(pulled);
    }
    return out;
  }
  // Delivers a packet and returns the answer, if there is one.
  std::optional<wire::Packet> answer(const wire::Packet& packet,
                                     std::span<const std::byte> payload = {}) {
    deliver(packet, payload);
    const auto pulled = pull();
    return pulled.empty() ? std::nullopt : std::optional(pulled.front().packet);
  }
  // The peer answers `sent`. The first number that the peer misses is `missing`; `earlier` has the
  // bits of packets before `sent` that have come.
  void acknowledge(const wire::Packet& sent, std::uint32_t missing, wire::Syndrome syndrome = {},
                   std::uint64_t earlier = 0) {
    wire::Packet answer =
        transport::testing::packet(wire::TransportClass::srd, Operation::acknowledge, Psn(missing));
    answer.srd_context = sent.srd_context;
    answer.srd_path = sent.srd_path;
    answer.early_psn = sent.psn;
    answer.syndrome = syndrome;
    answer.srd_received =
        earlier | (syndrome.kind == wire::AckKind::ack ? std::uint64_t{1} << 63 : 0);
    deliver(answer);
  }
  void pass(Time span) {
    now += span;
    peers().carrier(0).handle_deadline(now);
  }

  static verbs::AddressVector to_peer() {
    verbs::AddressVector to;
    to.destination = peer_gid;
    return to;
  }
  Gid own_gid = Gid::from_ipv4(0x0A00'0001);
  verbs::AddressHandle handle;
  std::uint32_t flow_label = 0;  // flow label of the packet that was pulled last
};

}  // namespace tulle::transport::srd::testing
