#include "management/administration/groups.h"

#include <algorithm>
#include <set>

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

bool Groups::has_full_member(const Group& group) const {
  return std::any_of(group.join_states.begin(), group.join_states.end(), [](const auto& each) {
    return (each.second & MemberRecord::full_member) != 0;
  });
}

std::uint16_t Groups::free_lid() const {
  std::set<std::uint16_t> used;
  for (const auto& [gid, group] : groups_) used.insert(group.record.lid);
  std::uint16_t lid = first_lid;
  while (used.contains(lid)) ++lid;
  return lid;
}

GroupOutcome Groups::create(std::uint64_t mask, const MemberRecord& wanted, std::uint8_t port_mtu,
                            std::uint8_t port_rate, GroupMap::iterator& created) {
  // IBTA 15.2.5.17.2: who makes a group says what its packets are like, and is a full member.
  constexpr std::uint64_t needed =
      Joins::qkey | Joins::pkey | Joins::sl | Joins::flow_label | Joins::traffic_class;
  if ((mask & needed) != needed) return GroupOutcome::too_little;
  if ((join_state_of(wanted) & MemberRecord::full_member) == 0) return GroupOutcome::bad_question;
  if (groups_.size() >= groups_max || members_ >= members_max) return GroupOutcome::no_room;
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
  group.record.lid = free_lid();
  group.record.scope_and_join_state &= 0xF0;
  if (!has(Joins::group_gid) || wanted.group_gid == wire::GidBytes{}) {
    // IBTA 15.2.5.17.2: without a GID the group gets one, of link-local scope.
    const std::uint32_t number = next_gid_++;
    group.record.group_gid = {0xFF, 0x12, 0xA0, 0x1B, 0xFE, 0x80};
    for (std::size_t i = 0; i < 4; ++i) {
      group.record.group_gid[15 - i] = static_cast<std::uint8_t>(number >> (8 * i));
    }
  }
  const auto [place, is_new] = groups_.emplace(group.record.group_gid, group);
  created = place;
  return is_new ? GroupOutcome::ok : GroupOutcome::no_room;
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
    const auto made = std::ranges::count_if(
        groups_, [asker](const auto& each) { return each.second.maker == asker; });
    if (static_cast<std::size_t>(made) >= groups_of_port_max) return GroupOutcome::no_room;
    const auto outcome = create(mask, record, port_mtu, port_rate, found);
    if (outcome != GroupOutcome::ok) return outcome;
    found->second.maker = asker;
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
  joined |= states;
  ++changes_;
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
  member->second &= static_cast<std::uint8_t>(~states);
  if (member->second == 0) {
    group.join_states.erase(member);
    --members_;
  }
  ++changes_;
  // IBTA 15.2.5.17: a group ends with its last full member.
  if (has_full_member(group) || group.stays) return GroupOutcome::ok;
  members_ -= group.join_states.size();
  groups_.erase(found);
  is_ended = true;
  return GroupOutcome::ok;
}

std::vector<MemberRecord> Groups::records(const View& view, bool is_trusted) const {
  std::vector<MemberRecord> out;
  for (const auto& [gid, group] : groups_) {
    if (!is_trusted || group.join_states.empty()) out.push_back(group.record);
    if (!is_trusted) continue;
    for (const auto& [guid, states] : group.join_states) {
      const auto port = view.find_guid(guid);
      if (!port) continue;
      MemberRecord& record = out.emplace_back(group.record);
      record.port_gid = view.gid(*port);
      record.scope_and_join_state |= states;
    }
  }
  return out;
}

std::optional<MemberRecord> Groups::find(const wire::GidBytes& group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return std::nullopt;
  return found->second.record;
}

void Groups::forget_absent(const View& view) {
  for (auto each = groups_.begin(); each != groups_.end();) {
    Group& group = each->second;
    const std::size_t before = group.join_states.size();
    std::erase_if(group.join_states,
                  [&](const auto& member) { return !view.find_guid(member.first); });
    changes_ += before != group.join_states.size();
    members_ -= before - group.join_states.size();
    const bool ends = !group.stays && !has_full_member(group);
    if (ends) members_ -= group.join_states.size();
    each = ends ? groups_.erase(each) : std::next(each);
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
