#include "live/connections/user_shares.h"

namespace tulle::live {

bool UserShares::may_have_endpoint(const ChannelOwner& owner) const {
  const auto found = held_.find(owner.user);
  const bool has_most = (found != held_.end() && found->second.endpoints >= endpoints_max) ||
                        held_by_limited_.endpoints >= endpoints_of_all_max;
  return !(owner.is_limited && has_most);
}

bool UserShares::may_have_port(const ChannelOwner& owner) const {
  const bool has_most =
      held_.at(owner.user).ports >= ports_max || held_by_limited_.ports >= ports_of_all_max;
  return !(owner.is_limited && has_most);
}

bool UserShares::may_have_group(const ChannelOwner& owner) const {
  return !(owner.is_limited && held_.at(owner.user).groups >= groups_max);
}

void UserShares::add_endpoint(const ChannelOwner& owner) {
  ++held_[owner.user].endpoints;
  held_by_limited_.endpoints += owner.is_limited;
}

void UserShares::add_port(const ChannelOwner& owner) {
  ++held_.at(owner.user).ports;
  held_by_limited_.ports += owner.is_limited;
}

void UserShares::add_group(const ChannelOwner& owner) { ++held_.at(owner.user).groups; }

void UserShares::remove_endpoint(const ChannelOwner& owner) {
  held_by_limited_.endpoints -= owner.is_limited;
  if (--held_.at(owner.user).endpoints == 0) held_.erase(owner.user);
}

void UserShares::remove_port(const ChannelOwner& owner) {
  --held_.at(owner.user).ports;
  held_by_limited_.ports -= owner.is_limited;
}

void UserShares::remove_groups(const ChannelOwner& owner, std::size_t count) {
  held_.at(owner.user).groups -= count;
}

}  // namespace tulle::live
