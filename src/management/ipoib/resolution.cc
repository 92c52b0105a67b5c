#include "management/ipoib/resolution.h"

#include <algorithm>
#include <cstring>

#include "rdma/wire/internet_checksum.h"
#include "rdma/wire/ipv6.h"

namespace tulle::ipoib {
namespace {

using wire::IpoibArp;
using wire::NeighbourMessage;
using wire::NeighbourOption;

constexpr std::uint8_t icmpv6 = 58;         // next header (RFC 8200)
constexpr std::uint8_t hops_of_link = 255;  // what no router has passed on (RFC 4861 §7.1)
constexpr std::uint8_t protocol_bytes = 4;
constexpr std::size_t option_unit = 8;

template <typename T>
T read(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Returns the checksum of an ICMPv6 message, or 0 for one that has its checksum (RFC 4443 §2.3).
std::uint16_t checksum_of(const wire::Ipv6& ip, std::span<const std::byte> message) {
  wire::InternetChecksum sum;
  sum.add(bytes_of(ip.source));
  sum.add(bytes_of(ip.destination));
  sum.add(static_cast<std::uint16_t>(message.size()));
  sum.add(icmpv6);
  sum.add(message);
  return sum.value();
}

// Returns the address in the first option of this type.
std::optional<wire::IpoibAddress> find_address(std::span<const std::byte> options,
                                               std::uint8_t type) {
  while (options.size() >= option_unit) {
    const auto found = std::to_integer<std::uint8_t>(options[0]);
    const std::size_t bytes = std::to_integer<std::size_t>(options[1]) * option_unit;
    if (bytes == 0 || bytes > options.size()) return std::nullopt;
    if (found == type && bytes == sizeof(NeighbourOption)) {
      return read<NeighbourOption>(options).address;
    }
    options = options.subspan(bytes);
  }
  return std::nullopt;
}

WrittenMessage write_arp(std::uint16_t operation, const Gid& sender,
                         const wire::IpoibAddress& address, const Gid& target,
                         const wire::IpoibAddress& targets) {
  IpoibArp arp;
  arp.hardware = IpoibArp::infiniband;
  arp.protocol = wire::IpoibHeader::ipv4;
  arp.hardware_bytes = sizeof(wire::IpoibAddress);
  arp.protocol_bytes = protocol_bytes;
  arp.operation = operation;
  arp.sender = address;
  arp.sender_ip = sender.ipv4();
  arp.target = targets;
  arp.target_ip = target.ipv4();
  const auto bytes = bytes_of(arp);
  return {wire::IpoibHeader::arp, {bytes.begin(), bytes.end()}};
}

WrittenMessage write_neighbour_message(NeighbourMessage message, std::uint8_t option_type,
                                       const wire::IpoibAddress& address, const Gid& source,
                                       const Gid& destination) {
  NeighbourOption option;
  option.type = option_type;
  option.length = NeighbourOption::units;
  option.address = address;
  wire::Ipv6 ip;
  ip.version_class_flow = wire::Ipv6::version;
  ip.payload_length = sizeof(message) + sizeof(option);
  ip.next_header = icmpv6;
  ip.hop_limit = hops_of_link;
  ip.source = source.bytes;
  ip.destination = destination.bytes;
  WrittenMessage written{wire::IpoibHeader::ipv6, {}};
  written.bytes.resize(sizeof(ip) + sizeof(message) + sizeof(option));
  std::byte* const out = written.bytes.data();
  std::memcpy(out, &ip, sizeof(ip));
  std::memcpy(out + sizeof(ip), &message, sizeof(message));
  std::memcpy(out + sizeof(ip) + sizeof(message), &option, sizeof(option));
  message.checksum = checksum_of(ip, std::span(written.bytes).subspan(sizeof(ip)));
  std::memcpy(out + sizeof(ip), &message, sizeof(message));
  return written;
}

}  // namespace

std::optional<ResolutionMessage> read_arp(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(IpoibArp)) return std::nullopt;
  const auto arp = read<IpoibArp>(bytes);
  const bool is_known =
      arp.hardware == IpoibArp::infiniband && arp.protocol == wire::IpoibHeader::ipv4 &&
      arp.hardware_bytes == sizeof(wire::IpoibAddress) && arp.protocol_bytes == protocol_bytes &&
      (arp.operation == IpoibArp::request || arp.operation == IpoibArp::reply);
  if (!is_known || arp.sender_ip == 0) return std::nullopt;
  const Gid sender = Gid::from_ipv4(arp.sender_ip);
  if (sender.is_multicast()) return std::nullopt;
  return ResolutionMessage{arp.operation == IpoibArp::request, sender,
                           Gid::from_ipv4(arp.target_ip), arp.sender};
}

bool is_neighbour_message(std::span<const std::byte> packet) {
  if (packet.size() <= sizeof(wire::Ipv6)) return false;
  const auto ip = read<wire::Ipv6>(packet);
  const auto type = std::to_integer<std::uint8_t>(packet[sizeof(ip)]);
  return ip.next_header == icmpv6 &&
         (type == NeighbourMessage::solicitation || type == NeighbourMessage::advertisement);
}

// RFC 4861 §7.1 has what makes a message valid.
std::optional<ResolutionMessage> read_neighbour_message(std::span<const std::byte> packet) {
  constexpr std::size_t least = sizeof(wire::Ipv6) + sizeof(NeighbourMessage);
  if (packet.size() < least || !is_neighbour_message(packet)) return std::nullopt;
  const auto ip = read<wire::Ipv6>(packet);
  const std::size_t length = ip.payload_length;
  if (ip.hop_limit != hops_of_link || length < sizeof(NeighbourMessage) ||
      length > packet.size() - sizeof(ip)) {
    return std::nullopt;
  }
  const auto whole = packet.subspan(sizeof(ip), length);
  if (checksum_of(ip, whole) != 0) return std::nullopt;
  const auto message = read<NeighbourMessage>(whole);
  const bool asks = message.type == NeighbourMessage::solicitation;
  const ResolutionMessage heard{asks, {ip.source}, {message.target}, {}};
  const bool is_sensible = message.code == 0 && !heard.sender.is_multicast() &&
                           !heard.target.is_multicast() && heard.sender != Gid{};
  if (!is_sensible) return std::nullopt;
  const auto address = find_address(whole.subspan(sizeof(message)),
                                    asks ? NeighbourOption::source : NeighbourOption::target);
  if (!address) return std::nullopt;
  return ResolutionMessage{asks, heard.sender, heard.target, *address};
}

WrittenMessage write_question(const Gid& sender, const wire::IpoibAddress& address,
                              const Gid& target, const std::optional<wire::IpoibAddress>& known) {
  if (target.is_ipv4_mapped()) {
    return write_arp(IpoibArp::request, sender, address, target,
                     known.value_or(wire::IpoibAddress{}));
  }
  NeighbourMessage message;
  message.type = NeighbourMessage::solicitation;
  message.target = target.bytes;
  return write_neighbour_message(message, NeighbourOption::source, address, sender,
                                 known ? target : solicited_node_group(target));
}

WrittenMessage write_answer(const Gid& target, const wire::IpoibAddress& address, const Gid& asker,
                            const wire::IpoibAddress& askers) {
  if (target.is_ipv4_mapped()) {
    return write_arp(IpoibArp::reply, target, address, asker, askers);
  }
  NeighbourMessage message;
  message.type = NeighbourMessage::advertisement;
  message.flags = NeighbourMessage::solicited | NeighbourMessage::overrides;
  message.target = target.bytes;
  return write_neighbour_message(message, NeighbourOption::target, address, target, asker);
}

Gid solicited_node_group(const Gid& address) {
  constexpr std::size_t own_bytes = 13;  // ff02::1:ff00:0/104
  Gid group{{0xFF, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xFF}};
  std::copy(address.bytes.begin() + own_bytes, address.bytes.end(),
            group.bytes.begin() + own_bytes);
  return group;
}

}  // namespace tulle::ipoib
