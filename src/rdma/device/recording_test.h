#pragma once

// The conversation of one queue pair of a Linux kernel, read from tests/data/captures for tests.
// The set-up (QP1) is left out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "places.h"
#include "rdma/port/framing/pcap_test.h"
#include "rdma/port/framing/roce_v2.h"

namespace tulle::device::testing {

enum class Side : std::uint8_t { client, server };

struct RecordedPacket {
  port::Captured captured;
  bool said = false;  // true: this side sent it; false: this side received it
  bool damaged = false;
  wire::Packet packet;
  std::span<const std::byte> payload;  // a part of captured.bytes

  const wire::OpcodeInfo& info() const { return wire::info(packet.opcode); }
  std::size_t frame() const { return captured.frame; }
};

// True for requests, as opposed to their answers.
inline bool is_request(wire::Kind kind) {
  using enum wire::Kind;
  return kind == send || kind == write || kind == read_request || kind == atomic;
}

struct Recording {
  std::vector<RecordedPacket> packets;
  Gid own, peer;  // peer: source of received packets, or else destination of sent ones
  std::optional<QpNumber> own_qp, peer_qp;

  // Returns the PSN of the first request that this side sent (or received).
  Psn first_psn(bool said) const {
    for (const RecordedPacket& each : packets) {
      if (each.said == said && !each.damaged && is_request(each.info().kind)) {
        return each.packet.psn;
      }
    }
    return {};
  }
  // Returns the payload of the message that begins at packet `from`, sent or received.
  std::vector<std::byte> message(std::size_t from) const {
    const bool said = packets[from].said;
    std::vector<std::byte> bytes;
    Psn next = packets[from].packet.psn;
    for (std::size_t i = from; i < packets.size(); ++i) {
      const RecordedPacket& each = packets[i];
      if (each.said != said || each.damaged || each.packet.psn != next) continue;
      if (!is_request(each.info().kind)) continue;
      bytes.insert(bytes.end(), each.payload.begin(), each.payload.end());
      ++next;
      if (each.info().ends_message()) return bytes;
    }
    TULLE_CHECK(false);
    return bytes;
  }
  // Returns the last packet of the message that begins at `from`. It says what must happen at the
  // end.
  const wire::Packet& last_packet(std::size_t from) const {
    for (std::size_t i = from; i < packets.size(); ++i) {
      const RecordedPacket& each = packets[i];
      const bool same = each.said == packets[from].said && is_request(each.info().kind);
      if (same && each.info().ends_message()) return each.packet;
    }
    return packets[from].packet;
  }
  // Returns the data that answered a READ with this PSN and length. `answer_said` is true if this
  // side sent the answer.
  std::vector<std::byte> read_data(bool answer_said, Psn psn, std::uint32_t length) const {
    std::vector<std::byte> bytes;
    for (const RecordedPacket& each : packets) {
      if (each.said != answer_said || each.info().kind != wire::Kind::read_response) continue;
      if (each.packet.psn != psn || bytes.size() >= length) continue;
      bytes.insert(bytes.end(), each.payload.begin(), each.payload.end());
      ++psn;
    }
    return bytes;
  }
  // Returns the value that an atomic found, from its answer.
  std::uint64_t original(Psn psn) const {
    for (const RecordedPacket& each : packets) {
      if (each.info().atomic_ack_eth && each.packet.psn == psn) return each.packet.original;
    }
    return 0;
  }
  // True if a request's answer is a NAK.
  bool is_refused(std::size_t index) const {
    for (std::size_t i = index; i < packets.size(); ++i) {
      const wire::Packet& packet = packets[i].packet;
      if (packets[i].said == packets[index].said || !packets[i].info().aeth) continue;
      return packet.syndrome.kind == wire::AckKind::nak && packet.psn == packets[index].packet.psn;
    }
    return false;
  }
};

// Reads a recording. `lost` lists frames that this side neither sent nor received, because a relay
// between the two kernels dropped them on the other side of the capture, or made them up.
inline Recording read_recording(const std::string& name, Side side,
                                const std::vector<std::size_t>& lost) {
  Recording out;
  // The client's host is number 3, and the server's is number 2 (tests/data/README.md).
  const std::uint8_t host = side == Side::client ? 3 : 2;
  constexpr QpNumber management{1}, multicast{0xFF'FFFF};
  for (port::Captured& captured : port::roce_packets(TULLE_TEST_DATA "/captures/" + name)) {
    if (wire::peek_destination_qp(captured.datagram()) == management) continue;
    if (std::find(lost.begin(), lost.end(), captured.frame) != lost.end()) continue;
    RecordedPacket each;
    each.captured = std::move(captured);
    const wire::IpUdp& ip = each.captured.ip;
    each.said = ip.source.bytes[15] == host;
    (each.said ? out.own : out.peer) = ip.source;
    if (out.peer == Gid{}) out.peer = ip.destination;
    if (out.own == Gid{}) out.own = ip.destination;
    const auto verdict =
        port::decode(ip, true, each.captured.datagram(), each.packet, each.payload);
    each.damaged = verdict != port::Verdict::ok;
    const QpNumber to = wire::peek_destination_qp(each.captured.datagram());
    if (to != multicast) (each.said ? out.peer_qp : out.own_qp) = to;
    if (each.said && each.info().deth) out.own_qp = each.packet.source_qp;
    out.packets.push_back(std::move(each));
    // The payload stays valid, since it lies in the vector that has moved along with it.
  }
  return out;
}

}  // namespace tulle::device::testing
