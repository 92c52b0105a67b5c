#pragma once

// The interfaces that an interface sends to: their addresses and the paths to them.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "management/ipoib/question.h"
#include "rdma/wire/ipoib.h"
#include "rdma/wire/sa.h"

namespace tulle::ipoib {

class Neighbours {
 public:
  // Any sender of packets can fill these. A new neighbour then takes the place of the one that has
  // not been used for longest.
  static constexpr std::size_t neighbours_max = 1'024;
  static constexpr std::size_t waiting_max =
      64;  // packets for one neighbour: a few long ones in parts
  static constexpr std::size_t all_waiting_max = 1'024;

  explicit Neighbours(Pkey partition) : partition_(partition) {}
  Neighbours(Neighbours&&) = default;  // and no copy: neighbours have places in a list

  // A neighbour as packets need it.
  struct Route {
    QpNumber qp;
    Lid lid;
    std::uint8_t service_level = 0;
    bool has_global = false;  // it is behind a router
    Gid gid;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint32_t flow_label = 0;
  };
  // Returns the route to an IP address, or keeps the packet until there is one.
  std::optional<Route> find_to_send(Time now, const Gid& ip, std::span<const std::byte> packet);
  // An interface has told its address. `is_new` says whether a neighbour is made of one that is not
  // known; with `owes_answer`, it is to be told of the host's address `target` once there is a
  // route.
  void hear(Time now, const Gid& ip, const wire::IpoibAddress& address, bool is_new,
            const std::optional<Gid>& owed_target);
  // Paths may have changed. `port` is the GID of the port.
  void route_anew(Time now, const Gid& port);

  // A request to be sent, which finds or confirms a neighbour.
  struct Search {
    Gid ip;
    std::optional<Route> route;  // confirm: it goes to the neighbour alone
    std::optional<wire::IpoibAddress> known;
  };
  // Asks what is due.
  void progress(Time now, std::uint32_t& next_number, std::vector<Question>& questions,
                std::vector<Search>& searches);
  Time next_deadline() const { return next_deadline_; }
  void rebase(Time by);

  // The packets and answers that may be sent, as the route to a neighbour is known.
  struct Found {
    Route route;
    Gid ip;
    wire::IpoibAddress address;
    std::vector<Gid> owed_targets;
    WaitingPackets packets;
  };
  // Takes the answer to a question, or null. Returns false if the question was not of a neighbour.
  bool take(Time now, std::uint32_t number, const wire::PathRecord* record,
            std::optional<Found>& found);

  std::size_t size() const { return neighbours_.size(); }
  // Counts packets whose neighbour was not found.
  std::uint64_t unresolved() const { return unresolved_; }

 private:
  struct Neighbour {
    std::optional<wire::IpoibAddress> address;
    std::optional<Route> route;
    unsigned tries = 0;          // since it last answered
    std::uint32_t question = 0;  // for the path to the address; 0: none is asked
    bool wants_path = false;
    bool is_refused = false;  // it was not found, and is not looked for until the deadline
    Time heard_at = Time::zero();
    Time used_at = Time::zero();
    Time deadline = Time::zero();
    std::list<Gid>::iterator place{};  // in by_use_
    std::vector<Gid> owed_targets;
    WaitingPackets waiting;
  };
  using Map = std::map<Gid, Neighbour>;

  Neighbour& add(Time now, const Gid& ip);
  void forget(Map::iterator at);
  static void forget_address(Neighbour& neighbour);
  void drop_waiting(Neighbour& neighbour);
  void give_up(Time now, Neighbour& neighbour);
  void set_deadline(Neighbour& neighbour, Time at);
  Question ask_path(Neighbour& neighbour, std::uint32_t number) const;
  void look_for(Time now, const Gid& ip, Neighbour& neighbour, std::vector<Search>& searches);

  const Pkey partition_;
  Gid port_;
  Map neighbours_;
  std::list<Gid> by_use_;  // the neighbour that has not been used for longest comes first
  std::size_t all_waiting_ = 0;
  std::uint64_t unresolved_ = 0;
  Time next_deadline_ = Time::never();
};

}  // namespace tulle::ipoib
