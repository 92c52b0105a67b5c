#include "verbs/qp_state.h"

#include <array>
#include <initializer_list>

namespace tulle::verbs {
namespace {

using A = QpAttribute;

constexpr QpAttributeMask set(std::initializer_list<A> attributes) {
  QpAttributeMask mask;
  for (A attribute : attributes) mask |= attribute;
  return mask;
}

struct Requirements {
  QpAttributeMask required;
  QpAttributeMask optional;
};

// One row per step. The columns are RC, UC, UD, SRD, and raw packets. SRD's ladder is UD's with
// rnr_retry in addition (Linux, drivers/infiniband/hw/efa/efa_verbs.c: srd_qp_state_table). Raw
// packets have a port and nothing else (Linux, drivers/infiniband/core/verbs.c: qp_state_table).
// Steps to reset and to error are allowed from everywhere, without other attributes. The two halves
// of XRC use RC's column, without the attributes that only the opposite half needs.
struct Step {
  QpState from;
  QpState to;
  std::array<Requirements, 5> by_type;
};

constexpr std::array<Step, 9> ladder = {{
    {QpState::reset,
     QpState::init,
     {{{set({A::pkey_index, A::port, A::access_flags}), {}},
       {set({A::pkey_index, A::port, A::access_flags}), {}},
       {set({A::pkey_index, A::port, A::qkey}), {}},
       {set({A::pkey_index, A::port, A::qkey}), {}},
       {set({A::port}), {}}}}},
    {QpState::init,
     QpState::init,
     {{{{}, set({A::pkey_index, A::port, A::access_flags})},
       {{}, set({A::pkey_index, A::port, A::access_flags})},
       {{}, set({A::pkey_index, A::port, A::qkey})},
       {{}, set({A::pkey_index, A::port, A::qkey})},
       {{}, {}}}}},
    {QpState::init,
     QpState::rtr,
     {{{set({A::address_vector, A::path_mtu, A::destination_qp, A::rq_psn, A::max_dest_rd_atomic,
             A::min_rnr_timer}),
        set({A::alternate_path, A::access_flags, A::pkey_index})},
       {set({A::address_vector, A::path_mtu, A::destination_qp, A::rq_psn}),
        set({A::alternate_path, A::access_flags, A::pkey_index})},
       {{}, set({A::pkey_index, A::qkey})},
       {{}, set({A::pkey_index, A::qkey})},
       {{}, {}}}}},
    {QpState::rtr,
     QpState::rts,
     {{{set({A::timeout, A::retry_count, A::rnr_retry, A::sq_psn, A::max_rd_atomic}),
        set({A::current_state, A::alternate_path, A::access_flags, A::min_rnr_timer,
             A::path_migration_state, A::rate_limit})},
       {set({A::sq_psn}), set({A::current_state, A::alternate_path, A::access_flags,
                               A::path_migration_state, A::rate_limit})},
       {set({A::sq_psn}), set({A::current_state, A::qkey, A::rate_limit})},
       {set({A::sq_psn}), set({A::current_state, A::qkey, A::rate_limit, A::rnr_retry})},
       {{}, set({A::rate_limit})}}}},
    {QpState::rts,
     QpState::rts,
     {{{{},
        set({A::current_state, A::access_flags, A::alternate_path, A::path_migration_state,
             A::min_rnr_timer, A::rate_limit})},
       {{},
        set({A::current_state, A::access_flags, A::alternate_path, A::path_migration_state,
             A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, set({A::rate_limit})}}}},
    {QpState::rts,
     QpState::sqd,
     {{{{}, set({A::sqd_async_notify})},
       {{}, set({A::sqd_async_notify})},
       {{}, set({A::sqd_async_notify})},
       {{}, set({A::sqd_async_notify})},
       {{}, {}}}}},
    {QpState::sqd,
     QpState::rts,
     {{{{},
        set({A::current_state, A::alternate_path, A::access_flags, A::min_rnr_timer,
             A::path_migration_state, A::rate_limit})},
       {{},
        set({A::current_state, A::alternate_path, A::access_flags, A::path_migration_state,
             A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, {}}}}},
    {QpState::sqd,
     QpState::sqd,
     {{{{},
        set({A::port, A::address_vector, A::timeout, A::retry_count, A::rnr_retry, A::max_rd_atomic,
             A::max_dest_rd_atomic, A::alternate_path, A::access_flags, A::pkey_index,
             A::min_rnr_timer, A::path_migration_state})},
       {{},
        set({A::address_vector, A::alternate_path, A::access_flags, A::pkey_index,
             A::path_migration_state})},
       {{}, set({A::pkey_index, A::qkey})},
       {{}, set({A::pkey_index, A::qkey})},
       {{}, {}}}}},
    // RC has no send-queue-error state (IBTA 10.3.1.6), so the step never applies to it.
    {QpState::sqe,
     QpState::rts,
     {{{{}, {}},
       {{}, set({A::current_state, A::access_flags, A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, set({A::current_state, A::qkey, A::rate_limit})},
       {{}, {}}}}},
}};

// A queue pair over TCP is set up with the attributes of a reliable connection.
std::size_t column_of(QpType type) {
  constexpr std::size_t raw_column = 4;
  if (is_raw(type)) return raw_column;
  return static_cast<std::size_t>(is_over_tcp(type) || is_xrc(type) ? QpType::rc : type);
}

// Attributes that are useless to an XRC initiator, which answers nothing, and to a target, which
// asks nothing. Linux removes them from the attributes of a program
// (drivers/infiniband/core/uverbs_cmd.c: modify_qp_mask), so that programs treat both halves as
// they do RC. Tulle does the same.
constexpr QpAttributeMask not_initiators = set({A::max_dest_rd_atomic, A::min_rnr_timer});
constexpr QpAttributeMask not_targets = set({A::retry_count, A::rnr_retry, A::max_rd_atomic});

QpAttributeMask ignored_by(QpType type) {
  if (!is_xrc(type)) return {};
  return type == QpType::xrc_initiator ? not_initiators : not_targets;
}

}  // namespace

LadderVerdict check_step(QpType type, QpState from, QpState to, QpAttributeMask attributes) {
  const QpAttributeMask given = attributes.without(A::state);
  if (to == QpState::reset || to == QpState::error) {
    return given.any() ? LadderVerdict::attribute_not_allowed : LadderVerdict::ok;
  }
  for (const Step& step : ladder) {
    if (step.from != from || step.to != to) continue;
    const std::size_t column = column_of(type);
    if (from == QpState::sqe && column == 0) break;
    const Requirements& row = step.by_type[column];
    const QpAttributeMask ignored = ignored_by(type);
    if (!given.has_all(row.required.without(ignored))) return LadderVerdict::attribute_missing;
    if (given.without(row.required | row.optional | ignored).any()) {
      return LadderVerdict::attribute_not_allowed;
    }
    return LadderVerdict::ok;
  }
  return LadderVerdict::no_such_step;
}

}  // namespace tulle::verbs
