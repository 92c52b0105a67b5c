#pragma once

// A host's questions to subnet administration, and the multicast groups that its port has joined.
//
// Several users of a host may be in one group. Administration knows ports alone, so that the port
// leaves a group with the last of its users.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "base/ids.h"
#include "base/time.h"
#include "fabric/subnet.h"
#include "live/fabric/host_services.h"
#include "rdma/wire/sa.h"

namespace tulle::live {

// Returns the GID of a host's port.
Gid port_gid(const fabric::Subnet& subnet, std::uint32_t host);

class HostAdministration {
 public:
  using Now = std::function<Time()>;
  // Administration's answer: an errno, or 0 and the record. It comes once for each question.
  template <typename Record>
  using Answered = std::function<void(int error, const Record& record)>;

  // `client` is this object's number at the services, which no program has. All that it is given
  // must outlive it.
  HostAdministration(std::uint32_t host, std::uint32_t client, Now now,
                     const fabric::Subnet& subnet, HostServices& services);
  HostAdministration(const HostAdministration&) = delete;
  HostAdministration& operator=(const HostAdministration&) = delete;
  ~HostAdministration();

  // Asks for a path. Returns false, and answers nothing, if the subnet has no manager.
  bool find_path(const wire::PathRecord& record, std::uint64_t components,
                 Answered<wire::PathRecord> answered);
  // Joins a group, and makes it if the record says enough. The caller then has the group, whatever
  // the answer is, until it calls leave(). Returns false, and answers nothing, if the subnet has no
  // manager. A caller that has the group already asks once more with `is_again`.
  bool join(const wire::MemberRecord& record, std::uint64_t components,
            Answered<wire::MemberRecord> answered, bool is_again = false);
  // Ends what a call of join() began. The join states are those of the group's last user.
  void leave(const wire::GidBytes& group,
             std::uint8_t join_states = wire::MemberRecord::full_member);

  // Takes a management datagram that came to this client.
  void take(const HostServices::Delivery& delivery);

 private:
  using Take = std::function<void(int error, std::span<const std::byte> mad)>;
  template <typename Record>
  static Take read_into(Answered<Record> answered);
  template <typename Record>
  bool ask(std::uint8_t method, std::uint16_t attribute, std::uint64_t components,
           const Record& record, Take take);

  const std::uint32_t host_;
  const std::uint32_t client_;
  const Now now_;
  const fabric::Subnet& subnet_;
  HostServices& services_;
  std::uint32_t agent_ = 0;
  std::map<std::uint32_t, Take> questions_;          // by the lower half of the transaction ID
  std::map<wire::GidBytes, std::uint32_t> members_;  // users of each group
};

}  // namespace tulle::live
