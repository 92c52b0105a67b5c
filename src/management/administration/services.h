#pragma once

// Services that programs have registered (IBTA 15.2.5.14), each until its lease ends.

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "wire/sa.h"

namespace tulle::management::administration {

class Services {
 public:
  static constexpr std::size_t services_max = 4'096;
  static constexpr std::size_t services_of_port_max = 512;

  // Registers a service, or renews it, for the port with that GUID. Returns false if there is no
  // room.
  bool set(Time now, const wire::ServiceRecord& record, std::uint64_t owner);
  // Ends a service. Returns false if there is none.
  bool remove(const wire::ServiceRecord& record);
  // Returns the services, each with the seconds that are left of its lease.
  std::vector<wire::ServiceRecord> records(Time now) const;
  Time next_timeout() const;
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
};

}  // namespace tulle::management::administration
