#pragma once

// All that subnet administration has records of: nodes, links and paths as the manager's last sweep
// left them, the manager itself, services, and groups.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/time.h"
#include "management/administration/groups.h"
#include "management/administration/paths.h"
#include "management/administration/question.h"
#include "management/administration/rows.h"
#include "management/administration/services.h"
#include "management/administration/view.h"
#include "management/subnet/graph.h"
#include "rdma/wire/sa.h"
#include "rdma/wire/smp.h"

namespace tulle::management::administration {

class Records {
 public:
  // A question with this SM_Key learns the members of groups, as with OpenSM's usual key.
  static constexpr std::uint64_t trusted_key = 1;

  // Where a search resumes.
  struct Cursor {
    PathCursor paths{};
    std::uint32_t node = 0;
    std::size_t place = 0;  // in the node
    MemberCursor member{};
    std::optional<ServiceKey> service{};
  };
  // A question whose records are being collected.
  struct Walk {
    Time now;
    const Question& question;
    Rows& rows;
    Cursor& cursor;
    Budget& budget;
  };

  void set_manager(const wire::SmInfo& info) { manager_ = info; }
  // Shows another graph, whose first node has the manager. It must outlive this object, or be
  // replaced before the next use.
  void show(const subnet::Graph& graph);

  const View& view() const { return view_; }
  Lid manager_lid() const { return manager_lid_; }
  Services& services() { return services_; }
  const Services& services() const { return services_; }
  Groups& groups() { return groups_; }
  const Groups& groups() const { return groups_; }

  // Returns true if a question names what it asks for so closely that one look is enough.
  bool is_lookup(const Question& question) const;
  // Returns the status of the answer, or nothing if the budget was too little.
  std::optional<std::uint16_t> collect(Walk walk) const;

 private:
  // These return false if the budget was too little.
  bool collect_nodes(Walk& walk) const;
  bool collect_ports(Walk& walk) const;
  bool collect_switches(Walk& walk) const;
  bool collect_tables(Walk& walk) const;
  bool collect_links(Walk& walk) const;
  bool collect_managers(Walk& walk) const;
  bool collect_services(Walk& walk) const;
  bool collect_members(Walk& walk) const;
  std::optional<std::uint16_t> collect_paths(Walk& walk) const;
  MemberQuestion member_question(const Question& question) const;

  // Visits the places of the nodes until the answer is full or the budget is used up. A question
  // that names a LID is spared the other nodes.
  template <typename PlacesOf, typename Visit>
  bool for_each_place(Walk& walk, PlacesOf places_of, Visit visit) const;

  wire::SmInfo manager_;
  Lid manager_lid_;
  View view_;
  Groups groups_;
  Services services_;
};

}  // namespace tulle::management::administration
