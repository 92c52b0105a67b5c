#pragma once

// Services that programs have registered (IBTA 15.2.5.14), each until its lease ends.

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

// Who wants to change a service.
struct ServiceAsker {
  std::uint64_t port = 0;  // GUID
  // The record's ServiceGID is one of the port, or the question has the manager's key.
  bool may_change = false;
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
  // Returns the services, each with the seconds that are left of its lease.
  std::vector<wire::ServiceRecord> records(Time now) const;
  // Returns a time at which a lease may have ended, and never if none will.
  Time next_timeout() const { return next_end_; }
  void expire(Time now);

 private:
  using Key = std::tuple<std::uint64_t, wire::GidBytes, std::uint16_t>;
  struct Service {
    wire::ServiceRecord record;
    Time end;
    std::uint64_t owner = 0;
  };

  static Key key_of(const wire::ServiceRecord& record) {
    return {record.id, record.gid, record.pkey};
  }

  std::map<Key, Service> services_;
  Time next_end_ = Time::never();  // no lease ends earlier
};

}  // namespace tulle::management::administration
