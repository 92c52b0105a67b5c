#pragma once

// The multicast groups of an interface: those that it has joined for its host, and those to which
// it only sends.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/ids.h"
#include "base/time.h"
#include "management/ipoib/question.h"
#include "rdma/wire/sa.h"

namespace tulle::ipoib {

class Groups {
 public:
  // The host's IP groups beyond these are not joined.
  static constexpr std::size_t groups_max = 512;
  static constexpr std::size_t waiting_max = 16;  // packets for a group that is being joined

  explicit Groups(Pkey partition);

  // The port has another address, or another manager: all that was joined is joined again. The GID
  // is the port's. `is_up` says whether there is anybody to ask.
  void join_anew(Time now, const Gid& port, bool is_up);
  // The host receives these IP groups, and no others.
  void set_wanted(Time now, const std::set<Gid>& ip_groups);

  // A group as packets need it.
  struct Joined {
    Gid gid;
    Lid lid;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint32_t flow_label = 0;
    std::uint8_t hop_limit = 0;
  };
  // Returns the group of broadcasts, or nothing if it has not been joined. Without it, there is no
  // other.
  const wire::MemberRecord* broadcast() const;
  Joined broadcast_route() const { return route_of(groups_.at(broadcast_gid_)); }
  // Returns the group for packets to an IP group, or keeps the packet until it is joined.
  std::optional<Joined> find_to_send(Time now, const Gid& ip_group,
                                     std::span<const std::byte> packet);
  // Returns true if packets to this group are for the host.
  bool is_member(const Gid& group) const;

  // Asks what is due into `questions`.
  void progress(Time now, std::uint32_t& next_number, std::vector<Question>& questions);
  Time next_deadline() const { return next_deadline_; }
  void rebase(Time by);
  // Takes the answer to a question, or null if it was refused or none came. Returns false if the
  // question was not of a group. What waited for the group is put into `packets`.
  bool take(Time now, std::uint32_t number, const wire::MemberRecord* record,
            std::optional<Joined>& joined, WaitingPackets& packets);

 private:
  struct Group {
    bool is_wanted = false;  // the host receives it
    enum class State : std::uint8_t { idle, asked, joined, refused } state = State::idle;
    std::uint8_t asked_as = 0;      // join state
    std::uint8_t held = 0;          // join states that the port has
    std::uint32_t question = 0;     // asked
    Time deadline = Time::zero();   // when something is to be done
    std::optional<Time> used_at{};  // when it was last sent to
    Time patience = Time::zero();   // refused: how long until the next try
    wire::MemberRecord record;      // joined
    WaitingPackets waiting;
  };
  static Joined route_of(const Group& group);
  Question join(Group& group, const Gid& gid, std::uint32_t number) const;
  Question leave(const Gid& gid, std::uint8_t join_state) const;
  void set_deadline(Group& group, Time at);

  const Pkey partition_;
  const Gid broadcast_gid_;
  Gid port_;
  bool is_up_ = false;
  std::map<Gid, Group> groups_;
  std::vector<Question> leaving_;
  Time next_deadline_ = Time::zero();
};

}  // namespace tulle::ipoib
