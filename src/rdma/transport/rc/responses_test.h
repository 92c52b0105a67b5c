#pragma once

// Responses of a reliable connection and what a requester does about them, for tests of the
// requester.

#include <cstdint>
#include <utility>
#include <vector>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/requester.h"

namespace tulle::transport::rc {

inline wire::Packet answer(wire::Operation operation, std::uint32_t psn_offset,
                           wire::AckKind kind = wire::AckKind::ack,
                           std::uint8_t value = no_credits_code) {
  auto out = testing::packet(wire::TransportClass::rc, operation, testing::first_psn + psn_offset);
  out.syndrome = {kind, value};
  return out;
}
inline wire::Packet ack(std::uint32_t psn_offset, std::uint8_t credits = no_credits_code) {
  return answer(wire::Operation::acknowledge, psn_offset, wire::AckKind::ack, credits);
}
inline wire::Packet nak(std::uint32_t psn_offset, wire::NakCode code) {
  return answer(wire::Operation::acknowledge, psn_offset, wire::AckKind::nak,
                static_cast<std::uint8_t>(code));
}
inline wire::Packet rnr_nak(std::uint32_t psn_offset, std::uint8_t timer) {
  return answer(wire::Operation::acknowledge, psn_offset, wire::AckKind::rnr_nak, timer);
}

// Returns the operation of each packet and its PSN, counted from the first.
inline std::vector<std::pair<wire::Operation, int>> shape(
    const std::vector<testing::Pulled>& pulled) {
  std::vector<std::pair<wire::Operation, int>> out;
  out.reserve(pulled.size());
  for (const testing::Pulled& each : pulled) {
    out.emplace_back(wire::operation_of(each.packet.opcode),
                     each.packet.psn.distance_from(testing::first_psn));
  }
  return out;
}
using Shape = std::vector<std::pair<wire::Operation, int>>;

inline std::vector<std::pair<std::uint64_t, verbs::CompletionStatus>> done(testing::Host& host) {
  std::vector<std::pair<std::uint64_t, verbs::CompletionStatus>> out;
  for (const auto& each : host.completions()) out.emplace_back(each.wr_id, each.status);
  return out;
}
using Done = std::vector<std::pair<std::uint64_t, verbs::CompletionStatus>>;

}  // namespace tulle::transport::rc
