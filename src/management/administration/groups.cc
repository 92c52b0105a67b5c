#include "management/administration/groups.h"

#include <algorithm>
#include <utility>

#include "base/ids.h"
#include "management/administration/paths.h"
#include "rdma/wire/ipoib.h"

namespace tulle::management::administration {
namespace {

using Joins = MemberComponents;
using wire::MemberRecord;

constexpr std::uint8_t usual_mtu = 4;        // 2,048 bytes
constexpr std::uint8_t usual_rate = 3;       // 10 Gb/s
constexpr std::uint32_t ipoib_qkey = 0xB1B;  // as OpenSM has it
// Those who send only get no packets.
constexpr std::uint8_t receives = MemberRecord::full_member | MemberRecord::non_member;

std::uint8_t join_state_of(const MemberRecord& record) { return record.scope_and_join_state & 0xF; }

bool is_full(std::uint8_t join_state) { return (join_state & MemberRecord::full_member) != 0; }

bool is_multicast(const wire::GidBytes& gid) { return gid[0] == 0xFF; }

MemberRecord ipoib_broadcast() {
  MemberRecord record;
  record.group_gid = wire::broadcast_group(default_pkey).bytes;
  record.qkey = ipoib_qkey;
  record.lid = Groups::first_lid;
  record.mtu = wire::selected(wire::Selector::exactly, usual_mtu);
  record.rate = wire::selected(wire::Selector::exactly, usual_rate);
  record.life_time = wire::selected(wire::Selector::exactly, path_life_time);
  record.pkey = default_pkey.value;
  record.scope_and_join_state = 0x20;
  return record;
}

// Returns the value of a new group: what the question wants, as far as the port has it.
std::uint8_t value_for(std::uint8_t wanted, bool has_wanted, std::uint8_t usual, std::uint8_t ports,
                       Rank rank) {
  const std::uint8_t most = rank(ports) < rank(usual) ? ports : usual;
  if (!has_wanted) return most;
  const std::uint8_t code = wire::selected_value(wanted);
  switch (wire::selector_of(wanted)) {
    case wire::Selector::exactly:
      return rank(code) != 0 && rank(code) <= rank(ports) ? code : std::uint8_t{0};
    case wire::Selector::best:
      return ports;
    case wire::Selector::above:
      return rank(ports) > rank(code) ? ports : std::uint8_t{0};
    case wire::Selector::below:
      return greatest_below(code, ports, rank);
  }
  return 0;
}

// True if a group is as the question says, and within what the port can do.
bool suits(const MemberRecord& group, std::uint64_t mask, const MemberRecord& wanted) {
  const auto has = [mask](std::uint64_t component) { return (mask & component) == component; };
  const auto sl_of = [](const MemberRecord& each) { return each.sl_flow_and_hops >> 28; };
  const auto flow_of = [](const MemberRecord& each) {
    return each.sl_flow_and_hops >> 8 & 0xFFFFF;
  };
  if (has(Joins::qkey) && wanted.qkey != group.qkey) return false;
  if (has(Joins::pkey) && (wanted.pkey & 0x7FFF) != (group.pkey & 0x7FFF)) return false;
  if (has(Joins::traffic_class) && wanted.traffic_class != group.traffic_class) return false;
  if (has(Joins::sl) && sl_of(wanted) != sl_of(group)) return false;
  if (has(Joins::flow_label) && flow_of(wanted) != flow_of(group)) return false;
  if (has(Joins::mtu_selector | Joins::mtu) &&
      !is_wanted(wire::selected_value(group.mtu), wanted.mtu, rank_of_code)) {
    return false;
  }
  return !has(Joins::rate_selector | Joins::rate) ||
         is_wanted(wire::selected_value(group.rate), wanted.rate, rate_of_code);
}

}  // namespace

Groups::Groups() {
  Group broadcast;
  broadcast.record = ipoib_broadcast();
  broadcast.stays = true;
  groups_.emplace(broadcast.record.group_gid, broadcast);
}

// Returns the lowest LID that no group has, since switches have tables up to the highest one.
std::uint16_t Groups::take_lid() {
  if (freed_lids_.empty()) return next_lid_++;
  return freed_lids_.extract(freed_lids_.begin()).value();
}

// Returns the next group.
Groups::GroupMap::iterator Groups::forget(GroupMap::iterator group) {
  members_ -= group->second.join_states.size();
  freed_lids_.insert(group->second.record.lid);
  const auto made = made_by_.find(group->second.maker);
  if (--made->second == 0) made_by_.erase(made);
  return groups_.erase(group);
}

GroupOutcome Groups::create(std::uint64_t mask, const MemberRecord& wanted, std::uint8_t port_mtu,
                            std::uint8_t port_rate, std::uint64_t maker,
                            GroupMap::iterator& created) {
  // IBTA 15.2.5.17.2: who makes a group says what its packets are like, and is a full member.
  constexpr std::uint64_t needed =
      Joins::qkey | Joins::pkey | Joins::sl | Joins::flow_label | Joins::traffic_class;
  if ((mask & needed) != needed) return GroupOutcome::too_little;
  if ((join_state_of(wanted) & MemberRecord::full_member) == 0) return GroupOutcome::bad_question;
  const auto made = made_by_.find(maker);
  const bool has_made_all = made != made_by_.end() && made->second >= groups_of_port_max;
  if (has_made_all || groups_.size() >= groups_max || members_ >= members_max) {
    return GroupOutcome::no_room;
  }
  const auto has = [mask](std::uint64_t component) { return (mask & component) == component; };
  Group group;
  group.record = wanted;
  group.record.port_gid = {};
  group.record.proxy_join = 0;
  const std::uint8_t mtu = value_for(wanted.mtu, has(Joins::mtu_selector | Joins::mtu), usual_mtu,
                                     port_mtu, rank_of_code);
  const std::uint8_t rate = value_for(wanted.rate, has(Joins::rate_selector | Joins::rate),
                                      usual_rate, port_rate, rate_of_code);
  if (mtu == 0 || rate == 0) return GroupOutcome::bad_question;
  group.record.mtu = wire::selected(wire::Selector::exactly, mtu);
  group.record.rate = wire::selected(wire::Selector::exactly, rate);
  group.record.life_time = wire::selected(wire::Selector::exactly, path_life_time);
  group.record.scope_and_join_state &= 0xF0;
  if (!has(Joins::group_gid) || wanted.group_gid == wire::GidBytes{}) {
    // IBTA 15.2.5.17.2: without a GID the group gets one, of link-local scope.
    const std::uint32_t number = next_gid_++;
    group.record.group_gid = {0xFF, 0x12, 0xA0, 0x1B, 0xFE, 0x80};
    for (std::size_t i = 0; i < 4; ++i) {
      group.record.group_gid[15 - i] = static_cast<std::uint8_t>(number >> (8 * i));
    }
  }
  if (groups_.contains(group.record.group_gid)) return GroupOutcome::no_room;
  group.record.lid = take_lid();
  group.maker = maker;
  ++made_by_[maker];
  created = groups_.emplace(group.record.group_gid, group).first;
  return GroupOutcome::ok;
}

GroupOutcome Groups::join(const View& view, std::uint64_t mask, MemberRecord& record,
                          bool& is_created, std::uint64_t asker) {
  is_created = false;
  if ((mask & Joins::port_gid) == 0 || (mask & Joins::join_state) == 0) {
    return GroupOutcome::too_little;
  }
  const std::uint8_t states = join_state_of(record);
  const bool has_gid = (mask & Joins::group_gid) != 0 && record.group_gid != wire::GidBytes{};
  if (states == 0 || (has_gid && !is_multicast(record.group_gid))) {
    return GroupOutcome::bad_question;
  }
  const auto port = view.find_gid(record.port_gid);
  if (!port) return GroupOutcome::unknown_gid;
  const auto& info = view.node(*port).end_port().info;
  const std::uint8_t port_mtu = wire::lower_half(info.init_type_reply_and_mtu);
  const std::uint8_t port_rate = rate_code_of(info);
  auto found = has_gid ? groups_.find(record.group_gid) : groups_.end();
  if (found == groups_.end()) {
    const auto outcome = create(mask, record, port_mtu, port_rate, asker, found);
    if (outcome != GroupOutcome::ok) return outcome;
    is_created = true;
  }
  Group& group = found->second;
  const bool is_capable =
      port_mtu >= wire::selected_value(group.record.mtu) &&
      rate_of_code(port_rate) >= rate_of_code(wire::selected_value(group.record.rate));
  if (!is_created && (!suits(group.record, mask, record) || !is_capable)) {
    return GroupOutcome::bad_question;
  }
  const std::uint64_t guid = view.node(*port).port_guid();
  const bool is_member = group.join_states.contains(guid);
  if (!is_member && members_ >= members_max) return GroupOutcome::no_room;
  members_ += !is_member;
  std::uint8_t& joined = group.join_states[guid];
  const std::uint8_t before = std::exchange(joined, static_cast<std::uint8_t>(joined | states));
  group.full_members += is_full(joined) && !is_full(before);
  changes_ += joined != before;
  const wire::GidBytes own = view.gid(*port);
  record = group.record;
  record.port_gid = own;
  record.scope_and_join_state = static_cast<std::uint8_t>(record.scope_and_join_state | joined);
  return GroupOutcome::ok;
}

GroupOutcome Groups::leave(const View& view, std::uint64_t mask, MemberRecord& record,
                           bool& is_ended) {
  is_ended = false;
  constexpr std::uint64_t needed = Joins::group_gid | Joins::port_gid | Joins::join_state;
  if ((mask & needed) != needed) return GroupOutcome::too_little;
  const auto port = view.find_gid(record.port_gid);
  if (!port) return GroupOutcome::unknown_gid;
  const auto found = groups_.find(record.group_gid);
  if (found == groups_.end()) return GroupOutcome::bad_question;
  Group& group = found->second;
  const auto member = group.join_states.find(view.node(*port).port_guid());
  const std::uint8_t states = join_state_of(record);
  const bool has_them = member != group.join_states.end() && (member->second & states) == states;
  if (states == 0 || !has_them) return GroupOutcome::bad_question;
  const wire::GidBytes own = record.port_gid;
  record = group.record;
  record.port_gid = own;
  record.scope_and_join_state =
      static_cast<std::uint8_t>(record.scope_and_join_state | member->second);
  group.full_members -= is_full(states);
  member->second &= static_cast<std::uint8_t>(~states);
  if (member->second == 0) {
    group.join_states.erase(member);
    --members_;
  }
  ++changes_;
  // IBTA 15.2.5.17: a group ends with its last full member.
  if (group.full_members > 0 || group.stays) return GroupOutcome::ok;
  forget(found);
  is_ended = true;
  return GroupOutcome::ok;
}

bool Groups::visit(const View& view, const MemberQuestion& question, MemberCursor& cursor,
                   std::size_t& budget, const TakeMember& take) const {
  const auto take_member = [&](const Group& group, const auto& member) {
    const auto port = view.find_guid(member.first);
    if (!port) return true;
    MemberRecord record = group.record;
    record.port_gid = view.gid(*port);
    record.scope_and_join_state |= member.second;
    return take(record);
  };
  auto at = question.group ? groups_.find(*question.group) : groups_.lower_bound(cursor.group);
  for (; at != groups_.end(); at = question.group ? groups_.end() : std::next(at)) {
    if (at->first != cursor.group) cursor = {at->first, 0};
    const Group& group = at->second;
    const auto& members = group.join_states;
    const bool names_none = !question.is_trusted || members.empty();
    // A group costs a record, even if the question's port is no member.
    if (names_none || question.port) {
      if (budget == 0) return false;
      --budget;
      const auto member = names_none ? members.end() : members.find(*question.port);
      const bool wants_more = names_none                ? take(group.record)
                              : member != members.end() ? take_member(group, *member)
                                                        : true;
      if (!wants_more) return true;
      continue;
    }
    for (auto member = members.lower_bound(cursor.port); member != members.end(); ++member) {
      cursor.port = member->first;
      if (budget == 0) return false;
      --budget;
      if (!take_member(group, *member)) return true;
    }
  }
  return true;
}

std::optional<MemberRecord> Groups::find(const wire::GidBytes& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return std::nullopt;
  return found->second.record;
}

void Groups::forget_absent(const View& view) {
  for (auto each = groups_.begin(); each != groups_.end();) {
    Group& group = each->second;
    const std::size_t absent = std::erase_if(group.join_states, [&](const auto& member) {
      const bool is_absent = !view.find_guid(member.first);
      group.full_members -= is_absent && is_full(member.second);
      return is_absent;
    });
    changes_ += absent > 0;
    members_ -= absent;
    const bool ends = !group.stays && group.full_members == 0;
    each = ends ? forget(each) : std::next(each);
  }
}

subnet::Members Groups::members() const {
  subnet::Members out;
  for (const auto& [gid, group] : groups_) {
    subnet::GroupMembers& of = out[group.record.lid];
    for (const auto& [guid, states] : group.join_states) {
      ((states & receives) != 0 ? of.receivers : of.senders).push_back(guid);
    }
  }
  return out;
}

}  // namespace tulle::management::administration
