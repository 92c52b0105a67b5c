#include "live/connections/request_addresses.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

using wire::cm::IpHello;

std::array<std::byte, 16> hello_address(const SocketAddress& address) {
  std::array<std::byte, 16> out{};
  if (address.family == AF_INET) {
    std::copy_n(address.address.begin(), 4, out.begin() + 12);
  } else {
    out = address.address;
  }
  return out;
}

SocketAddress hello_address(unsigned version, const std::array<std::byte, 16>& bytes,
                            std::uint16_t port) {
  SocketAddress address;
  address.family = version == 4 ? AF_INET : AF_INET6;
  address.port = port;
  if (version == 4) {
    std::copy_n(bytes.begin() + 12, 4, address.address.begin());
  } else {
    address.address = bytes;
  }
  return address;
}

}  // namespace

std::size_t hello_bytes(const SocketAddress& destination) {
  return destination.is_gid() ? 0 : sizeof(IpHello);
}

management::cm::PrivateData with_hello(const RequestAddresses& addresses,
                                       std::span<const std::byte> private_data) {
  const auto& [source, destination] = addresses;
  if (destination.is_gid()) return management::cm::PrivateData(private_data);
  IpHello hello;
  IpHello::IpVersion::set(hello.ip_version, destination.family == AF_INET ? 4 : 6);
  hello.source_port = source.port;
  hello.source = hello_address(source);
  hello.destination = hello_address(destination);
  management::cm::PrivateData data;
  std::memcpy(data.bytes.data(), &hello, sizeof(hello));
  std::copy(private_data.begin(), private_data.end(), data.bytes.begin() + sizeof(hello));
  data.size = static_cast<std::uint8_t>(sizeof(hello) + private_data.size());
  return data;
}

std::optional<RequestAddresses> read_addresses(const management::cm::Request& request) {
  IpHello hello;
  if (request.private_data.size < sizeof(hello)) return {};
  std::memcpy(&hello, request.private_data.bytes.data(), sizeof(hello));
  const unsigned version = IpHello::IpVersion::of(hello.ip_version);
  const bool is_known =
      IpHello::MajorVersion::of(hello.version) == 0 && (version == 4 || version == 6);
  if (!is_known) return {};
  const auto port = static_cast<std::uint16_t>(request.service_id & 0xFFFF);
  return RequestAddresses{hello_address(version, hello.source, hello.source_port),
                          hello_address(version, hello.destination, port)};
}

}  // namespace tulle::live
