#include "shim/rsockets/sockets/datagram.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "shim/rsockets/sockets/fake_device_test.h"
#include "shim/rsockets/sockets/poll.h"

namespace tulle::rsockets {
namespace {

using namespace std::chrono_literals;

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

  // The service does not know of a socket that is bound in this way.
  void unwatched_bind() const {
    const sockaddr_storage address = loopback(1, port_);
    EXPECT_EQ(::bind(socket_->fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
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
  void say(std::uint32_t host, std::string_view data) const {
    const sockaddr_storage from = loopback(host, 0);
    const HeaderBytes header = udp_header(reinterpret_cast<const sockaddr&>(from), 0x12, true);
    std::vector<std::byte> bytes(header.span().begin(), header.span().end());
    for (const char each : data) bytes.push_back(static_cast<std::byte>(each));
    hear(host, bytes);
  }
  int send(std::uint32_t host, std::string_view data) const {
    const sockaddr_storage to = loopback(host, port_);
    const iovec from = {const_cast<char*>(data.data()), data.size()};
    std::size_t length = 0;
    return socket_->send({&from, 1}, 0, &to, length);
  }
  std::string listen(sockaddr_storage* sender = nullptr) {
    std::string text(10, '\0');
    const iovec into = {text.data(), text.size()};
    std::size_t length = 0;
    EXPECT_EQ(socket_->receive({&into, 1}, 0, sender, length), 0);
    return text.substr(0, length);
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
  say(2, "hello");
  sockaddr_storage sender = {};
  EXPECT_EQ(listen(&sender), "hello");
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(sender).sin_addr.s_addr, htonl(0x7F00'0002));
}

TEST_F(DatagramSocketTest, WhoNeverAnswersHoldsNobodyUp) {
  device_.ways.are_slow = true;
  for (std::uint32_t host = 2; host < 12; ++host) greet(host);
  say(20, "hello");
  EXPECT_EQ(listen(), "hello");
  EXPECT_EQ(device_.handles, 0u) << "the ways to the others were waited for";
  device_.ways.are_slow = false;
  EXPECT_EQ(handles_at_rest(), 11u);
}

// The way to a peer that asks for a connection may be looked for in vain, too. Each is answered
// once the ways are found.
TEST_F(DatagramSocketTest, AnswersThatTakeLongHoldNobodyUp) {
  std::shared_ptr<Socket> listener;
  ASSERT_EQ(create_stream(device_, AF_INET, listener), 0);
  ASSERT_EQ(listener->bind(loopback(1, htons(7))), 0);
  ASSERT_EQ(listener->listen(1'000), 0);
  device_.network.accepts_slowly = true;
  std::vector<std::shared_ptr<Socket>> peers(400);
  for (auto& each : peers) {
    ASSERT_EQ(create_stream(device_, AF_INET, each), 0);
    each->set_flags(O_NONBLOCK);
    ASSERT_EQ(each->connect(loopback(1, htons(7))), EINPROGRESS);
  }
  say(20, "hello");
  EXPECT_EQ(listen(), "hello");
  EXPECT_EQ(listener->ready(POLLIN), 0) << "an answer was waited for";
  device_.network.accepts_slowly = false;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    std::shared_ptr<Socket> accepted;
    ASSERT_EQ(listener->accept(accepted), 0);
    accepted->close();
  }
  for (const auto& each : peers) each->close();
  listener->close();
}

TEST_F(DatagramSocketTest, AWayThatWasNotFoundIsNotLookedForAtOnce) {
  device_.ways.are_unknown = true;
  device_.ways.asked = 0;
  const Clock::time_point began = Clock::now();
  for (int i = 0; i < 50; ++i) {
    say(2, "hello");
    EXPECT_EQ(listen(), "hello");
  }
  for (int i = 0; i < 10'000 && device_.ways.asked == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(Clock::now() - began);
  EXPECT_GE(device_.ways.asked, 1u);
  EXPECT_LE(device_.ways.asked, static_cast<std::size_t>(seconds.count()));
  device_.ways.are_unknown = false;
}

TEST_F(DatagramSocketTest, ATurnOfTheServiceTakesABoundedNumber) {
  socket_->close();
  ASSERT_EQ(create_datagram(device_, AF_INET, socket_), 0);
  unwatched_bind();
  for (std::uint32_t host = 2; host < 102; ++host) greet(host);
  socket_->on_readable();
  EXPECT_EQ(handles_at_rest(), 64u);
  socket_->on_readable();
  EXPECT_EQ(handles_at_rest(), 100u);
}

// A socket whose send buffer is full, as that of a UDP socket whose datagrams wait for a neighbour
// that does not exist. A SOCK_SEQPACKET takes sends to any address.
class FullSocket {
 public:
  FullSocket() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_.data()), 0);
    while (::send(ends_[0], "x", 1, MSG_DONTWAIT) > 0) ++waiting_;
  }
  ~FullSocket() {
    for (const int fd : ends_) ::close(fd);
  }
  FullSocket(const FullSocket&) = delete;
  FullSocket& operator=(const FullSocket&) = delete;

  int waiting() const { return waiting_; }
  void replace(const Socket& socket) const {
    EXPECT_EQ(dup3(ends_[0], socket.fd(), O_CLOEXEC), socket.fd());
  }
  // Returns the number of datagrams that were there, up to a maximum.
  int drain(int max = 10'000) const {
    char ignored = 0;
    int count = 0;
    while (count<max&& ::recv(ends_[1], &ignored, sizeof ignored, MSG_DONTWAIT)> 0) ++count;
    return count;
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
  int waiting_ = 0;  // datagrams
};

TEST_F(DatagramSocketTest, AnAnswerThatFindsNoRoomIsDropped) {
  for (const int room : {0, 5}) {
    socket_->close();
    ASSERT_EQ(create_datagram(device_, AF_INET, socket_), 0);
    unwatched_bind();
    say(2, "hello");
    const FullSocket full;
    EXPECT_EQ(full.drain(room), room);
    // The datagram is received by then, and the answer is not sent yet.
    device_.when_a_queue_is_made = [this, &full] { full.replace(*socket_); };
    auto turn = std::async(std::launch::async, [this] { socket_->on_readable(); });
    EXPECT_EQ(turn.wait_for(5s), std::future_status::ready) << "the answer waits for room";
    EXPECT_EQ(full.drain(), full.waiting() - room) << "the last room is the program's";
    turn.get();
    device_.when_a_queue_is_made = nullptr;
    EXPECT_EQ(listen(), "hello");
  }
}

TEST_F(DatagramSocketTest, ASendThatWaitsForRoomHoldsNobodyUp) {
  const FullSocket full;
  full.replace(*socket_);
  auto sent = std::async(std::launch::async, [this] { return send(2, "hello"); });
  EXPECT_EQ(sent.wait_for(50ms), std::future_status::timeout);
  auto asked = std::async(std::launch::async, [this] { return socket_->ready(POLLIN); });
  EXPECT_EQ(asked.wait_for(5s), std::future_status::ready) << "the lock is held";
  full.drain();
  EXPECT_EQ(asked.get(), 0);
  EXPECT_EQ(sent.get(), 0);
}

TEST_F(DatagramSocketTest, ASendThatWaitsForRoomEndsWithTheSocket) {
  const FullSocket full;
  full.replace(*socket_);
  auto sent = std::async(std::launch::async, [this] { return send(2, "hello"); });
  EXPECT_EQ(sent.wait_for(50ms), std::future_status::timeout);
  auto shut = std::async(std::launch::async, [this] { return socket_->shutdown(SHUT_RDWR); });
  EXPECT_EQ(sent.wait_for(5s), std::future_status::ready);
  full.drain();
  EXPECT_EQ(sent.get(), EPIPE);
  EXPECT_EQ(shut.get(), 0);
}

TEST_F(DatagramSocketTest, ASocketThatNeverBlocksHearsOfRoom) {
  ASSERT_EQ(socket_->set_flags(O_NONBLOCK), 0);
  const FullSocket full;
  full.replace(*socket_);
  auto sent = std::async(std::launch::async, [this] { return send(2, "hello"); });
  const bool waits = sent.wait_for(5s) != std::future_status::ready;
  EXPECT_FALSE(waits) << "the send waits for room";
  EXPECT_EQ(waits ? 0 : socket_->ready(POLLOUT), 0);
  full.drain();
  EXPECT_EQ(sent.get(), EAGAIN);
  add_socket(socket_);
  pollfd waiting = {socket_->fd(), POLLOUT, 0};
  int count = 0;
  EXPECT_EQ(poll_sockets({&waiting, 1}, 10'000, count), 0);
  EXPECT_EQ(waiting.revents, POLLOUT);
  remove_socket(socket_->fd());
  EXPECT_EQ(send(2, "hello"), 0);
}

// Sends an ICMP error about a datagram of the port to the other: RFC 792, "communication
// administratively prohibited".
void prohibit(std::uint16_t from_port, std::uint32_t to_host, std::uint16_t to_port) {
  struct Message {
    icmphdr header;
    iphdr about;
    udphdr udp;
  } message{};
  message.header.type = ICMP_DEST_UNREACH;
  message.header.code = ICMP_PKT_FILTERED;
  message.about.version = 4;
  message.about.ihl = 5;
  message.about.ttl = 64;
  message.about.protocol = IPPROTO_UDP;
  message.about.tot_len = htons(sizeof message.about + sizeof message.udp);
  message.about.saddr = htonl(0x7F00'0001);
  message.about.daddr = htonl(0x7F00'0000 + to_host);
  message.udp.source = from_port;
  message.udp.dest = to_port;
  message.udp.len = htons(sizeof message.udp);
  std::array<std::uint16_t, sizeof message / 2> words{};
  std::memcpy(words.data(), &message, sizeof message);
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  message.header.checksum = static_cast<std::uint16_t>(~sum);
  const int fd = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
  if (fd < 0) GTEST_SKIP() << "raw sockets are root's";
  const sockaddr_storage target = loopback(1, 0);
  EXPECT_GT(::sendto(fd, &message, sizeof message, 0, reinterpret_cast<const sockaddr*>(&target),
                     sizeof(sockaddr_in)),
            0);
  ::close(fd);
}

TEST_F(DatagramSocketTest, AnErrorOnTheWayDoesNotEndTheSocket) {
  ASSERT_EQ(socket_->connect(loopback(2, port_)), 0);
  prohibit(port_, 2, port_);
  if (IsSkipped()) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  say(2, "hello");
  EXPECT_EQ(listen(), "hello");
}

}  // namespace
}  // namespace tulle::rsockets
