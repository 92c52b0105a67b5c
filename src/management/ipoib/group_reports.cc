#include "management/ipoib/group_reports.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/big_endian.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::ipoib {
namespace {

using Reported = std::function<void(const Gid& group, bool joins)>;

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<std::uint8_t>(bytes[at]);
}

std::uint16_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  be16 word;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

// Reports an address of 4 or 16 bytes if it is a group's.
void report(std::span<const std::byte> address, bool joins, const Reported& reported) {
  Gid group = address.size() == sizeof(be32) ? Gid::from_ipv4(0) : Gid{};
  std::memcpy(group.bytes.data() + group.bytes.size() - address.size(), address.data(),
              address.size());
  if (group.is_multicast()) reported(group, joins);
}

// Reads the records of IGMPv3 (RFC 3376 §4.2) and MLDv2 (RFC 3810 §5.2), which differ in the length
// of an address.
void read_records(std::span<const std::byte> message, std::size_t address_bytes,
                  const Reported& reported) {
  constexpr std::size_t fixed = 8;         // bytes before the records
  constexpr std::size_t record_fixed = 4;  // type, length of auxiliary data, number of sources
  // Kinds of record that say that nothing is received from a group, unless sources are named.
  constexpr std::uint8_t is_include = 1;
  constexpr std::uint8_t to_include = 3;
  constexpr std::uint8_t block = 6;  // says nothing about the group itself
  constexpr std::size_t auxiliary_unit = 4;
  if (message.size() < fixed) return;
  std::size_t records = word_at(message, 6);
  for (auto rest = message.subspan(fixed); records > 0; --records) {
    if (rest.size() < record_fixed + address_bytes) return;
    const std::uint8_t kind = byte_at(rest, 0);
    const std::size_t sources = word_at(rest, 2);
    const std::size_t bytes =
        record_fixed + address_bytes * (1 + sources) + byte_at(rest, 1) * auxiliary_unit;
    const bool leaves = (kind == is_include || kind == to_include) && sources == 0;
    if (kind != block) report(rest.subspan(record_fixed, address_bytes), !leaves, reported);
    if (bytes > rest.size()) return;
    rest = rest.subspan(bytes);
  }
}

void read_igmp(std::span<const std::byte> message, const Reported& reported) {
  constexpr std::uint8_t report_v1 = 0x12, report_v2 = 0x16, leave_v2 = 0x17, report_v3 = 0x22;
  constexpr std::size_t group_at = 4;
  if (message.size() < group_at + sizeof(be32)) return;
  const std::uint8_t type = byte_at(message, 0);
  if (type == report_v3) return read_records(message, sizeof(be32), reported);
  if (type != report_v1 && type != report_v2 && type != leave_v2) return;
  report(message.subspan(group_at, sizeof(be32)), type != leave_v2, reported);
}

void read_mld(std::span<const std::byte> message, const Reported& reported) {
  constexpr std::uint8_t report_v1 = 131, done_v1 = 132, report_v2 = 143;
  constexpr std::size_t group_at = 8;
  if (message.empty()) return;
  const std::uint8_t type = byte_at(message, 0);
  if (type == report_v2) return read_records(message, sizeof(Gid::bytes), reported);
  if ((type != report_v1 && type != done_v1) || message.size() < group_at + sizeof(Gid::bytes))
    return;
  report(message.subspan(group_at, sizeof(Gid::bytes)), type == report_v1, reported);
}

}  // namespace

void read_group_reports(std::span<const std::byte> packet, const Reported& reported) {
  constexpr std::uint8_t igmp = 2, icmpv6 = 58, hop_by_hop = 0;
  constexpr std::size_t protocol_at = 9, next_header_at = 6, option_unit = 8;
  if (packet.empty()) return;
  const unsigned version = byte_at(packet, 0) >> 4;
  if (version == 4) {
    const std::size_t header = (byte_at(packet, 0) & 0xFu) * 4;
    if (header < wire::ipv4_header_bytes || packet.size() < header) return;
    if (byte_at(packet, protocol_at) == igmp) read_igmp(packet.subspan(header), reported);
    return;
  }
  if (version != 6 || packet.size() < wire::ipv6_header_bytes) return;
  std::uint8_t next = byte_at(packet, next_header_at);
  auto rest = packet.subspan(wire::ipv6_header_bytes);
  // A report has the option that asks routers to look at it (RFC 2710 §3).
  if (next == hop_by_hop) {
    if (rest.size() < option_unit) return;
    next = byte_at(rest, 0);
    rest = rest.subspan(std::min(rest.size(), (byte_at(rest, 1) + std::size_t{1}) * option_unit));
  }
  if (next == icmpv6) read_mld(rest, reported);
}

}  // namespace tulle::ipoib
