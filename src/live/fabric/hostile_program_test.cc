// What a program does to take all of a fabric for itself.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/folder_test.h"
#include "fabric/subnet.h"
#include "live/bell.h"
#include "live/fabric/client.h"
#include "live/fabric/datagrams.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/fabric_process_test.h"
#include "live/message/connection.h"
#include "live/message/exiting_threads.h"
#include "live/message/lingering_test.h"
#include "live/message/socket.h"
#include "live/path/fabric/rings.h"
#include "rdma/wire/mad.h"
#include "rdma/wire/rmpp.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int descriptors_of_message = 253;

class HostileProgramTest : public testing::Test {
 protected:
  void SetUp() override { begin(0); }
  void begin(rlim_t descriptors) {
    allow_descriptors(4'000);
    FabricOptions options;
    options.folder = folder_;
    options.topology = *fabric::single_switch({2, {}});
    options.has_manager = true;
    child_ = start(options, descriptors);
    ASSERT_GT(child_, 0);
  }
  void TearDown() override { stop(child_); }

  FabricPlace place(const std::string& host) const { return {fabric_socket(folder_), host}; }
  bool is_well() { return static_cast<bool>(describe_host(place("h0"))); }
  UniqueFd connect() { return connect_once_there_is_room(fabric_socket(folder_)); }
  static std::vector<std::byte> hello(FabricPurpose purpose) {
    FabricHello hello;
    hello.purpose = purpose;
    hello.host = "h0";
    return encoded(hello);
  }
  Result<FabricDataPort> open_for_data() {
    auto bell = create_bell();
    return open_data_port(place("h0"), bell->button.get());
  }
  // Returns why the fabric ends a connection. Empty: it says nothing. None: it does not end it.
  static std::optional<std::string> end_of(int connection) {
    std::string reason;
    for (;;) {
      auto message = await_message(connection, 5'000);
      if (!message && message.error().error_number == ECONNRESET) return reason;
      if (!message) return std::nullopt;
      Refused refused;
      if (decode(message->bytes, refused)) reason = refused.reason;
    }
  }
  // A datagram of a class of vendors, to the port of h0.
  Datagram long_datagram(std::uint8_t vendor_class, std::size_t bytes) const {
    Datagram datagram;
    datagram.lid = describe_host(place("h0"))->port.lid;
    datagram.qp = 1;
    datagram.qkey = 0x80010000;
    datagram.bytes.resize(bytes);
    wire::MadHeader header;
    header.management_class = vendor_class;
    header.class_version = 1;
    header.method = 3;
    std::memcpy(datagram.bytes.data(), &header, sizeof header);
    datagram.bytes[wire::rmpp_header_offset] = std::byte{1};
    datagram.bytes[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
    datagram.bytes[39] = std::byte{1};  // the vendor
    return datagram;
  }
  static void set_transaction(Datagram& datagram, std::uint64_t number) {
    wire::MadHeader header;
    std::memcpy(&header, datagram.bytes.data(), sizeof header);
    header.transaction_id = number;
    std::memcpy(datagram.bytes.data(), &header, sizeof header);
  }
  // Leaves descriptors with the fabric that wait behind one that closes slowly.
  void leave_open(int messages) {
    const UniqueFd first = connect();
    int status = 0;
    kill(child_, SIGSTOP);  // it must not close its descriptor before this process does
    ASSERT_EQ(waitpid(child_, &status, WUNTRACED), child_);
    // The fabric takes the first message, and ends the connection.
    for (int i = 0; i < 2; ++i) {
      Lingering lingering = linger_for(60);
      EXPECT_TRUE(lingering.own);
      const std::array<int, 1> slow = {lingering.own.get()};
      EXPECT_TRUE(send_message(first.get(), hello(FabricPurpose::describe), slow));
      peers_.push_back(std::move(lingering.peer));
    }
    kill(child_, SIGCONT);
    ASSERT_TRUE(end_of(first.get()));
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const std::vector<int> many(descriptors_of_message, null.get());
    for (int i = 0; i < messages; ++i) {
      const UniqueFd next = connect();
      ASSERT_TRUE(send_message(next.get(), hello(FabricPurpose::describe), many));
      ASSERT_TRUE(end_of(next.get()));
    }
  }

  Folder files_;
  std::string folder_ = files_.path("fabric");
  pid_t child_ = -1;
  std::vector<UniqueFd> peers_;
};

TEST_F(HostileProgramTest, WhoeverRingsWithDescriptorsIsEnded) {
  auto port = open_for_data();
  ASSERT_TRUE(port);
  const std::array<std::byte, 1> ring{};
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 1> one = {null.get()};
  ASSERT_TRUE(send_message(port->button.get(), ring));
  EXPECT_TRUE(is_well());
  ASSERT_TRUE(send_message(port->button.get(), ring, one));
  EXPECT_EQ(end_of(port->connection.get()), "");
  EXPECT_TRUE(is_well());
}

// A descriptor that lingers keeps only usual threads waiting. The fabric has no others if all the
// lowest numbers are taken.
class HostileProgramUsualThreadsTest : public HostileProgramTest {
  ExitingThreads taken_;
};

TEST_F(HostileProgramUsualThreadsTest, RingsOfAProcessThatLeavesManyOpenAreNotRead) {
  auto port = open_for_data();
  ASSERT_TRUE(port);
  leave_open(1'024 / descriptors_of_message + 1);
  const std::array<std::byte, 1> ring{};
  ASSERT_TRUE(send_message(port->button.get(), ring));
  EXPECT_EQ(end_of(port->connection.get()),
            "too many descriptors of this process are not closed yet");
}

TEST_F(HostileProgramTest, WhoeverSendsDescriptorsThatNobodyTakesIsEnded) {
  const UniqueFd first = connect();
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 1> one = {null.get()};
  ASSERT_TRUE(send_message(first.get(), hello(FabricPurpose::describe), one));
  EXPECT_EQ(end_of(first.get()), "a message with descriptors that nobody takes");
  EXPECT_TRUE(is_well());
}

// A quarter of what the fabric's process may have, of all programs together.
class FewDescriptorsTest : public HostileProgramTest {
 protected:
  void SetUp() override { begin(2'048); }
};

class FewDescriptorsUsualThreadsTest : public FewDescriptorsTest {
  ExitingThreads taken_;
};

TEST_F(FewDescriptorsUsualThreadsTest, TheDescriptorsOfAllProgramsAreBounded) {
  const UniqueFd early = connect();
  EXPECT_TRUE(open_for_data());
  leave_open(512 / descriptors_of_message + 1);
  auto refused = open_for_data();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "too many descriptors that came to this fabric are not closed yet");
  EXPECT_TRUE(is_well()) << "messages without any are read";
  ASSERT_TRUE(send_message(early.get(), hello(FabricPurpose::describe)));
  EXPECT_TRUE(await_message(early.get(), 5'000));
  peers_.clear();
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  bool is_open = false;
  while (!is_open && Clock::now() < deadline) is_open = static_cast<bool>(open_for_data());
  EXPECT_TRUE(is_open);
}

// Connections end with unread messages while a descriptor of the same process closes slowly.
TEST_F(FewDescriptorsTest, ConnectionsThatEndDoNotPileUp) {
  leave_open(1);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::array<int, 1> one = {null.get()};
  std::ptrdiff_t most = 0;
  for (int i = 0; i < 2'200; ++i) {
    const UniqueFd next = connect();
    for (int n = 0; n < 3; ++n) {
      static_cast<void>(send_message(next.get(), hello(FabricPurpose::describe), one));
    }
    ASSERT_TRUE(end_of(next.get())) << i;
    const std::filesystem::directory_iterator files("/proc/" + std::to_string(child_) + "/fd");
    if (i % 20 == 0) most = std::max(most, std::distance(std::filesystem::begin(files), {}));
  }
  EXPECT_TRUE(is_well());
  EXPECT_LT(most, 1'200) << "a quarter of 2,048 may be unclosed, and another one being closed";
}

int unread_bytes(int socket) {
  int bytes = 0;
  EXPECT_EQ(ioctl(socket, FIONREAD, &bytes), 0);
  return bytes;
}

// The files of long datagrams would take the fabric's memory otherwise.
TEST_F(HostileProgramTest, LongDatagramsThatNobodyReadsAreLost) {
  constexpr std::size_t bytes = 9u << 20;
  constexpr int fitting = 14;  // of 128 MiB
  auto receiver = FabricPortClient::open(place("h0"));
  auto sender = FabricPortClient::open(place("h0"));
  ASSERT_TRUE(receiver && sender);
  constexpr std::uint8_t vendor_class = 0x32;
  ASSERT_TRUE(receiver->add({vendor_class, 1, 1, {~0ull, ~0ull}, true}));
  auto agent = sender->add({vendor_class, 1, 1, {}, true});
  ASSERT_TRUE(agent);
  Datagram datagram = long_datagram(vendor_class, bytes);
  datagram.agent = *agent;
  const int socket = receiver->descriptor();
  const auto arrives = [&](std::uint64_t number, std::chrono::seconds time) {
    const int before = unread_bytes(socket);
    set_transaction(datagram, number);
    EXPECT_TRUE(send_datagram(sender->descriptor(), datagram));
    const auto deadline = Clock::now() + time;
    while (unread_bytes(socket) == before && Clock::now() < deadline) usleep(1'000);
    return unread_bytes(socket) != before;
  };
  std::uint64_t number = 0;
  for (int i = 0; i < fitting; ++i) ASSERT_TRUE(arrives(++number, std::chrono::seconds(60))) << i;
  EXPECT_FALSE(arrives(++number, std::chrono::seconds(3)));
  for (int i = 0; i < fitting; ++i) ASSERT_TRUE(receive_datagram(socket)) << i;
  EXPECT_FALSE(receive_datagram(socket));
  EXPECT_TRUE(arrives(++number, std::chrono::seconds(60))) << "it reads again";
}

// A program ends its connection, and keeps the socket with what it has not read.
TEST_F(HostileProgramTest, LongDatagramsThatNobodyReadsCountAfterTheirSession) {
  constexpr std::size_t bytes = 9u << 20;
  constexpr std::uint64_t fitting = 14;  // of 128 MiB
  constexpr std::uint8_t vendor_class = 0x32;
  auto sender = FabricPortClient::open(place("h0"));
  ASSERT_TRUE(sender);
  auto agent = sender->add({vendor_class, 1, 1, {}, true});
  ASSERT_TRUE(agent);
  Datagram datagram = long_datagram(vendor_class, bytes);
  datagram.agent = *agent;
  std::vector<UniqueFd> kept;
  const auto arrives = [&](std::uint64_t number, std::chrono::seconds time) {
    auto receiver = FabricPortClient::open(place("h0"));
    EXPECT_TRUE(receiver && receiver->add({vendor_class, 1, 1, {~0ull, ~0ull}, true}));
    if (!receiver) return false;
    kept.emplace_back(fcntl(receiver->descriptor(), F_DUPFD_CLOEXEC, 0));
    set_transaction(datagram, number);
    EXPECT_TRUE(send_datagram(sender->descriptor(), datagram));
    const auto deadline = Clock::now() + time;
    while (unread_bytes(kept.back().get()) == 0 && Clock::now() < deadline) usleep(1'000);
    return unread_bytes(kept.back().get()) != 0;
  };
  for (std::uint64_t i = 1; i <= fitting; ++i) {
    ASSERT_TRUE(arrives(i, std::chrono::seconds(60))) << i;
  }
  EXPECT_FALSE(arrives(fitting + 1, std::chrono::seconds(3)));
  kept.clear();
  EXPECT_TRUE(arrives(fitting + 2, std::chrono::seconds(60)));
}

}  // namespace
}  // namespace tulle::live
