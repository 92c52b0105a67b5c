#include "live/connections/request_addresses.h"

#include <gtest/gtest.h>

#include <array>

#include "rdma/wire/cm.h"

namespace tulle::live {
namespace {

SocketAddress socket_address(int family, std::uint8_t last, std::uint16_t port) {
  SocketAddress made;
  made.family = static_cast<std::uint16_t>(family);
  made.port = port;
  made.address[0] = std::byte{0x20};
  made.address[family == AF_INET ? 3 : 15] = std::byte{last};
  return made;
}

management::cm::Request request_with(const RequestAddresses& addresses) {
  const std::array data{std::byte{7}};
  management::cm::Request request;
  request.service_id = wire::cm::ip_service_id(0x106, addresses.destination.port);
  request.private_data = with_hello(addresses, data);
  return request;
}

TEST(RequestAddressesTest, ThePeerReadsWhatARequestNames) {
  for (const int family : {AF_INET, AF_INET6}) {
    const RequestAddresses named{socket_address(family, 1, 40'000), socket_address(family, 2, 80)};
    const auto request = request_with(named);
    EXPECT_EQ(request.private_data.size, hello_bytes(named.destination) + 1);
    EXPECT_EQ(request.private_data.span().back(), std::byte{7});
    const auto read = read_addresses(request);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->source, named.source);
    EXPECT_EQ(read->destination, named.destination);
  }
}

TEST(RequestAddressesTest, BetweenGidsThereIsNoHeader) {
  const auto address = SocketAddress::of(Gid::from_ipv4(0x0A00'0001), 80);
  EXPECT_EQ(hello_bytes(address), 0u);
  const auto request = request_with({address, address});
  EXPECT_EQ(request.private_data.size, 1);
  EXPECT_FALSE(read_addresses(request));
}

TEST(RequestAddressesTest, AnotherVersionIsNotRead) {
  const auto address = socket_address(AF_INET, 1, 80);
  auto request = request_with({address, address});
  request.private_data.bytes[0] = std::byte{0x10};  // the protocol's major version
  EXPECT_FALSE(read_addresses(request));
  request.private_data.bytes[0] = {};
  request.private_data.bytes[1] = std::byte{0x50};  // IP's
  EXPECT_FALSE(read_addresses(request));
}

}  // namespace
}  // namespace tulle::live
