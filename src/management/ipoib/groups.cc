#include "management/ipoib/groups.h"

#include <algorithm>
#include <utility>

#include "management/administration/groups.h"
#include "rdma/wire/ipoib.h"
#include "rdma/wire/pkey.h"

namespace tulle::ipoib {
namespace {

using management::administration::MemberComponents;
using wire::MemberRecord;

constexpr Time first_patience = Time::seconds(1);
constexpr Time last_patience = Time::seconds(16);  // as Linux has it
// A group to which nothing is sent for so long is left.
constexpr Time idle_time = Time::seconds(60);
// An answer to a question comes before this, or never: subnet administration is asked three times.
constexpr Time answer_patience = Time::seconds(10);

}  // namespace

Groups::Groups(Pkey partition)
    : partition_(partition), broadcast_gid_(wire::broadcast_group(partition)) {
  groups_[broadcast_gid_].is_wanted = true;
}

void Groups::set_deadline(Group& group, Time at) {
  group.deadline = at;
  next_deadline_ = std::min(next_deadline_, at);
}

void Groups::join_anew(Time now, const Gid& port, bool is_up) {
  port_ = port;
  is_up_ = is_up;
  for (auto& [gid, group] : groups_) {
    group.state = Group::State::idle;
    group.held = 0;
    group.patience = Time::zero();
    set_deadline(group, now);
  }
}

void Groups::set_wanted(Time now, const std::set<Gid>& ip_groups) {
  std::set<Gid> wanted{broadcast_gid_};
  for (const Gid& ip_group : ip_groups) {
    if (wanted.size() < groups_max) wanted.insert(wire::group_of_ip(ip_group, partition_));
  }
  for (const Gid& gid : wanted) {
    Group& group = groups_[gid];
    if (group.is_wanted && gid != broadcast_gid_) continue;
    group.is_wanted = true;
    // One that was joined to send is joined once more, to receive.
    const bool receives =
        group.state == Group::State::joined && (group.asked_as & MemberRecord::full_member) != 0;
    if (receives || group.state == Group::State::asked) continue;
    group.state = Group::State::idle;
    set_deadline(group, now);
  }
  for (auto& [gid, group] : groups_) {
    if (!group.is_wanted || wanted.contains(gid)) continue;
    group.is_wanted = false;
    const bool may_be_member =
        group.state == Group::State::joined || group.state == Group::State::asked;
    const auto states = static_cast<std::uint8_t>(group.held | group.asked_as);
    if (may_be_member && is_up_) leaving_.push_back(leave(gid, states));
    group.held = 0;
    group.state = Group::State::refused;  // and is forgotten soon
    group.waiting.clear();
    set_deadline(group, now);
  }
}

const MemberRecord* Groups::broadcast() const {
  const Group& group = groups_.at(broadcast_gid_);
  return group.state == Group::State::joined ? &group.record : nullptr;
}

Groups::Joined Groups::route_of(const Group& group) {
  const MemberRecord& record = group.record;
  constexpr unsigned sl_shift = 28, flow_shift = 8;
  constexpr std::uint32_t flow_mask = 0xF'FFFF;
  const std::uint32_t word = record.sl_flow_and_hops;
  return {{record.group_gid},
          Lid(record.lid),
          static_cast<std::uint8_t>(word >> sl_shift),
          record.traffic_class,
          word >> flow_shift & flow_mask,
          static_cast<std::uint8_t>(word)};
}

std::optional<Groups::Joined> Groups::find_to_send(Time now, const Gid& ip_group,
                                                   std::span<const std::byte> packet) {
  const Gid gid = wire::group_of_ip(ip_group, partition_);
  auto found = groups_.find(gid);
  if (found == groups_.end()) {
    if (groups_.size() >= 2 * groups_max) return std::nullopt;
    found = groups_.try_emplace(gid).first;
    set_deadline(found->second, now);
  }
  Group& group = found->second;
  group.used_at = now;
  if (group.state == Group::State::joined) return route_of(group);
  const bool may_wait = group.state != Group::State::refused && group.waiting.size() < waiting_max;
  if (may_wait) group.waiting.emplace_back(packet.begin(), packet.end());
  return std::nullopt;
}

bool Groups::is_member(const Gid& gid) const {
  const auto found = groups_.find(gid);
  return found != groups_.end() && found->second.is_wanted;
}

// A group that the host only sends to exists already, or has no receiver. Any other is made by its
// first member, after the group of broadcasts. This one is made by the manager, for a partition
// that has IP (RFC 4391 §5).
Question Groups::join(Group& group, const Gid& gid, std::uint32_t number) const {
  group.state = Group::State::asked;
  group.asked_as = group.is_wanted ? MemberRecord::full_member : MemberRecord::send_only_non_member;
  group.question = number;
  MemberRecord record;
  record.group_gid = gid.bytes;
  record.port_gid = port_.bytes;
  record.pkey = wire::full_member(partition_).value;
  record.scope_and_join_state = group.asked_as;
  Question question{Question::Kind::join, number, 0, {}};
  question.components = MemberComponents::group_gid | MemberComponents::port_gid |
                        MemberComponents::pkey | MemberComponents::join_state;
  if (group.is_wanted && gid != broadcast_gid_) {
    const MemberRecord& like = *broadcast();
    record.qkey = like.qkey;
    record.mtu = like.mtu;
    record.rate = like.rate;
    record.traffic_class = like.traffic_class;
    record.sl_flow_and_hops = like.sl_flow_and_hops;
    question.components |= MemberComponents::qkey | MemberComponents::mtu_selector |
                           MemberComponents::mtu | MemberComponents::rate_selector |
                           MemberComponents::rate | MemberComponents::traffic_class |
                           MemberComponents::sl | MemberComponents::flow_label;
  }
  question.record = record;
  return question;
}

Question Groups::leave(const Gid& gid, std::uint8_t join_state) const {
  MemberRecord record;
  record.group_gid = gid.bytes;
  record.port_gid = port_.bytes;
  record.scope_and_join_state = join_state;
  return {Question::Kind::leave, 0,
          MemberComponents::group_gid | MemberComponents::port_gid | MemberComponents::join_state,
          record};
}

void Groups::progress(Time now, std::uint32_t& next_number, std::vector<Question>& questions) {
  questions.insert(questions.end(), leaving_.begin(), leaving_.end());
  leaving_.clear();
  if (now < next_deadline_) return;
  next_deadline_ = Time::never();
  for (auto at = groups_.begin(); at != groups_.end();) {
    auto& [gid, group] = *at;
    const bool is_due = is_up_ && now >= group.deadline;
    const bool is_idle = !group.is_wanted && (!group.used_at || now >= *group.used_at + idle_time);
    if (is_due && group.state == Group::State::joined && is_idle) {
      questions.push_back(leave(gid, group.held));
      at = groups_.erase(at);
      continue;
    }
    if (is_due && group.state == Group::State::refused && is_idle) {
      at = groups_.erase(at);
      continue;
    }
    const bool may_ask = gid == broadcast_gid_ || broadcast() != nullptr;
    if (is_due && group.state == Group::State::joined) {
      group.deadline = group.is_wanted ? Time::never() : *group.used_at + idle_time;
    } else if (is_due && !may_ask) {
      group.deadline = Time::never();  // until the group of broadcasts is joined
    } else if (is_due) {
      questions.push_back(join(group, gid, next_number++));
      group.deadline = now + answer_patience;
    }
    if (is_up_) next_deadline_ = std::min(next_deadline_, group.deadline);
    ++at;
  }
}

bool Groups::take(Time now, std::uint32_t number, const MemberRecord* record,
                  std::optional<Joined>& joined, WaitingPackets& packets) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [number](const auto& each) {
    return each.second.state == Group::State::asked && each.second.question == number;
  });
  if (found == groups_.end()) return false;
  auto& [gid, group] = *found;
  if (record == nullptr) {
    group.state = Group::State::refused;
    group.waiting.clear();
    group.patience = std::clamp(group.patience * 2, first_patience, last_patience);
    set_deadline(group, now + group.patience);
    return true;
  }
  group.state = Group::State::joined;
  group.held |= group.asked_as;
  group.record = *record;
  group.record.group_gid = gid.bytes;
  group.patience = Time::zero();
  set_deadline(group, now);
  const bool asks_again = group.is_wanted && (group.asked_as & MemberRecord::full_member) == 0;
  if (asks_again) group.state = Group::State::idle;
  packets = std::exchange(group.waiting, {});
  joined = route_of(group);
  if (gid != broadcast_gid_) return true;
  for (auto& [other, each] : groups_) {
    if (each.state == Group::State::idle) set_deadline(each, now);
  }
  return true;
}

void Groups::rebase(Time by) {
  for (auto& [gid, group] : groups_) {
    tulle::rebase(by, group.deadline);
    if (group.used_at) group.used_at = group.used_at->rebased(by);
  }
  tulle::rebase(by, next_deadline_);
}

}  // namespace tulle::ipoib
