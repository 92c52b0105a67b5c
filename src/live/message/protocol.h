#pragma once

// The messages between programs and the host agent over a SOCK_SEQPACKET connection, one message a
// packet. Braces list the attached descriptors; store is the descriptor store.
//
//   list        Hello → Devices
//   open        Hello → Opened with {socket, counters, lock, store}   disconnecting frees the slot
//               A process of another user than the agent's gets {relay, counters} (relay.h).
//   membership  Membership → MembershipChanged                        of a process with a relay
//   rejoin      Rejoin with {store, counters} → Accepted              after an agent died
//   find_peer   Hello → PeerProcess with {table, doorbell}            for the direct path
//   status      Hello → AgentStatus, ProcessStatus …, End
//   capture     Hello → Accepted, CaptureSource with {ring} … until the connection ends
//   attribute   Hello → Attribute
//   connect     Hello → ChannelOpened with {events}, then commands (live/message/connection.h)
//
//   A process with a slot sends Expose with {table, doorbell}, and GidsHeld after a DeviceChanged.
//   A process may get StartCapture with {ring}, StopCapture, Publish and DeviceChanged at any time.
//   Refused replaces any answer; Wait precedes one that takes long.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/key_proof.h"
#include "live/message/codec.h"
#include "live/message/counters_page.h"
#include "live/message/device_info.h"

namespace tulle::live {

inline constexpr std::uint16_t protocol_version = 17;

enum class MessageKind : std::uint16_t {
  refused = 1,  // this number never changes
  wait = 2,
  hello = 3,
  devices = 4,
  opened = 5,
  rejoin = 6,
  accepted = 7,
  agent_status = 8,
  process_status = 9,
  end = 10,
  start_capture = 11,
  stop_capture = 12,
  capture_source = 13,
  publish = 14,
  expose = 15,
  peer = 16,
  channel_opened = 17,
  connection_command = 18,
  connection_reply = 19,
  connection_event = 20,
  device_changed = 21,
  gids_held = 22,
  attribute = 23,
  membership = 24,
  membership_changed = 25,
  // The messages of live/fabric/messages.h follow.
  fabric_hello = 64,
  host_port = 65,
  port_opened = 66,
  register_agent = 67,
  unregister_agent = 68,
  agent_registered = 69,
  datagram = 70,
  fabric_nodes = 71,
  fabric_end = 72,
  data_port_opened = 73,
  port_changed = 74,
  port_counters = 75,
  host_entered = 76,
  fabric_machines = 77,
};

enum class Purpose : std::uint8_t { list, open, status, capture, find_peer, connect, attribute };

struct Refused {
  static constexpr auto kind = MessageKind::refused;
  std::string reason;  // one line for a person
};
struct Wait {
  static constexpr auto kind = MessageKind::wait;
};
struct Hello {
  static constexpr auto kind = MessageKind::hello;
  Purpose purpose{};
  std::string command;           // the program's name
  DeviceChoice device;           // its name is that in the program
  std::uint32_t ring_bytes = 0;  // capture: size of each process's ring
  std::uint32_t snap_length = 0;
  std::uint32_t slot = 0;  // find_peer
  std::string file;        // attribute: file name as in live/message/port_attributes.h
  KeyProof key_proof{};    // connect: of the key that the program seals with
};
struct Devices {
  static constexpr auto kind = MessageKind::devices;
  std::vector<DeviceInfo> devices;
};
struct Opened {
  static constexpr auto kind = MessageKind::opened;
  DeviceInfo device;
  std::uint32_t slot = 0;
  std::uint32_t first_qp = 0;
  std::uint32_t qp_count = 0;
  std::uint16_t port = 0;
  bool is_relayed = false;
  std::uint16_t seal_key_id =
      0;  // of the key that the agent seals with; 0: its datagrams are plain
};
// Asks the agent to join or leave a multicast group with the socket of the process's slot.
struct Membership {
  static constexpr auto kind = MessageKind::membership;
  std::uint32_t slot = 0;
  Gid group;
  bool leaves = false;
};
struct MembershipChanged {
  static constexpr auto kind = MessageKind::membership_changed;
  std::int32_t error = 0;  // an errno
};
struct Rejoin {
  static constexpr auto kind = MessageKind::rejoin;
  std::uint32_t slot = 0;
  std::string command;
  DeviceChoice choice;
  DeviceInfo device;  // the device as the process knows it
  KeyProof key_proof{};
};
struct Accepted {
  static constexpr auto kind = MessageKind::accepted;
};
struct AgentStatus {
  static constexpr auto kind = MessageKind::agent_status;
  std::string version;
  std::string address;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t uptime_seconds = 0;
  std::uint16_t port = 0;
  std::uint32_t slots = 0;
  std::uint32_t listeners = 0;  // listeners of the connection manager
  // Counters of all processes together since the agent began, including processes that have gone.
  // The number of queue pairs counts only those that exist now.
  std::array<std::uint64_t, counter_names.size()> counters{};
};
struct ProcessStatus {
  static constexpr auto kind = MessageKind::process_status;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::string command;
  std::string device;
  std::uint32_t slot = 0;
  std::uint32_t first_qp = 0;
  std::uint32_t qp_count = 0;
  bool connected = true;
  std::array<std::uint64_t, counter_names.size()> counters{};
  std::string refusal;  // why a verb was refused last; empty: none was
};
struct End {
  static constexpr auto kind = MessageKind::end;
};
struct StartCapture {
  static constexpr auto kind = MessageKind::start_capture;
  std::uint32_t snap_length = 0;
};
struct StopCapture {
  static constexpr auto kind = MessageKind::stop_capture;
};
struct CaptureSource {
  static constexpr auto kind = MessageKind::capture_source;
  std::int32_t pid = 0;
  std::string command;
  std::string device;
};
struct Publish {
  static constexpr auto kind = MessageKind::publish;
};
// An interface went up or down, or an address came or went.
struct DeviceChanged {
  static constexpr auto kind = MessageKind::device_changed;
  std::uint32_t version = 0;  // version of the device's description
  DeviceInfo device;
};
// A line of a kernel's file. If it is not readable, a kernel fails to read the file (EINVAL).
struct Attribute {
  static constexpr auto kind = MessageKind::attribute;
  bool is_readable = false;
  std::string text;
};
// Tells the agent that the process has taken note of a version. A hole of the table must stay a
// hole while queue pairs or address handles of the process have the address that was there.
struct GidsHeld {
  static constexpr auto kind = MessageKind::gids_held;
  std::uint32_t version = 0;
  std::array<std::uint64_t, 4> indices{};  // bit n % 64 of word n / 64 is for GID index n
};

struct Expose {
  static constexpr auto kind = MessageKind::expose;
};
struct PeerProcess {
  static constexpr auto kind = MessageKind::peer;
  std::int32_t pid = 0;
};

std::vector<std::byte> encode(Refused message);
std::vector<std::byte> encode(Wait message);
std::vector<std::byte> encode(Hello message);
std::vector<std::byte> encode(Devices message);
std::vector<std::byte> encode(Opened message);
std::vector<std::byte> encode(Membership message);
std::vector<std::byte> encode(MembershipChanged message);
std::vector<std::byte> encode(Rejoin message);
std::vector<std::byte> encode(Accepted message);
std::vector<std::byte> encode(AgentStatus message);
std::vector<std::byte> encode(ProcessStatus message);
std::vector<std::byte> encode(End message);
std::vector<std::byte> encode(StartCapture message);
std::vector<std::byte> encode(StopCapture message);
std::vector<std::byte> encode(CaptureSource message);
std::vector<std::byte> encode(Publish message);
std::vector<std::byte> encode(DeviceChanged message);
std::vector<std::byte> encode(GidsHeld message);
std::vector<std::byte> encode(Attribute message);
std::vector<std::byte> encode(Expose message);
std::vector<std::byte> encode(PeerProcess message);

// Returns the header of a message, or nothing if the bytes are no message of Tulle's.
std::optional<MessageHeader> peek_header(std::span<const std::byte> bytes);

// Returns false unless the bytes are exactly one message of that kind and of this version.
bool decode(std::span<const std::byte> bytes, Refused& message);
bool decode(std::span<const std::byte> bytes, Hello& message);
bool decode(std::span<const std::byte> bytes, Devices& message);
bool decode(std::span<const std::byte> bytes, Opened& message);
bool decode(std::span<const std::byte> bytes, Membership& message);
bool decode(std::span<const std::byte> bytes, MembershipChanged& message);
bool decode(std::span<const std::byte> bytes, Rejoin& message);
bool decode(std::span<const std::byte> bytes, AgentStatus& message);
bool decode(std::span<const std::byte> bytes, ProcessStatus& message);
bool decode(std::span<const std::byte> bytes, StartCapture& message);
bool decode(std::span<const std::byte> bytes, CaptureSource& message);
bool decode(std::span<const std::byte> bytes, DeviceChanged& message);
bool decode(std::span<const std::byte> bytes, GidsHeld& message);
bool decode(std::span<const std::byte> bytes, Attribute& message);
bool decode(std::span<const std::byte> bytes, Expose& message);
bool decode(std::span<const std::byte> bytes, PeerProcess& message);

}  // namespace tulle::live
