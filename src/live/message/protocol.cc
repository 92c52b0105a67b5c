#include "live/message/protocol.h"

#include "live/message/framing.h"

namespace tulle::live {

template <typename Archive>
void fields(Archive& archive, DeviceChoice& choice) {
  archive(choice.name, choice.interfaces, choice.roce, choice.order);
}
template <typename Archive>
void fields(Archive& archive, GidEntry& entry) {
  archive(entry.gid, entry.interface_index, entry.interface, entry.is_roce_v1);
}
template <typename Archive>
void fields(Archive& archive, DeviceInfo& device) {
  archive(device.name, device.node_guid, device.mtu_bytes, device.port_active, device.gids);
}
template <typename Archive>
void fields(Archive& archive, Refused& message) {
  archive(message.reason);
}
template <typename Archive>
void fields(Archive&, Wait&) {}
template <typename Archive>
void fields(Archive& archive, Hello& message) {
  archive(message.purpose, message.command, message.device, message.ring_bytes, message.snap_length,
          message.slot, message.file, message.key_proof);
}
template <typename Archive>
void fields(Archive& archive, Devices& message) {
  archive(message.devices);
}
template <typename Archive>
void fields(Archive& archive, Opened& message) {
  archive(message.device, message.slot, message.first_qp, message.qp_count, message.port,
          message.is_relayed, message.seal_key_id);
}
template <typename Archive>
void fields(Archive& archive, Membership& message) {
  archive(message.slot, message.group, message.leaves);
}
template <typename Archive>
void fields(Archive& archive, MembershipChanged& message) {
  archive(message.error);
}
template <typename Archive>
void fields(Archive& archive, Rejoin& message) {
  archive(message.slot, message.command, message.choice, message.device, message.key_proof);
}
template <typename Archive>
void fields(Archive&, Accepted&) {}
template <typename Archive>
void fields(Archive& archive, AgentStatus& message) {
  archive(message.version, message.address, message.pid, message.uid, message.uptime_seconds,
          message.port, message.slots, message.listeners, message.counters);
}
template <typename Archive>
void fields(Archive& archive, ProcessStatus& message) {
  archive(message.pid, message.uid, message.command, message.device, message.slot, message.first_qp,
          message.qp_count, message.connected, message.counters, message.refusal);
}
template <typename Archive>
void fields(Archive&, End&) {}
template <typename Archive>
void fields(Archive& archive, StartCapture& message) {
  archive(message.snap_length);
}
template <typename Archive>
void fields(Archive&, StopCapture&) {}
template <typename Archive>
void fields(Archive& archive, CaptureSource& message) {
  archive(message.pid, message.command, message.device);
}
template <typename Archive>
void fields(Archive&, Publish&) {}
template <typename Archive>
void fields(Archive& archive, DeviceChanged& message) {
  archive(message.version, message.device);
}
template <typename Archive>
void fields(Archive& archive, GidsHeld& message) {
  archive(message.version, message.indices);
}
template <typename Archive>
void fields(Archive& archive, Attribute& message) {
  archive(message.is_readable, message.text);
}
template <typename Archive>
void fields(Archive&, Expose&) {}
template <typename Archive>
void fields(Archive& archive, PeerProcess& message) {
  archive(message.pid);
}

std::optional<MessageHeader> peek_header(std::span<const std::byte> bytes) {
  MessageHeader header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != message_magic) return std::nullopt;
  return header;
}

std::vector<std::byte> encode(Refused message) { return encoded(message); }
std::vector<std::byte> encode(Wait message) { return encoded(message); }
std::vector<std::byte> encode(Hello message) { return encoded(message); }
std::vector<std::byte> encode(Devices message) { return encoded(message); }
std::vector<std::byte> encode(Opened message) { return encoded(message); }
std::vector<std::byte> encode(Membership message) { return encoded(message); }
std::vector<std::byte> encode(MembershipChanged message) { return encoded(message); }
std::vector<std::byte> encode(Rejoin message) { return encoded(message); }
std::vector<std::byte> encode(Accepted message) { return encoded(message); }
std::vector<std::byte> encode(AgentStatus message) { return encoded(message); }
std::vector<std::byte> encode(ProcessStatus message) { return encoded(message); }
std::vector<std::byte> encode(End message) { return encoded(message); }
std::vector<std::byte> encode(StartCapture message) { return encoded(message); }
std::vector<std::byte> encode(StopCapture message) { return encoded(message); }
std::vector<std::byte> encode(CaptureSource message) { return encoded(message); }
std::vector<std::byte> encode(Publish message) { return encoded(message); }
std::vector<std::byte> encode(DeviceChanged message) { return encoded(message); }
std::vector<std::byte> encode(GidsHeld message) { return encoded(message); }
std::vector<std::byte> encode(Attribute message) { return encoded(message); }
std::vector<std::byte> encode(Expose message) { return encoded(message); }
std::vector<std::byte> encode(PeerProcess message) { return encoded(message); }

bool decode(std::span<const std::byte> bytes, Refused& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, Hello& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, Devices& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, Opened& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, Membership& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, MembershipChanged& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, Rejoin& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, AgentStatus& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, ProcessStatus& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, StartCapture& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, CaptureSource& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, DeviceChanged& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, GidsHeld& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, Attribute& message) {
  return decoded(bytes, message);
}
bool decode(std::span<const std::byte> bytes, Expose& message) { return decoded(bytes, message); }
bool decode(std::span<const std::byte> bytes, PeerProcess& message) {
  return decoded(bytes, message);
}

}  // namespace tulle::live
