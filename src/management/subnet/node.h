#pragma once

// The management of one InfiniBand node: its subnet management agent (IBTA 14.2), with all that a
// subnet manager sets, and the states of its ports. It is a state machine without input or output.
// The driver hands it packets, and says what is plugged in.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "management/answer.h"
#include "management/subnet/forwarding_tables.h"
#include "management/subnet/trap_sender.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {

// Widths and speeds that a port supports, as sets of bits (IBTA 14.2.5.6).
struct LinkRates {
  std::uint8_t widths = 2;           // 1x 1, 4x 2, 8x 4, 12x 8, 2x 16
  std::uint8_t speeds = 7;           // 2.5 Gb/s a lane 1, 5 Gb/s 2, 10 Gb/s 4
  std::uint8_t extended_speeds = 0;  // FDR 1, EDR 2, HDR 4, NDR 8; 0: none
};

struct NodeSettings {
  bool is_switch = false;
  std::uint8_t ports = 1;       // 1 to 254, without a switch's port 0
  std::uint64_t guid = 0;       // port p of a channel adapter has the GUID guid + p
  std::uint32_t vendor_id = 0;  // 24 bits
  std::uint16_t device_id = 0;
  std::uint32_t revision = 0;
  std::string description;                // the first 64 bytes count
  std::uint8_t mtu_code = 5;              // MTUCap: 1 is 256 bytes … 5 is 4096
  std::uint8_t virtual_lanes_code = 4;    // VLCap: VL0 1, VL0-1 2, VL0-3 3, VL0-7 4
  std::uint16_t linear_entries = 0xC000;  // of a switch's forwarding tables: one for each LID
  std::uint16_t multicast_entries = 1024;
  std::vector<LinkRates> rates;  // by port, from port 1 on
};

class Node {
 public:
  // The outcome says what becomes of a packet whose route ends at the node.
  enum class Outcome : std::uint8_t {
    nothing,      // it gets no answer
    answered,     // the packet has become its answer
    for_manager,  // it is meant for a subnet manager at this node
  };
  static constexpr std::uint8_t no_port = ForwardingTables::no_port;

  explicit Node(const NodeSettings& settings);

  const NodeSettings& settings() const { return settings_; }
  bool is_switch() const { return settings_.is_switch; }
  std::uint8_t ports() const { return settings_.ports; }
  // Returns the port that has the LIDs of packets at a port: a switch's port 0, an adapter's own.
  std::uint8_t addressed_port(std::uint8_t port) const { return is_switch() ? 0 : port; }
  // Returns a port's PortInfo, with its keys.
  const wire::PortInfo& port_info(std::uint8_t port) const { return ports_[port].info; }
  std::uint64_t port_guid(std::uint8_t port) const;
  wire::PortState state(std::uint8_t port) const;
  wire::PhysicalState physical_state(std::uint8_t port) const;
  std::span<const be16> pkeys(std::uint8_t port) const { return ports_[port].pkeys; }
  // Ends the lease of the key (IBTA 14.2.4.2) at ports whose manager has that LID, so that they
  // show their key. A key without a lease stays.
  void end_lease(std::uint16_t manager);
  // Returns true if a unicast LID is one of the port's.
  bool has_lid(std::uint8_t port, Lid lid) const;
  // Switch: returns the output port of a unicast LID. 0 is the switch itself, and no_port means
  // that the table has none.
  std::uint8_t output_port(Lid lid) const { return has_lid(0, lid) ? 0 : tables_.output_port(lid); }
  // Switch: returns true if packets of a multicast LID leave by the port.
  bool forwards_multicast(Lid lid, std::uint8_t port) const {
    return tables_.forwards_multicast(lid, port);
  }

  // Returns the lane on which packets of a service level leave by a port, or nothing if there is
  // none (IBTA 7.6.6, 14.2.5.8). At a switch it depends on the port by which they came in.
  std::optional<std::uint8_t> lane(std::uint8_t in_port, std::uint8_t out_port,
                                   std::uint8_t level) const;
  // A port's arbitration among lanes, as a manager has written it (IBTA 7.6.9, 14.2.5.9): entries
  // of a lane and a weight, two bytes each, and the limit of high priority. Nothing but zeros means
  // that it has written none.
  static constexpr std::uint8_t arbitration_entries = 32;  // of each table
  struct Arbitration {
    std::array<std::byte, 2 * arbitration_entries> high{};
    std::array<std::byte, 2 * arbitration_entries> low{};
    std::uint8_t high_limit = 0;
  };
  Arbitration arbitration(std::uint8_t port) const;
  // Returns how often a manager has written any of it.
  std::uint32_t arbitration_writes() const { return arbitration_writes_; }
  // Switch: returns false if packets of a partition must not come in, or leave, by a port (IBTA
  // 14.2.5.6: PartitionEnforcementInbound and -Outbound).
  bool lets_in(std::uint8_t port, Pkey pkey) const;
  bool lets_out(std::uint8_t port, Pkey pkey) const;

  // --- links ---

  // True if the manager has not disabled the port, so that its link may come up.
  bool is_enabled(std::uint8_t port) const;
  // Brings up the link to a port of another node, if both have a width and a speed in common.
  void link_up(Time now, std::uint8_t port, const wire::PortInfo& neighbour);
  void link_down(Time now, std::uint8_t port);
  // Copies the PortInfo of the node whose agent is elsewhere, so that others can look at it here.
  void copy_port_info(std::uint8_t port, const wire::PortInfo& info) { ports_[port].info = info; }
  // Returns a port whose link a manager has enabled, disabled or restarted since it was last taken
  // here, and no_port if there is none. The driver takes such a link down and up again.
  std::uint8_t take_restarted_link();
  bool has_restarted_link() const;

  // --- packets ---

  // Handles a subnet management packet whose route ends at this node. `port` is where it came in; a
  // packet that the node itself sends is at the port whose QP0 sends it, which for a switch is 0.
  // An answer to a directed route has still to take its first step back.
  Outcome handle(Time now, Answer packet, std::uint8_t port);

  // --- events ---

  // Says whether a subnet manager runs at a port.
  void set_manager(Time now, std::uint8_t port, bool is_manager);
  // Returns true, once, if a manager has asked that a port's clients register again.
  bool take_reregistration(std::uint8_t port);
  // Writes a trap that is due, for the manager of the port that is returned. Returns nothing if
  // none is due.
  std::optional<std::uint8_t> take_trap(Time now, Answer packet);
  Time next_trap() const { return traps_.next(); }
  void rebase(Time by) {
    for (Port& port : ports_) tulle::rebase(by, port.key_lease_end);
    traps_.rebase(by);
  }

 private:
  static constexpr std::size_t arbitration_blocks = 4;  // two of low priority, two of high

  // Tables are kept as they are on the wire.
  struct Port {
    wire::PortInfo info;
    bool is_enabled = true;
    bool has_restarted_link = false;
    bool wants_reregistration = false;
    Time key_lease_end = Time::never();  // when the manager's key stops to protect the port
    std::vector<be16> pkeys;
    std::vector<be64> guids;
    // By input port; an adapter has one mapping. Each byte has the lanes of two service levels.
    std::vector<std::array<std::uint8_t, 8>> sl_to_vl;
    std::array<std::array<std::byte, wire::subnet_data_bytes>, arbitration_blocks> arbitration{};
  };
  // A block of a table; no bytes if the status is not ok.
  struct Block {
    std::span<std::byte> bytes;
    Status status = Status::invalid_value;
  };

  bool has_port(std::uint32_t port) const;
  bool has_partition(std::uint8_t port, Pkey pkey) const;
  bool may_ask(Time now, const wire::MadHeader& header, const wire::SubnetHeader& subnet,
               std::uint8_t port);
  std::uint32_t port_of_modifier(std::uint32_t modifier, std::uint8_t in_port) const;

  Status get(const wire::MadHeader& header, const wire::SubnetHeader& subnet, std::uint8_t in_port,
             std::span<std::byte> data);
  Status set(Time now, const wire::MadHeader& header, std::uint8_t in_port,
             std::span<const std::byte> data);
  Block block_at(const wire::MadHeader& header, std::uint8_t in_port);
  wire::NodeInfo node_info(std::uint8_t in_port) const;
  wire::PortInfo shown_port_info(std::uint32_t number, std::uint8_t in_port,
                                 std::uint64_t key) const;
  Status set_port_info(Time now, std::uint32_t number, const wire::PortInfo& wanted);
  Status set_link_states(Time now, std::uint8_t number, const wire::PortInfo& wanted);
  void set_addresses(std::uint8_t number, const wire::PortInfo& wanted);
  void set_link_limits(std::uint8_t number, const wire::PortInfo& wanted);
  void set_state(Time now, std::uint8_t port, wire::PortState state, wire::PhysicalState physical);
  Lid own_lid(std::uint8_t port) const;

  NodeSettings settings_;
  std::vector<Port> ports_;  // by number; an adapter does not use port 0
  ForwardingTables tables_;  // of a switch
  TrapSender traps_;
  std::uint32_t arbitration_writes_ = 0;
};

}  // namespace tulle::management::subnet
