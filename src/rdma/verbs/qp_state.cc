#include "rdma/verbs/qp_state.h"

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

// One row for each step. The columns are the first five ladders. SRD's is UD's with rnr_retry added
// (Linux, drivers/infiniband/hw/efa/efa_verbs.c: srd_qp_state_table). Raw packets have a port and
// nothing else (Linux, drivers/infiniband/core/verbs.c: qp_state_table). A step to RESET is allowed
// from every state, and one to ERROR from every state but RESET, with no attribute. The two halves
// of XRC use the first column, and each ignores the attributes that only the other half needs.
struct Step {
  QpState from;
  QpState to;
  std::array<Requirements, 5> by_ladder;
};

constexpr std::array<Step, 9> steps = {{
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

std::size_t column_of(Ladder ladder) {
  const bool is_xrc = ladder == Ladder::xrc_initiator || ladder == Ladder::xrc_target;
  return is_xrc ? 0 : static_cast<std::size_t>(ladder);
}

// An initiator answers nothing and a target asks nothing, so that each has no use for some
// attributes. Linux removes these from the mask that a program gives
// (drivers/infiniband/core/uverbs_cmd.c: modify_qp_mask); programs therefore give both halves all
// of RC's attributes, and this table ignores the same ones.
constexpr QpAttributeMask not_initiators = set({A::max_dest_rd_atomic, A::min_rnr_timer});
constexpr QpAttributeMask not_targets = set({A::retry_count, A::rnr_retry, A::max_rd_atomic});

QpAttributeMask ignored_by(Ladder ladder) {
  if (ladder == Ladder::xrc_initiator) return not_initiators;
  if (ladder == Ladder::xrc_target) return not_targets;
  return {};
}

}  // namespace

StepFinding find_in_step(Ladder ladder, QpState from, QpState to, QpAttributeMask attributes) {
  const QpAttributeMask given = attributes.without(A::state);
  // Linux has no step from RESET to ERROR (drivers/infiniband/core/verbs.c: qp_state_table).
  if (from == QpState::reset && to == QpState::error) return {LadderVerdict::no_such_step, {}};
  if (to == QpState::reset || to == QpState::error) {
    if (given.any()) return {LadderVerdict::attribute_not_allowed, given};
    return {};
  }
  for (const Step& step : steps) {
    if (step.from != from || step.to != to) continue;
    const std::size_t column = column_of(ladder);
    if (from == QpState::sqe && column == 0) break;
    const Requirements& row = step.by_ladder[column];
    const QpAttributeMask ignored = ignored_by(ladder);
    const QpAttributeMask missing = row.required.without(ignored).without(given);
    if (missing.any()) return {LadderVerdict::attribute_missing, missing};
    const QpAttributeMask extra = given.without(row.required | row.optional | ignored);
    if (extra.any()) return {LadderVerdict::attribute_not_allowed, extra};
    return {};
  }
  return {LadderVerdict::no_such_step, {}};
}

}  // namespace tulle::verbs
