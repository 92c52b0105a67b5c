#include "shim/rsockets/protocol/datagram.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tulle::rsockets {
namespace {

constexpr std::uint8_t version_ipv4 = 4;
constexpr std::uint8_t version_ipv6 = 6;
constexpr std::uint32_t qp_number_mask = 0xFF'FFFF;

template <typename Address>
Address as(const sockaddr& address) {
  Address out;
  std::memcpy(&out, &address, sizeof out);
  return out;
}

template <typename Header>
HeaderBytes to_bytes(const Header& header) {
  HeaderBytes out;
  std::memcpy(out.bytes.data(), &header, sizeof header);
  out.length = header.length;
  return out;
}

// Returns false if the bytes do not begin with such a header, of the length that its version has.
template <typename Header>
bool read_header(std::span<const std::byte> bytes, std::size_t ipv4_bytes, std::size_t ipv6_bytes,
                 Header& header) {
  if (bytes.size() < ipv4_bytes) return false;
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  const bool is_ipv4 = header.version == version_ipv4 && header.length == ipv4_bytes;
  const bool is_ipv6 = header.version == version_ipv6 && header.length == ipv6_bytes;
  return (is_ipv4 || is_ipv6) && bytes.size() >= header.length;
}

}  // namespace

HeaderBytes datagram_header(const sockaddr& sender) {
  TULLE_CHECK(sender.sa_family == AF_INET || sender.sa_family == AF_INET6);
  DatagramHeader header;
  if (sender.sa_family == AF_INET) {
    const auto from = as<sockaddr_in>(sender);
    header.version = version_ipv4;
    header.length = datagram_header_ipv4_bytes;
    header.port = ntohs(from.sin_port);
    std::memcpy(header.address.data(), &from.sin_addr, sizeof from.sin_addr);
  } else {
    const auto from = as<sockaddr_in6>(sender);
    header.version = version_ipv6;
    header.length = datagram_header_ipv6_bytes;
    header.port = ntohs(from.sin6_port);
    std::memcpy(header.address.data(), &from.sin6_flowinfo, sizeof from.sin6_flowinfo);
    std::memcpy(header.address.data() + sizeof from.sin6_flowinfo, &from.sin6_addr,
                sizeof from.sin6_addr);
  }
  return to_bytes(header);
}

HeaderBytes udp_header(const sockaddr& sender, std::uint32_t qp_number, bool has_data) {
  TULLE_CHECK(sender.sa_family == AF_INET || sender.sa_family == AF_INET6);
  UdpHeader header;
  header.operation = static_cast<std::uint8_t>(has_data ? MessageType::data : MessageType::control);
  header.qp_number = qp_number;
  if (sender.sa_family == AF_INET) {
    const auto from = as<sockaddr_in>(sender);
    header.version = version_ipv4;
    header.length = udp_header_ipv4_bytes;
    std::memcpy(header.address.data(), &from.sin_addr, sizeof from.sin_addr);
  } else {
    const auto from = as<sockaddr_in6>(sender);
    header.version = version_ipv6;
    header.length = udp_header_ipv6_bytes;
    std::memcpy(header.address.data(), &from.sin6_addr, sizeof from.sin6_addr);
  }
  return to_bytes(header);
}

std::optional<ReceivedDatagram> read_datagram(std::span<const std::byte> bytes) {
  DatagramHeader header;
  if (!read_header(bytes, datagram_header_ipv4_bytes, datagram_header_ipv6_bytes, header)) {
    return std::nullopt;
  }
  ReceivedDatagram out;
  out.data = bytes.subspan(header.length);
  if (header.version == version_ipv4) {
    auto& from = reinterpret_cast<sockaddr_in&>(out.sender);
    from.sin_family = AF_INET;
    from.sin_port = htons(header.port);
    std::memcpy(&from.sin_addr, header.address.data(), sizeof from.sin_addr);
  } else {
    auto& from = reinterpret_cast<sockaddr_in6&>(out.sender);
    from.sin6_family = AF_INET6;
    from.sin6_port = htons(header.port);
    std::memcpy(&from.sin6_addr, header.address.data() + sizeof from.sin6_flowinfo,
                sizeof from.sin6_addr);
  }
  return out;
}

std::optional<ReceivedOverUdp> read_udp(std::span<const std::byte> bytes, sa_family_t family) {
  UdpHeader header;
  if (!read_header(bytes, udp_header_ipv4_bytes, udp_header_ipv6_bytes, header)) {
    return std::nullopt;
  }
  const bool is_ipv4 = header.version == version_ipv4;
  if (header.tag != udp_tag || family != (is_ipv4 ? AF_INET : AF_INET6)) return std::nullopt;
  ReceivedOverUdp out;
  out.qp_number = header.qp_number & qp_number_mask;
  out.has_data = header.operation == static_cast<std::uint8_t>(MessageType::data);
  out.data = bytes.subspan(header.length);
  return out;
}

}  // namespace tulle::rsockets
