#pragma once

// The answers of a responder, for its tests.

#include <cstdint>
#include <vector>

#include "rdma/transport/host_test.h"
#include "rdma/transport/rc/credits.h"
#include "rdma/wire/packet.h"

namespace tulle::transport::rc::responder {

// An answer of one packet.
struct Answer {
  wire::Operation operation{};
  int psn = 0;  // counted from the first
  wire::Syndrome syndrome;
  std::uint32_t msn = 0;
  bool operator==(const Answer&) const = default;
};
inline std::vector<Answer> answers(testing::Host& host) {
  std::vector<Answer> out;
  for (const testing::Pulled& each : host.pull()) {
    out.push_back({wire::operation_of(each.packet.opcode),
                   each.packet.psn.distance_from(testing::first_psn), each.packet.syndrome,
                   each.packet.msn});
  }
  return out;
}
inline Answer ack(int psn, std::uint32_t msn, std::uint32_t receives) {
  return {wire::Operation::acknowledge, psn, {wire::AckKind::ack, credit_code(receives)}, msn};
}
inline Answer nak(int psn, wire::NakCode code, std::uint32_t msn) {
  return {wire::Operation::acknowledge,
          psn,
          {wire::AckKind::nak, static_cast<std::uint8_t>(code)},
          msn};
}
using Answers = std::vector<Answer>;

}  // namespace tulle::transport::rc::responder
