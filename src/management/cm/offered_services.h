#pragma once

// The services that a host offers, those that are expected to be offered again, and requests that
// wait for that.
//
// Some servers agree with their client over a first connection, close the listener, and open the
// next (perftest's -R, sometimes one second later). The first connection tells the client to
// connect again, and it does so at once. Over a network its request usually comes a moment later;
// on one host it often comes too early. A request waits for the listener long enough for a server
// that waits for a processor on a busy machine, and little of the 4.3 s for which the peer waits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "management/cm/remote_key.h"
#include "management/cm/types.h"
#include "rdma/wire/mad.h"

namespace tulle::management::cm {

class OfferedServices {
 public:
  struct Settings {
    Time return_window;        // for which a closed listener is expected to return
    Time return_patience;      // for which a request waits for the listener
    std::size_t held_max = 0;  // limit of waiting requests and of expected services
  };
  // A request that waits, as it came.
  struct Held {
    Time deadline;
    std::uint64_t service_id = 0;
    RemoteKey from;
    Route route;
    std::array<std::byte, wire::mad_bytes> mad{};
  };

  static constexpr Gid any_address{};

  explicit OfferedServices(const Settings& settings) : settings_(settings) {}

  bool offers(std::uint64_t service_id) const { return services_.contains(service_id); }
  // Offers a service, and returns the requests that waited for it at this address, or at any, in
  // order. The calls may be nested.
  [[nodiscard]] std::vector<Held> listen(std::uint64_t service_id,
                                         const Gid& address = any_address);
  void stop_listening(std::uint64_t service_id);
  // Expects a service to be offered again. When there are `held_max`, the one of the owner who has
  // most makes room that would end first. `owner` is a user's number. At one address, as with
  // listen(), or at any: other services have the same ID there.
  void expect(Time now, std::uint64_t service_id, std::uint32_t owner,
              const Gid& address = any_address);

  enum class Outcome : std::uint8_t {
    refused,   // the service is offered or not expected, or there is no room
    held,      // it waits
    repeated,  // it repeats one that waits
  };
  // Lets a request wait for a service. When `held_max` wait, the oldest request makes room, of the
  // address that has most, unless that is the address that asks.
  Outcome hold(Time now, const Route& route, std::span<const std::byte> mad,
               std::uint64_t service_id, const RemoteKey& from);
  // Drops a waiting request whose sender has given up.
  void drop(const RemoteKey& from);
  // Returns the requests that have waited too long. Their services are not expected any more.
  [[nodiscard]] std::vector<Held> take_overdue(Time now);

  std::size_t held_count() const { return held_.size(); }
  // Returns when take_overdue() is due.
  Time next_deadline() const;
  void rebase(Time by);

 private:
  struct Expected {
    Time deadline;
    std::uint32_t owner = 0;
  };
  using ServiceAt = std::pair<std::uint64_t, Gid>;  // an ID and an address

  bool expects(Time now, std::uint64_t service_id, const Gid& address) const;
  void make_room_to_expect();
  bool make_room_to_hold(const Route& route);
  template <typename IsTaken>
  std::vector<Held> take(IsTaken is_taken);

  Settings settings_;
  std::map<std::uint64_t, unsigned> services_;
  std::map<ServiceAt, Expected> expected_;  // services that may return
  std::vector<Held> held_;
};

}  // namespace tulle::management::cm
