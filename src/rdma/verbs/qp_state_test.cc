#include "rdma/verbs/qp_state.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace tulle::verbs {
namespace {

constexpr QpState states[] = {QpState::reset, QpState::init, QpState::rtr,  QpState::rts,
                              QpState::sqd,   QpState::sqe,  QpState::error};
constexpr Ladder rc = Ladder::reliable_connection, uc = Ladder::unreliable_connection,
                 ud = Ladder::datagram;
constexpr Ladder ladders[] = {rc, uc, ud};
constexpr int attributes = 22;

// The tables of the manual page of ibv_modify_qp, and those of IBTA 11.2.5.2 for the steps that the
// page leaves out. They use the C API's names of the attributes, so that they are independent of
// the ladder's own notation.
const std::map<std::string, QpAttribute> names = {
    {"CUR_STATE", QpAttribute::current_state},
    {"SQD_NOTIFY", QpAttribute::sqd_async_notify},
    {"ACCESS", QpAttribute::access_flags},
    {"PKEY", QpAttribute::pkey_index},
    {"PORT", QpAttribute::port},
    {"QKEY", QpAttribute::qkey},
    {"AV", QpAttribute::address_vector},
    {"MTU", QpAttribute::path_mtu},
    {"TIMEOUT", QpAttribute::timeout},
    {"RETRY", QpAttribute::retry_count},
    {"RNR_RETRY", QpAttribute::rnr_retry},
    {"RQ_PSN", QpAttribute::rq_psn},
    {"RD_ATOMIC", QpAttribute::max_rd_atomic},
    {"ALT_PATH", QpAttribute::alternate_path},
    {"MIN_RNR", QpAttribute::min_rnr_timer},
    {"SQ_PSN", QpAttribute::sq_psn},
    {"DEST_RD_ATOMIC", QpAttribute::max_dest_rd_atomic},
    {"MIG_STATE", QpAttribute::path_migration_state},
    {"CAP", QpAttribute::capabilities},
    {"DEST_QPN", QpAttribute::destination_qp},
    {"RATE", QpAttribute::rate_limit},
};

QpAttributeMask mask_of(const std::string& words) {
  QpAttributeMask mask;
  std::string word;
  for (const char c : words + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      mask |= names.at(word);
      word.clear();
    }
  }
  return mask;
}

struct Row {
  const char* required;
  const char* optional;
};
using Step = std::tuple<Ladder, QpState, QpState>;

const std::map<Step, Row>& table() {
  using enum QpState;
  static const std::map<Step, Row> rows = {
      {{ud, reset, init}, {"PKEY PORT QKEY", ""}},
      {{uc, reset, init}, {"PKEY PORT ACCESS", ""}},
      {{rc, reset, init}, {"PKEY PORT ACCESS", ""}},
      {{ud, init, init}, {"", "PKEY PORT QKEY"}},
      {{uc, init, init}, {"", "PKEY PORT ACCESS"}},
      {{rc, init, init}, {"", "PKEY PORT ACCESS"}},
      {{ud, init, rtr}, {"", "PKEY QKEY"}},
      {{uc, init, rtr}, {"AV MTU DEST_QPN RQ_PSN", "PKEY ACCESS ALT_PATH"}},
      {{rc, init, rtr}, {"AV MTU DEST_QPN RQ_PSN DEST_RD_ATOMIC MIN_RNR", "PKEY ACCESS ALT_PATH"}},
      {{ud, rtr, rts}, {"SQ_PSN", "CUR_STATE QKEY RATE"}},
      {{uc, rtr, rts}, {"SQ_PSN", "CUR_STATE ACCESS ALT_PATH MIG_STATE RATE"}},
      {{rc, rtr, rts},
       {"SQ_PSN TIMEOUT RETRY RNR_RETRY RD_ATOMIC",
        "CUR_STATE ACCESS ALT_PATH MIG_STATE MIN_RNR RATE"}},
      {{ud, rts, rts}, {"", "CUR_STATE QKEY RATE"}},
      {{uc, rts, rts}, {"", "CUR_STATE ACCESS ALT_PATH MIG_STATE RATE"}},
      {{rc, rts, rts}, {"", "CUR_STATE ACCESS ALT_PATH MIG_STATE MIN_RNR RATE"}},
      {{ud, rts, sqd}, {"", "SQD_NOTIFY"}},
      {{uc, rts, sqd}, {"", "SQD_NOTIFY"}},
      {{rc, rts, sqd}, {"", "SQD_NOTIFY"}},
      {{ud, sqd, rts}, {"", "CUR_STATE QKEY RATE"}},
      {{uc, sqd, rts}, {"", "CUR_STATE ACCESS ALT_PATH MIG_STATE RATE"}},
      {{rc, sqd, rts}, {"", "CUR_STATE ACCESS ALT_PATH MIG_STATE MIN_RNR RATE"}},
      {{ud, sqd, sqd}, {"", "PKEY QKEY"}},
      {{uc, sqd, sqd}, {"", "AV ALT_PATH ACCESS PKEY MIG_STATE"}},
      {{rc, sqd, sqd},
       {"",
        "PORT AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC DEST_RD_ATOMIC ALT_PATH ACCESS PKEY MIN_RNR "
        "MIG_STATE"}},
      {{ud, sqe, rts}, {"", "CUR_STATE QKEY RATE"}},
      {{uc, sqe, rts}, {"", "CUR_STATE ACCESS RATE"}},
  };
  return rows;
}

QpAttributeMask attribute(int bit) { return QpAttributeMask::from_bits(1u << bit); }

// Returns the verdict on a step with exactly these attributes, by the table above.
LadderVerdict expected(Ladder ladder, QpState from, QpState to, QpAttributeMask given) {
  given = given.without(QpAttribute::state);
  if (from == QpState::reset && to == QpState::error) return LadderVerdict::no_such_step;
  if (to == QpState::reset || to == QpState::error) {
    return given.any() ? LadderVerdict::attribute_not_allowed : LadderVerdict::ok;
  }
  const auto row = table().find({ladder, from, to});
  if (row == table().end()) return LadderVerdict::no_such_step;
  const QpAttributeMask required = mask_of(row->second.required);
  if (!given.has_all(required)) return LadderVerdict::attribute_missing;
  const QpAttributeMask allowed = required | mask_of(row->second.optional);
  return given.without(allowed).any() ? LadderVerdict::attribute_not_allowed : LadderVerdict::ok;
}

// Tests every type and every pair of states, with the required attributes, with each attribute
// added, and with each one removed.
TEST(QpLadder, WholeTable) {
  for (const Ladder ladder : ladders) {
    for (const QpState from : states) {
      for (const QpState to : states) {
        SCOPED_TRACE(testing::Message()
                     << "ladder " << static_cast<int>(ladder) << ", " << static_cast<int>(from)
                     << " to " << static_cast<int>(to));
        const auto row = table().find({ladder, from, to});
        const QpAttributeMask base =
            row == table().end() ? QpAttributeMask() : mask_of(row->second.required);
        EXPECT_EQ(check_step(ladder, from, to, base), expected(ladder, from, to, base));
        for (int bit = 0; bit < attributes; ++bit) {
          const QpAttributeMask more = base | attribute(bit), less = base.without(attribute(bit));
          EXPECT_EQ(check_step(ladder, from, to, more), expected(ladder, from, to, more)) << bit;
          EXPECT_EQ(check_step(ladder, from, to, less), expected(ladder, from, to, less)) << bit;
        }
      }
    }
  }
}

TEST(QpLadder, ResetFromEverywhereAndErrorFromAllButReset) {
  for (const Ladder ladder : ladders) {
    for (const QpState from : states) {
      EXPECT_EQ(check_step(ladder, from, QpState::reset, QpAttribute::state), LadderVerdict::ok);
      EXPECT_EQ(check_step(ladder, from, QpState::error, QpAttribute::state),
                from == QpState::reset ? LadderVerdict::no_such_step : LadderVerdict::ok);
    }
  }
}

TEST(QpLadder, OnlyTheSendQueueErrorOfUnreliableOnesIsLeft) {
  EXPECT_EQ(check_step(rc, QpState::sqe, QpState::rts, QpAttribute::state),
            LadderVerdict::no_such_step);
  EXPECT_EQ(check_step(uc, QpState::sqe, QpState::rts, QpAttribute::state), LadderVerdict::ok);
  EXPECT_EQ(check_step(ud, QpState::sqe, QpState::rts, QpAttribute::state), LadderVerdict::ok);
}

// Each half of XRC climbs the ladder with its own attributes, and also with all that RC needs.
TEST(QpLadder, HalvesOfXrc) {
  const QpAttributeMask to_rtr = mask_of("AV MTU DEST_QPN RQ_PSN");
  const QpAttributeMask answers = mask_of("DEST_RD_ATOMIC MIN_RNR");
  const QpAttributeMask to_rts = mask_of("SQ_PSN TIMEOUT");
  const QpAttributeMask asks = mask_of("RETRY RNR_RETRY RD_ATOMIC");
  struct Half {
    Ladder ladder;
    QpAttributeMask rtr, rts;
  };
  for (const Half& half : {Half{Ladder::xrc_initiator, to_rtr, to_rts | asks},
                           Half{Ladder::xrc_target, to_rtr | answers, to_rts}}) {
    SCOPED_TRACE(static_cast<int>(half.ladder));
    const auto step = [&](QpState from, QpState to, QpAttributeMask mask) {
      return check_step(half.ladder, from, to, mask);
    };
    EXPECT_EQ(step(QpState::init, QpState::rtr, half.rtr), LadderVerdict::ok);
    EXPECT_EQ(step(QpState::init, QpState::rtr, to_rtr | answers), LadderVerdict::ok);
    EXPECT_EQ(step(QpState::rtr, QpState::rts, half.rts), LadderVerdict::ok);
    EXPECT_EQ(step(QpState::rtr, QpState::rts, to_rts | asks), LadderVerdict::ok);
    for (int bit = 0; bit < attributes; ++bit) {
      if (!(attribute(bit) & half.rtr).any()) continue;
      EXPECT_EQ(step(QpState::init, QpState::rtr, half.rtr.without(attribute(bit))),
                LadderVerdict::attribute_missing)
          << bit;
    }
    EXPECT_EQ(step(QpState::rtr, QpState::rts, half.rts | mask_of("QKEY")),
              LadderVerdict::attribute_not_allowed);
    EXPECT_EQ(step(QpState::sqe, QpState::rts, {}), LadderVerdict::no_such_step);
  }
}

}  // namespace
}  // namespace tulle::verbs
