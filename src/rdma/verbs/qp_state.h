#pragma once

// The queue pair's ladder of states and the attributes that each step requires and allows (tables
// in IBTA 10.3.1 and 11.2.5.2).

#include <cstdint>

#include "rdma/verbs/types.h"

namespace tulle::verbs {

enum class QpAttribute : std::uint32_t {
  state = 1 << 0,
  current_state = 1 << 1,
  sqd_async_notify = 1 << 2,
  access_flags = 1 << 3,
  pkey_index = 1 << 4,
  port = 1 << 5,
  qkey = 1 << 6,
  address_vector = 1 << 7,
  path_mtu = 1 << 8,
  timeout = 1 << 9,
  retry_count = 1 << 10,
  rnr_retry = 1 << 11,
  rq_psn = 1 << 12,
  max_rd_atomic = 1 << 13,
  alternate_path = 1 << 14,
  min_rnr_timer = 1 << 15,
  sq_psn = 1 << 16,
  max_dest_rd_atomic = 1 << 17,
  path_migration_state = 1 << 18,
  capabilities = 1 << 19,
  destination_qp = 1 << 20,
  rate_limit = 1 << 21,
};
using QpAttributeMask = Flags<QpAttribute>;

enum class LadderVerdict : std::uint8_t {
  ok,
  no_such_step,
  attribute_missing,
  attribute_not_allowed,
};

// A ladder of states: which attributes each step requires and allows. Transports share them.
enum class Ladder : std::uint8_t {
  reliable_connection,
  unreliable_connection,
  datagram,
  reliable_datagram,  // SRD
  raw_packet,
  xrc_initiator,
  xrc_target,
};

struct StepFinding {
  LadderVerdict verdict = LadderVerdict::ok;
  QpAttributeMask attributes;  // those that are missing, or not allowed
};

// Checks a step from one state to another with exactly these attributes. Two attributes are in no
// row: `state` is implied, and `current_state` is allowed where IBTA allows it.
StepFinding find_in_step(Ladder ladder, QpState from, QpState to, QpAttributeMask attributes);
inline LadderVerdict check_step(Ladder ladder, QpState from, QpState to,
                                QpAttributeMask attributes) {
  return find_in_step(ladder, from, to, attributes).verdict;
}

}  // namespace tulle::verbs
