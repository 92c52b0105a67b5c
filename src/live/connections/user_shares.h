#pragma once

// What users have of a host's endpoints, ports and memberships in groups. Users who are limited
// get a part of each, alone and together, so that others get theirs.

#include <sys/types.h>

#include <cstddef>
#include <unordered_map>

#include "live/connections/channel_owner.h"

namespace tulle::live {

class UserShares {
 public:
  // The most that one user who is limited has. Endpoints: half of the connections that peers may
  // ask for. Ports: half of the ephemeral ones.
  static constexpr std::size_t endpoints_max = 16'384;
  static constexpr std::size_t ports_max = 14'116;
  static constexpr std::size_t groups_max = 16'384;
  // The most that all such users have together: three quarters. The agent's own user has the rest.
  static constexpr std::size_t endpoints_of_all_max = 24'576;
  static constexpr std::size_t ports_of_all_max = 21'174;

  // A user has ports and groups only with an endpoint: the functions that concern these require
  // that the user has one.
  bool may_have_endpoint(const ChannelOwner& owner) const;
  bool may_have_port(const ChannelOwner& owner) const;
  bool may_have_group(const ChannelOwner& owner) const;

  void add_endpoint(const ChannelOwner& owner);
  void add_port(const ChannelOwner& owner);
  void add_group(const ChannelOwner& owner);
  // A user's last endpoint is removed after the ports and groups.
  void remove_endpoint(const ChannelOwner& owner);
  void remove_port(const ChannelOwner& owner);
  void remove_groups(const ChannelOwner& owner, std::size_t count);

 private:
  struct Held {
    std::size_t endpoints = 0;
    std::size_t ports = 0;
    std::size_t groups = 0;
  };

  std::unordered_map<uid_t, Held> held_;  // by users who hold any
  Held held_by_limited_;                  // endpoints and ports of all users who are limited
};

}  // namespace tulle::live
