#include "rsockets/sockets/datagram.h"

#include <arpa/inet.h>

#include <chrono>
#include <thread>

#include "rsockets/sockets/fake_device_test.h"

namespace tulle::rsockets {
namespace {

sockaddr_storage loopback(std::uint32_t host, std::uint16_t port) {
  sockaddr_storage out = {};
  auto& address = reinterpret_cast<sockaddr_in&>(out);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7F00'0000 + host);
  address.sin_port = port;
  return out;
}

class DatagramSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(handles_at_rest(), 0u);
    ASSERT_EQ(create_datagram(device_, AF_INET, socket_), 0);
    ASSERT_EQ(socket_->bind(loopback(1, 0)), 0);
    sockaddr_storage own = {};
    ASSERT_EQ(socket_->local_name(own), 0);
    port_ = reinterpret_cast<const sockaddr_in&>(own).sin_port;
  }
  ~DatagramSocketTest() override {
    if (socket_ != nullptr) socket_->close();
  }

  // Another program's datagram over UDP, from the same port of an address of its own.
  void hear(std::uint32_t host, std::span<const std::byte> bytes) const {
    const sockaddr_storage from = loopback(host, port_);
    const sockaddr_storage to = loopback(1, port_);
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(::sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                       sizeof to),
              static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  void greet(std::uint32_t host) const {
    const sockaddr_storage from = loopback(host, 0);
    hear(host, udp_header(reinterpret_cast<const sockaddr&>(from), 0x12, false).span());
  }
  // Returns the number of address handles once it has been the same for a while.
  std::size_t handles_at_rest() {
    std::size_t last = 0;
    for (int same = 0; same < 20;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      same = device_.handles == last ? same + 1 : 0;
      last = device_.handles;
    }
    return last;
  }

  FakeDevice& device_ = FakeDevice::instance();
  std::shared_ptr<Socket> socket_;
  std::uint16_t port_ = 0;
};

TEST_F(DatagramSocketTest, PeersAreRememberedUpToALimit) {
  for (std::uint32_t host = 2; host < 12; ++host) greet(host);
  EXPECT_EQ(handles_at_rest(), 10u);
  for (std::uint32_t host = 2; host < 12; ++host) greet(host);
  EXPECT_EQ(handles_at_rest(), 10u) << "they are known";
  for (std::uint32_t host = 12; host < 6000; ++host) {
    greet(host);
    // The kernel keeps a few hundred datagrams at most for a socket whose reader is slow.
    if (host % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::size_t handles = handles_at_rest();
  EXPECT_LE(handles, Datagram::peers_max);
  EXPECT_GT(handles, Datagram::peers_max / 2) << "the test reached the limit's neighbourhood";
}

TEST_F(DatagramSocketTest, OtherProgramsBytesAreNoDatagrams) {
  const std::vector<std::byte> bytes(40, std::byte{0x55});
  hear(2, bytes);
  hear(2, {});
  EXPECT_EQ(handles_at_rest(), 0u);
  EXPECT_EQ(socket_->ready(POLLIN), 0);
}

TEST_F(DatagramSocketTest, DataOverUdpIsRead) {
  const sockaddr_storage from = loopback(2, 0);
  const HeaderBytes header = udp_header(reinterpret_cast<const sockaddr&>(from), 0x12, true);
  std::vector<std::byte> bytes(header.span().begin(), header.span().end());
  for (const char each : std::string_view("hello")) bytes.push_back(static_cast<std::byte>(each));
  hear(2, bytes);
  std::string text(10, '\0');
  const iovec into = {text.data(), text.size()};
  std::size_t length = 0;
  sockaddr_storage sender = {};
  ASSERT_EQ(socket_->receive({&into, 1}, 0, &sender, length), 0);
  EXPECT_EQ(text.substr(0, length), "hello");
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(sender).sin_addr.s_addr, htonl(0x7F00'0002));
}

}  // namespace
}  // namespace tulle::rsockets
