#pragma once

// An interface of IP over InfiniBand (RFC 4391, 4392) as a state machine, for one partition of one
// port: IP packets on the side of the host, packets of InfiniBand on the side of the port, and
// questions to subnet administration. It finds its neighbours' addresses, and their paths, and
// joins the multicast groups that the host's IP needs.
//
// The host knows nothing of addresses below IP. It hands over whole IP packets, and each goes to
// the interface that has its destination address: routers beyond the interface are unknown here.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "management/ipoib/groups.h"
#include "management/ipoib/neighbours.h"
#include "management/ipoib/question.h"
#include "management/ipoib/resolution.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"

namespace tulle::ipoib {

// The port, as its manager has set it.
struct PortView {
  Gid gid;
  Lid lid;
  Lid manager;  // 0: there is none
  bool is_active = false;
  bool is_in_partition = false;

  bool operator==(const PortView&) const = default;
};

// An address of the host at the interface. IPv4 addresses are mapped, and their prefixes have 96
// bits more.
struct HostAddress {
  Gid ip;
  unsigned prefix_bits = 128;

  bool operator==(const HostAddress&) const = default;
};

class Interface {
 public:
  // The queue pair's number is the interface's alone, and the P_Key's highest bit says whether the
  // port is a full member of the partition.
  Interface(Pkey partition, QpNumber qp)
      : partition_(partition), qp_(qp), groups_(partition), neighbours_(partition) {}

  // Returns true if the port has changed.
  bool set_port(Time now, const PortView& port);
  // The manager asks that everything be registered with it again.
  void register_anew(Time now);
  void set_addresses(Time now, std::vector<HostAddress> addresses);

  // True once IP packets can pass.
  bool is_running() const { return groups_.broadcast() != nullptr; }
  // Returns the longest IP packet, in bytes, or 0 if the interface does not run.
  std::size_t mtu() const;

  // Takes a packet from the host's IP. Returns the packet to be sent from the port, from the LRH to
  // the pad, or nothing if it has to wait, or cannot be sent. Bytes that are returned are valid
  // until the next call of a function that is not const.
  std::span<const std::byte> send(Time now, std::span<const std::byte> ip_packet);
  // Takes a packet that has come to the port, from the LRH to the pad. Returns the IP packet for
  // the host in it, or nothing.
  std::span<const std::byte> receive(Time now, std::span<const std::byte> packet);
  // Returns a packet that is to be sent besides, or nothing.
  std::span<const std::byte> pull_packet();

  std::optional<Question> pull_question();
  // Takes the answers to questions of the two kinds. Null: it was refused, or none has come.
  void take_path(Time now, std::uint32_t number, const wire::PathRecord* record);
  void take_group(Time now, std::uint32_t number, const wire::MemberRecord* record);

  // Does what is due. The caller must call this at next_deadline(), and after it gave something.
  void progress(Time now);
  Time next_deadline() const {
    return std::min({groups_.next_deadline(), neighbours_.next_deadline(), follow_due_});
  }

  void rebase(Time by) {
    tulle::rebase(by, follows_end_, follow_due_);
    groups_.rebase(by);
    neighbours_.rebase(by);
  }

  struct Counters {
    std::uint64_t sent = 0;  // IP packets
    std::uint64_t received = 0;
    std::uint64_t too_long = 0;
    std::uint64_t no_group = 0;  // for a multicast group that is not there, or not yet
    std::uint64_t invalid = 0;   // packets from either side that are none for this interface
  };
  const Counters& counters() const { return counters_; }
  const Neighbours& neighbours() const { return neighbours_; }

 private:
  // Maximum of packets that wait to be pulled, the host's own not counted.
  static constexpr std::size_t queued_max = 1'024;
  // How often the reports of a host change the groups at once. Later changes wait for the end of
  // the interval, and take effect together.
  static constexpr std::uint32_t follows_max = 32;
  static constexpr Time follows_interval = Time::seconds(1);

  wire::IpoibAddress own_address() const;
  bool is_own(const Gid& ip) const;
  bool is_broadcast(const Gid& ip) const;
  Gid source_towards(const Gid& target) const;
  void follow_reports(Time now);
  void follow_wanted(Time now);
  std::span<const std::byte> write(const Neighbours::Route& route, std::uint16_t type,
                                   std::span<const std::byte> payload);
  std::span<const std::byte> write(const Groups::Joined& group, std::uint16_t type,
                                   std::span<const std::byte> payload);
  std::span<const std::byte> write(const wire::LocalPath& path, QpNumber to, std::uint16_t type,
                                   std::span<const std::byte> payload);
  void queue(std::span<const std::byte> packet);
  void search(Time now, const Neighbours::Search& search);
  void hear(Time now, const ResolutionMessage& message);

  const Pkey partition_;
  const QpNumber qp_;
  PortView port_;
  std::vector<HostAddress> addresses_;
  std::set<Gid> reported_;  // IP groups that the host has joined
  std::uint32_t follows_left_ = 0;
  Time follows_end_ = Time::zero();
  Time follow_due_ = Time::never();
  Groups groups_;
  Neighbours neighbours_;
  std::uint32_t next_number_ = 1;
  std::vector<Question> questions_;
  std::size_t next_question_ = 0;  // the first of these that was not pulled
  std::vector<Neighbours::Search> searches_;
  std::deque<std::vector<std::byte>> queued_;
  std::vector<std::byte> pulled_;
  // LRH 8, GRH 40, BTH 12, DETH 8, IPoIB 4, and the longest payload of 4,096 bytes with its pad.
  std::array<std::byte, 8 + 40 + 12 + 8 + 4 + 4'096> out_;
  Psn psn_;
  Counters counters_;
};

}  // namespace tulle::ipoib
