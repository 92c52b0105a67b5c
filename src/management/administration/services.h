#pragma once

// Services that programs have registered (IBTA 15.2.5.14), each until its lease ends.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/time.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

// Who wants to change a service.
struct ServiceAsker {
  std::uint64_t port = 0;  // GUID
  // The record's ServiceGID is one of the port, or the question has the manager's key.
  bool may_change = false;
};

// A service's ID, GID and P_Key. Services are in the order of these.
using ServiceKey = std::tuple<std::uint64_t, wire::GidBytes, std::uint16_t>;
inline constexpr wire::GidBytes last_gid = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
// The services from the first to the last of these keys, which are all of them at first.
struct ServiceKeys {
  ServiceKey first{};
  ServiceKey last{std::numeric_limits<std::uint64_t>::max(), last_gid,
                  std::numeric_limits<std::uint16_t>::max()};
};

enum class ServiceOutcome : std::uint8_t { ok, not_allowed, unknown, no_room };

// A port registers services under its own GID alone. Others may renew, change or end one if they
// know its ServiceKey, unless that is zero.
class Services {
 public:
  static constexpr std::size_t services_max = 4'096;
  static constexpr std::size_t services_of_port_max = 512;

  // Registers a service, or renews it. It counts for the port that has registered it.
  ServiceOutcome set(Time now, const wire::ServiceRecord& record, const ServiceAsker& asker);
  // Ends a service.
  ServiceOutcome remove(const wire::ServiceRecord& record, const ServiceAsker& asker);
  // Hands the services of these keys to the caller, which returns false when it has enough. Each
  // record has the seconds that are left of the lease. The walk looks at `budget` services at most,
  // which it lowers. Returns false if that is too little: the walk then resumes at the cursor when
  // it is called again with the same keys.
  using TakeService = std::function<bool(const wire::ServiceRecord&)>;
  bool visit(Time now, const ServiceKeys& keys, std::optional<ServiceKey>& cursor,
             std::size_t& budget, const TakeService& take) const;
  // Returns when the next lease ends, and never if none will.
  Time next_timeout() const { return ends_.empty() ? Time::never() : ends_.begin()->first; }
  void expire(Time now);
  void rebase(Time by);

 private:
  struct Service {
    wire::ServiceRecord record;
    Time end;
    std::uint64_t owner = 0;
  };

  using ServiceMap = std::map<ServiceKey, Service>;

  static ServiceKey key_of(const wire::ServiceRecord& record) {
    return {record.id, record.gid, record.pkey};
  }
  void forget(ServiceMap::iterator service);

  ServiceMap services_;
  std::set<std::pair<Time, ServiceKey>> ends_;              // of the leases that end
  std::unordered_map<std::uint64_t, std::size_t> of_port_;  // services, by the owner's GUID
};

}  // namespace tulle::management::administration
