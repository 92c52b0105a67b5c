#pragma once

// A subnet manager (IBTA 14.4): it finds the nodes of a subnet, gives out LIDs, sets forwarding
// tables, makes links active, and looks again when something changes. Of several managers one is
// the master, and the others wait. It is a state machine without input or output.
//
// A sweep is a row of phases. Each asks questions, and the next one begins when all of these have
// been answered or given up. What went wrong is done again by the next sweep.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "base/time.h"
#include "management/packet.h"
#include "management/subnet/discovery.h"
#include "management/subnet/exchange.h"
#include "management/subnet/graph.h"
#include "management/subnet/group_times.h"
#include "management/subnet/lid_assignment.h"
#include "management/subnet/multicast.h"
#include "management/subnet/plan.h"
#include "management/subnet/polled_manager.h"

namespace tulle::management::subnet {

// Writes the table `linear` of each switch. The tables have their size, and the switches' own LIDs
// lead to port 0 already. An entry that is left as it is leads nowhere.
using Routing = std::function<void(Graph& graph)>;
// Returns which ports get the packets of which multicast LIDs now.
using CollectMembers = std::function<Members()>;

struct ManagerSettings {
  std::uint64_t port_guid = 0;  // of the port at which the manager is
  std::uint8_t priority = 0;    // 0 to 15
  // SM_Key. OpenSM ignores managers that have another than its own, which is 1 by default.
  std::uint64_t manager_key = 1;
  // True: `manager_key` is a secret. The manager ignores others that have another, as OpenSM does,
  // and those that have it know the M_Key, too. False: the manager takes its M_Key from the ports
  // before it hands the subnet over.
  bool shares_keys = false;
  unsigned lmc = 0;  // adapters get 2^lmc LIDs each
  PortSettings ports;
  DiscoveryLimits limits;
  std::uint64_t seed = 0;  // of transaction IDs; strangers must not know it
  // Returns numbers that nobody can predict. Without it, a key that has been shown stays.
  Exchange::Draw draw{};
};

// Returns a new M_Key. 0 would be none.
inline std::uint64_t drawn_key(const Exchange::Draw& draw) {
  return std::max<std::uint64_t>(draw(), 1);
}

class Manager {
 public:
  using State = wire::ManagerState;

  // A master looks at its switches so often, as OpenSM does, and sees which noticed a change.
  static constexpr Time light_sweep_pause = Time::seconds(10);
  // Traps cannot make sweeps follow one another faster than so, nor busier than half of the time.
  static constexpr Time sweep_pause = Time::milliseconds(100);
  static constexpr Time groups_pause_max = GroupTimes::pause_max;
  // A manager in standby asks the master so often whether it is there.
  static constexpr Time poll_pause = Time::seconds(2);
  static constexpr int polls_max = PolledManager::polls_max;
  static constexpr std::size_t outgoing_max = 1'024;
  static constexpr std::size_t notices_max = 1'024;

  Manager(Time now, const ManagerSettings& settings, Routing routing);

  State state() const { return state_; }
  // Returns true if this manager is the master and has set the subnet up.
  bool is_allowed() const { return is_allowed_; }
  bool is_up() const { return state_ == State::master && is_up_; }
  // Returns the subnet as the last sweep left it.
  const Graph& graph() const { return graph_; }
  // Returns a number that grows with each sweep that a master has ended.
  std::uint64_t sweeps() const { return sweeps_; }
  // Returns what the last sweep could not do: questions without a good answer, what made no sense
  // or was too much, ports without a LID.
  std::uint32_t errors() const { return errors_; }
  std::uint64_t port_guid() const { return settings_.port_guid; }
  wire::SmInfo info() const;
  // Returns the SM_Key if it is a secret, and otherwise 0: everybody knows the usual one.
  std::uint64_t secret_key() const { return settings_.shares_keys ? settings_.manager_key : 0; }

  // Says whether the manager may work. It rests while another manager uses the same port.
  void set_allowed(Time now, bool is_allowed);

  // Says that something may have changed, so that a master sweeps.
  void want_sweep(Time now);

  // Says which ports get the packets of which multicast LIDs. The switches' tables follow.
  void set_members(Members members);
  // Says that these may have changed, which costs nothing. The manager collects them when it sets
  // groups, by what expire() is given.
  void want_groups() { are_members_old_ = true; }

  // Takes a datagram for QP0 of the manager's port.
  void receive(Time now, const Packet& packet);
  std::optional<Packet> take_packet(Time now);
  // Returns when expire() must be called although nothing has come.
  Time next_timeout() const;
  // `members` may be left out by those who never call want_groups().
  void expire(Time now, const CollectMembers& members = {});
  void rebase(Time by) {
    tulle::rebase(by, due_, sweep_began_, next_sweep_);
    exchange_.rebase(by);
    group_times_.rebase(by);
  }

  // Returns the next notice that nodes have sent by traps, for those who want to know.
  std::optional<wire::Notice> take_notice();

 private:
  enum class Phase : std::uint8_t {
    idle,
    discovering,
    releasing,  // takes its key from the ports, before it hands over
    handing_over,
    setting_ports,
    setting_tables,
    arming,
    activating,
    setting_groups,
    looking,  // the light sweep
    polling,
  };

  void receive_notice(Time now, const Packet& packet);
  void receive_control(Time now, const Packet& packet, const wire::MadHeader& header);
  Status obey(Time now, wire::ManagerControl control, const Packet& packet);
  void answer(const Packet& packet, Status status);
  void acknowledge(const Packet& packet);
  void receive_reply(Time now, const Reply& reply);
  void receive_set(const Reply& reply);
  void look_at(const Reply& reply);
  void receive_poll(Time now, const Reply& reply);

  void ask(const std::vector<Question>& questions);
  void advance(Time now);
  void begin_due(Time now);
  void begin_discovery(Time now);
  void begin_groups(Time now, const CollectMembers& members);
  void begin_light_sweep();
  void decide(Time now);
  const OtherManager* master_or_preferred() const;
  bool has_keys_of(const Packet& packet) const;
  void replace_shown_key();
  bool has_precedence(const OtherManager& other) const;
  void stand_by(Time now, const OtherManager& other);
  void release(const OtherManager& other);
  void ask_to_release(const Graph& graph);
  void hand_over();
  void configure();
  void end_sweep(Time now);
  void restart(Time now, State state);
  bool has_groups_to_set() const {
    return phase_ == Phase::idle && (wants_groups_ || are_members_old_) && is_up();
  }
  void rest(Time until) {
    phase_ = Phase::idle;
    due_ = until;
  }

  ManagerSettings settings_;
  Routing routing_;
  State state_ = State::discovering;
  Phase phase_ = Phase::idle;
  Exchange exchange_;
  Discovery discovery_;
  LidAssignment lids_;
  KnownTables tables_;
  KnownGroups groups_;
  Members members_;
  Graph graph_;                // as it is
  Graph working_;              // as the sweep makes it
  bool has_released_ = false;  // this sweep has taken the key from the ports
  std::deque<Packet> outgoing_;
  std::deque<wire::Notice> notices_;
  Time due_ = Time::zero();  // when an idle manager begins its next work
  Time sweep_began_ = Time::zero();
  Time next_sweep_ = Time::zero();  // no sweep begins earlier
  PolledManager polled_;            // in standby
  std::uint64_t sweeps_ = 0;
  std::uint32_t activity_ = 0;
  std::uint32_t errors_ = 0;
  bool is_allowed_ = true;
  bool is_up_ = false;
  bool is_new_master_ = true;
  bool wants_sweep_ = false;
  bool is_urgent_ = false;  // something has changed; otherwise a sweep repairs the last one
  bool wants_groups_ = false;
  bool are_members_old_ = false;
  GroupTimes group_times_;
};

}  // namespace tulle::management::subnet
