#pragma once

// The messages between programs and the process of a software fabric, over a SOCK_SEQPACKET
// connection, one message a packet. Braces list the attached descriptors.
//
//   describe  FabricHello → HostPort
//   open      FabricHello → PortOpened {datagrams}, then RegisterAgent → AgentRegistered and
//             UnregisterAgent → AgentRegistered. `datagrams` carries Datagram both ways, a long one
//             with {bytes}.
//             Disconnecting closes the port.
//   data      FabricHello with {button} → DataPortOpened with {memory, button}, then PortChanged
//             whenever the port has. `memory` holds the rings for packets, and a button wakes the
//             other end (live/path/fabric/rings.h). Disconnecting frees the slot.
//   attribute FabricHello → Attribute (live/message/protocol.h)
//   connect   FabricHello → ChannelOpened with {events}, then commands (live/message/connection.h)
//   enter     FabricHello → HostEntered with {namespaces} of the host's IP network, or with none
//   capture   FabricHello → FabricEnd with {ring} (live/fabric/captures.h)
//   counters  FabricHello → PortCounters
//   status    FabricHello → FabricNodes, again and again, each for the next nodes
//   machines  FabricHello → FabricMachines
//   cut, join FabricHello with a cable → FabricEnd
//   stop      FabricHello → FabricEnd
//
// Refused replaces any answer.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "live/message/framing.h"

namespace tulle::live {

enum class FabricPurpose : std::uint8_t {
  describe,
  open,
  status,
  cut,
  join,
  stop,
  data,
  attribute,
  capture,
  counters,
  enter,
  connect,
  machines
};

struct FabricHello {
  static constexpr auto kind = MessageKind::fabric_hello;
  FabricPurpose purpose{};
  std::string host;                 // for those that are about one: its name
  std::array<std::string, 2> ends;  // cut, join: the ends of the cable, as "h0" or "leaf1:3"
  std::uint32_t first = 0;          // status: the first node to tell of
  std::string file;                 // attribute: as in live/message/port_attributes.h
  std::uint32_t ring_bytes = 0;     // capture
  std::uint32_t snap_length = 0;    // capture: most bytes of a packet; 0: all
  bool has_flow_control = false;    // capture: flow control packets, too
};
// A host's port, as a kernel shows it.
struct HostPort {
  static constexpr auto kind = MessageKind::host_port;
  std::uint64_t node_guid = 0;
  InfinibandPort port;
  std::string manager_file;  // a subnet manager holds this file open
};
// A program has a part of the host's port for data.
struct DataPortOpened {
  static constexpr auto kind = MessageKind::data_port_opened;
  HostPort port;
  std::uint32_t slot = 0;
  std::uint32_t first_qp = 0;
  std::uint32_t qp_count = 0;
};
// The subnet manager has changed the port, or its link has.
struct PortChanged {
  static constexpr auto kind = MessageKind::port_changed;
  InfinibandPort port;
  bool must_register_anew = false;  // PortInfo: ClientReregister
};
// The counters of a host's port, in the order of port_counter_names (IBTA 16.1.3.5, 16.1.4.11).
inline constexpr auto port_counter_names =
    std::to_array<std::string_view>({"port_xmit_data", "port_rcv_data", "port_xmit_packets",
                                     "port_rcv_packets", "port_xmit_discards", "link_downed"});
struct PortCounters {
  static constexpr auto kind = MessageKind::port_counters;
  std::array<std::uint64_t, port_counter_names.size()> values{};  // data in words of four bytes
};
// A program enters the attached namespaces in their order. None: the hosts share this machine's.
struct HostEntered {
  static constexpr auto kind = MessageKind::host_entered;
};
struct PortOpened {
  static constexpr auto kind = MessageKind::port_opened;
};
struct RegisterAgent {
  static constexpr auto kind = MessageKind::register_agent;
  std::uint8_t management_class = 0;
  std::uint8_t class_version = 0;
  std::uint32_t oui = 0;
  std::array<std::uint64_t, 2> methods{};  // bit m of both together: method m
  bool has_transactions = false;           // the fabric cuts and joins long datagrams
};
struct UnregisterAgent {
  static constexpr auto kind = MessageKind::unregister_agent;
  std::uint32_t agent = 0;
};
struct AgentRegistered {
  static constexpr auto kind = MessageKind::agent_registered;
  std::uint32_t agent = 0;
  std::int32_t error = 0;  // an errno
};
struct Datagram {
  static constexpr auto kind = MessageKind::datagram;
  std::uint32_t agent = 0;
  std::uint32_t status = 0;  // an errno; ETIMEDOUT: the program's own, which got no answer
  std::uint32_t timeout_milliseconds = 0;  // of one try; 0: no answer is expected
  std::uint32_t retries = 0;
  // To the fabric: where it goes. From the fabric: where it comes from.
  std::uint32_t qp = 0;
  std::uint32_t qkey = 0;
  std::uint16_t lid = 0;
  std::uint8_t service_level = 0;
  std::uint8_t path_bits = 0;
  std::uint16_t pkey_index = 0;
  std::vector<std::byte> bytes;  // empty if they are in a file
};
struct FabricPort {
  std::uint8_t number = 0;
  std::uint8_t state = 0;
  std::uint8_t physical_state = 0;
  std::uint32_t gigabits_per_second = 0;
  bool is_cut = false;
  std::string peer;  // the other end of the cable; empty: none
  std::uint8_t peer_port = 0;
};
// An interface of IP over InfiniBand.
struct FabricInterface {
  std::string name;
  bool is_running = false;  // packets can pass
  std::string problem;      // why it could not be made; empty: it was
};
struct FabricNode {
  std::string name;
  std::string machine;  // that has it; empty: the fabric has one machine
  std::string description;
  bool is_switch = false;
  bool is_manager = false;
  bool is_master = false;  // of the managers, the one that this node's port has as its own
  std::uint64_t guid = 0;
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint32_t programs = 0;   // that have the host's port open
  std::uint32_t listeners = 0;  // of librdmacm
  std::string address;          // of the host's IP network; empty: it shares this machine's
  std::vector<FabricInterface> interfaces;
  std::vector<FabricPort> ports;
};
struct FabricNodes {
  static constexpr auto kind = MessageKind::fabric_nodes;
  static constexpr std::uint32_t nodes_max = 8;  // of 254 ports each, they fit a message
  std::vector<FabricNode> nodes;                 // fewer than nodes_max: these were the last
  std::uint64_t discarded = 0;                   // datagrams that found no way
};
// A machine of a fabric that is spread over several.
struct FabricMachine {
  std::string name;
  std::string address;
  std::string state;  // for a person, as "connected"
};
struct FabricMachines {
  static constexpr auto kind = MessageKind::fabric_machines;
  std::vector<FabricMachine> machines;  // none: the fabric has one machine
};
struct FabricEnd {
  static constexpr auto kind = MessageKind::fabric_end;
};

template <typename Archive>
void fields(Archive& archive, FabricHello& m) {
  archive(m.purpose, m.host, m.ends, m.first, m.file, m.ring_bytes, m.snap_length,
          m.has_flow_control);
}
template <typename Archive>
void fields(Archive& archive, InfinibandPort& p) {
  archive(p.port_guid, p.gid_prefix, p.lid, p.lmc, p.sm_lid, p.sm_sl, p.state, p.physical_state,
          p.capability_mask, p.mtu_code, p.virtual_lanes_code, p.width, p.speed, p.extended_speed,
          p.gigabits_per_second, p.pkeys);
}
template <typename Archive>
void fields(Archive& archive, HostPort& m) {
  archive(m.node_guid, m.port, m.manager_file);
}
template <typename Archive>
void fields(Archive& archive, DataPortOpened& m) {
  archive(m.port, m.slot, m.first_qp, m.qp_count);
}
template <typename Archive>
void fields(Archive& archive, PortChanged& m) {
  archive(m.port, m.must_register_anew);
}
template <typename Archive>
void fields(Archive& archive, PortCounters& m) {
  archive(m.values);
}
template <typename Archive>
void fields(Archive&, HostEntered&) {}
template <typename Archive>
void fields(Archive&, PortOpened&) {}
template <typename Archive>
void fields(Archive& archive, RegisterAgent& m) {
  archive(m.management_class, m.class_version, m.oui, m.methods, m.has_transactions);
}
template <typename Archive>
void fields(Archive& archive, UnregisterAgent& m) {
  archive(m.agent);
}
template <typename Archive>
void fields(Archive& archive, AgentRegistered& m) {
  archive(m.agent, m.error);
}
template <typename Archive>
void fields(Archive& archive, Datagram& m) {
  archive(m.agent, m.status, m.timeout_milliseconds, m.retries, m.qp, m.qkey, m.lid,
          m.service_level, m.path_bits, m.pkey_index, m.bytes);
}
template <typename Archive>
void fields(Archive& archive, FabricPort& m) {
  archive(m.number, m.state, m.physical_state, m.gigabits_per_second, m.is_cut, m.peer,
          m.peer_port);
}
template <typename Archive>
void fields(Archive& archive, FabricInterface& m) {
  archive(m.name, m.is_running, m.problem);
}
template <typename Archive>
void fields(Archive& archive, FabricNode& m) {
  archive(m.name, m.machine, m.description, m.is_switch, m.is_manager, m.is_master, m.guid, m.lid,
          m.lmc, m.programs, m.listeners, m.address, m.interfaces, m.ports);
}
template <typename Archive>
void fields(Archive& archive, FabricMachine& m) {
  archive(m.name, m.address, m.state);
}
template <typename Archive>
void fields(Archive& archive, FabricNodes& m) {
  archive(m.nodes, m.discarded);
}
template <typename Archive>
void fields(Archive& archive, FabricMachines& m) {
  archive(m.machines);
}
template <typename Archive>
void fields(Archive&, FabricEnd&) {}

}  // namespace tulle::live
