#pragma once

// Multicast groups (IBTA 15.2.5.17): who has joined which, and what a group's packets are like.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "management/administration/view.h"
#include "management/subnet/multicast.h"
#include "rdma/wire/lrh.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

// Components of an MCMemberRecord, as bits of the mask.
struct MemberComponents {
  static constexpr std::uint64_t group_gid = 1 << 0;
  static constexpr std::uint64_t port_gid = 1 << 1;
  static constexpr std::uint64_t qkey = 1 << 2;
  static constexpr std::uint64_t mtu_selector = 1 << 4;
  static constexpr std::uint64_t mtu = 1 << 5;
  static constexpr std::uint64_t traffic_class = 1 << 6;
  static constexpr std::uint64_t pkey = 1 << 7;
  static constexpr std::uint64_t rate_selector = 1 << 8;
  static constexpr std::uint64_t rate = 1 << 9;
  static constexpr std::uint64_t life_time_selector = 1 << 10;
  static constexpr std::uint64_t life_time = 1 << 11;
  static constexpr std::uint64_t sl = 1 << 12;
  static constexpr std::uint64_t flow_label = 1 << 13;
  static constexpr std::uint64_t join_state = 1 << 16;
};

// The memberships that a question is about. Others are not looked at.
struct MemberQuestion {
  bool is_trusted = false;                // false: one record a group, which names no member
  std::optional<wire::GidBytes> group{};  // none: all groups
  std::optional<std::uint64_t> port{};    // GUID; none: all ports
};

// Where a walk over the memberships resumes, whatever has changed since.
struct MemberCursor {
  wire::GidBytes group{};
  std::uint64_t port = 0;  // GUID
};

enum class GroupOutcome : std::uint8_t { ok, bad_question, unknown_gid, too_little, no_room };

// A program can make many groups and memberships. No join or leave takes longer because of these.
class Groups {
 public:
  static constexpr std::uint16_t first_lid = wire::unicast_lid_max + 1;
  static constexpr std::size_t groups_max = 1'024;  // entries of a switch's table
  static constexpr std::size_t members_max = 65'536;
  static constexpr std::size_t groups_of_port_max = 640;  // that a port has made

  // A new set of groups has the one for broadcasts of IPoIB, which stays without members.
  Groups();

  // Joins a port to a group, which is made if the question says what it is like. The question
  // becomes the answer. `created` says whether the group is new. `asker` is the GUID of the port
  // that asks, which may be another.
  GroupOutcome join(const View& view, std::uint64_t mask, wire::MemberRecord& record,
                    bool& is_created, std::uint64_t asker);
  // Takes join states back. `ended` says whether the group is gone.
  GroupOutcome leave(const View& view, std::uint64_t mask, wire::MemberRecord& record,
                     bool& is_ended);
  // Hands the records to the caller, which returns false when it has enough. It looks at `budget`
  // records at most, which it lowers. Returns false if that is too little: the walk then resumes at
  // the cursor when it is called again with the same question.
  using TakeMember = std::function<bool(const wire::MemberRecord&)>;
  bool visit(const View& view, const MemberQuestion& question, MemberCursor& cursor,
             std::size_t& budget, const TakeMember& take) const;
  std::optional<wire::MemberRecord> find(const wire::GidBytes& group) const;

  // Forgets the members that the subnet does not have any more.
  void forget_absent(const View& view);

  // Returns who sends and receives the packets of each group. This takes longer the more members
  // there are.
  subnet::Members members() const;
  // Returns a number that changes whenever members() may have.
  std::uint64_t changes() const { return changes_; }

 private:
  struct Group {
    wire::MemberRecord record;                          // without a port
    std::map<std::uint64_t, std::uint8_t> join_states;  // by port GUID
    std::size_t full_members = 0;                       // of these
    bool stays = false;
    std::uint64_t maker = 0;  // GUID of the port that has made it
  };
  using GroupMap = std::map<wire::GidBytes, Group>;

  GroupOutcome create(std::uint64_t mask, const wire::MemberRecord& wanted, std::uint8_t port_mtu,
                      std::uint8_t port_rate, std::uint64_t maker, GroupMap::iterator& created);
  GroupMap::iterator forget(GroupMap::iterator group);
  std::uint16_t take_lid();

  GroupMap groups_;
  std::size_t members_ = 0;
  std::unordered_map<std::uint64_t, std::size_t> made_by_;  // groups, by the maker's GUID
  std::set<std::uint16_t> freed_lids_;                      // of groups that have ended
  std::uint16_t next_lid_ = first_lid + 1;                  // this one and all above are unused
  std::uint64_t changes_ = 0;
  std::uint32_t next_gid_ = 1;
};

}  // namespace tulle::management::administration
