// Tests of what two devices exchange, and of one alone.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "base/folder_test.h"
#include "live/path/packets/capture_ring.h"
#include "live/process/agent_client.h"
#include "live/process/two_devices_test.h"

namespace tulle::live {
namespace {

TEST_F(DeviceTest, WritesAndReadsOverIpv4) { exchange(0, true, 4 << 20); }
TEST_F(DeviceTest, WritesAndReadsOverIpv6) { exchange(1, true, 4 << 20); }
TEST_F(DeviceTest, TheThreadMakesProgressAlone) { exchange(0, false, 1 << 20); }
// Programs count on that with timers of a second or more.
TEST_F(DeviceTest, RetriesTakeTheirNominalTime) {
  const DeviceEnd end("tulle0");
  ASSERT_TRUE(end.device);
  const auto lock = end.device->lock();
  const auto& recovery = end.device->adapter().configuration().recovery;
  EXPECT_LT(recovery.backed_off_timeout_max, transport::ack_timeout(18));
}

TEST_F(DeviceTest, WithoutOffload) {
  setenv("TULLE_OFFLOAD", "off", 1);
  exchange(0, true, 1 << 20);
}

TEST_F(DeviceTest, SurvivesABadNetwork) {
  setenv("TULLE_FAULTS", "drop=0.02,duplicate=0.02,reorder=0.05,delay=10us,seed=5", 1);
  exchange(0, true, 1 << 20);
}

TEST_F(DeviceTest, SurvivesDamagedDatagrams) {
  setenv("TULLE_FAULTS", "corrupt=0.05,seed=9", 1);
  exchange(0, true, 1 << 20);
}

// The second MiB of a buffer goes before a transfer reaches it. With each path, and with each
// thread that makes progress, the transfer fails and the process lives.
TEST_F(DeviceTest, MemoryThatIsGoneFailsTheTransferAlone) {
  using verbs::CompletionStatus;
  for (const char* direct : {"off", "on"}) {
    setenv("TULLE_DIRECT", direct, 1);
    for (const bool poll : {true, false}) {
      for (const bool here : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << "direct " << direct << ", polls " << poll << ", here " << here);
        DeviceEnd one("tulle0");
        DeviceEnd two("tulle1");
        ASSERT_TRUE(one.device && two.device);
        one.connect(two, 0);
        two.connect(one, 0);
        std::vector<std::byte>& buffer = here ? one.buffer : two.buffer;
        constexpr std::uintptr_t page = 4096;
        auto* gone = reinterpret_cast<std::byte*>(
            (reinterpret_cast<std::uintptr_t>(buffer.data()) + (1 << 20)) / page * page);
        ASSERT_EQ(mprotect(gone, page, PROT_NONE), 0);
        one.transfer(two, verbs::SendOpcode::write, 2 << 20);
        EXPECT_EQ(one.completion(poll), here ? CompletionStatus::local_protection_error
                                             : CompletionStatus::remote_access_error);
        ASSERT_EQ(mprotect(gone, page, PROT_READ | PROT_WRITE), 0);
      }
    }
  }
}

// Writes from one end to the other, and looks whether it arrives.
void expect_traffic(DeviceEnd& one, DeviceEnd& two) {
  one.transfer(two, verbs::SendOpcode::write, 4'096);
  EXPECT_EQ(one.completion(true), verbs::CompletionStatus::success);
}

// The agent hands over a capture's ring just when the process has no descriptor to spare.
TEST_F(DeviceTest, SurvivesAWantOfDescriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer checks memory through a pipe, for which it needs descriptors";
#endif
  int go[2], ready[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t capturer = fork();
  if (capturer == 0) {
    char byte = 0;
    static_cast<void>(read(go[0], &byte, 1) == 1);
    Hello hello;
    hello.purpose = Purpose::capture;
    hello.ring_bytes = 1 << 20;
    const auto capture = ask_agent(read_settings(), hello, IfAbsent::fail);
    usleep(100'000);
    static_cast<void>(write(ready[1], &byte, 1) == 1);
    _exit(capture ? 0 : 1);
  }
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  ASSERT_TRUE(one.device && two.device);
  one.connect(two, 0);
  two.connect(one, 0);
  expect_traffic(one, two);
  std::vector<UniqueFd> all;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) all.emplace_back(fd);
  ASSERT_EQ(errno, EMFILE);
  char byte = 0;
  ASSERT_EQ(write(go[1], &byte, 1), 1);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  expect_traffic(one, two);
  all.clear();
  int status = 0;
  ASSERT_EQ(waitpid(capturer, &status, 0), capturer);
  EXPECT_EQ(status, 0);
  std::this_thread::sleep_for(300ms);  // a process without agent looks for one every 200 ms
  expect_traffic(one, two);
  for (const int fd : {go[0], go[1], ready[0], ready[1]}) close(fd);
}

TEST_F(DeviceTest, SurvivesTheLossOfItsConnectionToALivingAgent) {
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  ASSERT_TRUE(one.device && two.device);
  one.connect(two, 0);
  two.connect(one, 0);
  const auto connected = [] {
    Hello hello;
    hello.purpose = Purpose::status;
    auto answer = ask_agent(read_settings(), hello, IfAbsent::fail);
    int count = 0;
    while (answer) {
      auto message = await_message(answer->connection.get(), 2'000);
      ProcessStatus process;
      if (!message || !decode(message->bytes, process)) break;
      count += process.connected ? 1 : 0;
    }
    return count;
  };
  ASSERT_EQ(connected(), 2);
  for (int fd = 3; fd < 1'024; ++fd) {
    sockaddr_un name{};
    socklen_t bytes = sizeof name;
    const bool is_agents = getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
                           name.sun_family == AF_UNIX && bytes > sizeof(sa_family_t);
    if (is_agents) shutdown(fd, SHUT_RDWR);
  }
  const auto deadline = Clock::now() + 10s;
  std::this_thread::sleep_for(100ms);
  while (connected() < 2 && Clock::now() < deadline) std::this_thread::sleep_for(50ms);
  ASSERT_EQ(connected(), 2);
  expect_traffic(one, two);
}

// Seals what goes over the network, connections included.
class SecureDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    folder_.write("keys", fmt::format("{:1>64}\n", ""));
    folder_.write("others", fmt::format("{:2>64}\n", ""));
    for (const char* name : {"keys", "others"}) chmod(folder_.path(name).c_str(), 0600);
    setenv("TULLE_SECURE", folder_.path("keys").c_str(), 1);
    DeviceTest::SetUp();
  }
  void TearDown() override {
    unsetenv("TULLE_SECURE");
    DeviceTest::TearDown();
  }
  Folder folder_;
};

TEST_F(SecureDeviceTest, WritesAndReadsOverIpv4) { exchange(0, true, 4 << 20); }
TEST_F(SecureDeviceTest, WritesAndReadsOverIpv6) { exchange(1, true, 4 << 20); }
TEST_F(SecureDeviceTest, WithoutOffload) {
  setenv("TULLE_OFFLOAD", "off", 1);
  exchange(0, true, 1 << 20);
}
TEST_F(SecureDeviceTest, SurvivesABadNetwork) {
  setenv("TULLE_FAULTS", "drop=0.02,duplicate=0.02,reorder=0.05,corrupt=0.02,delay=10us,seed=5", 1);
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  ASSERT_TRUE(one.device && two.device);
  one.connect(two, 0);
  two.connect(one, 0);
  one.buffer[77'777] = std::byte{42};
  one.transfer(two, verbs::SendOpcode::write, 1 << 20);
  ASSERT_EQ(one.completion(true), verbs::CompletionStatus::success);
  EXPECT_TRUE(same(one, two, 1 << 20));
  const auto lock = two.device->lock();
  const auto& counters = two.device->adapter().counters();
  EXPECT_EQ(counters.received_by_verdict[static_cast<std::size_t>(port::Verdict::bad_icrc)], 0u)
      << "what was damaged does not get as far";
}

TEST_F(SecureDeviceTest, AProcessAndItsAgentUseTheSameKey) {
  for (const char* other : {"others", ""}) {
    if (*other == '\0') {
      unsetenv("TULLE_SECURE");
    } else {
      setenv("TULLE_SECURE", folder_.path(other).c_str(), 1);
    }
    auto opened = Device::open("tulle0", count_event);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().error_number, EPROTO) << opened.error().message;
  }
}

// A genuine packet of a connection that is not sealed is what somebody would forge.
TEST_F(SecureDeviceTest, WhatIsNotSealedIsDropped) {
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  ASSERT_TRUE(one.device && two.device);
  one.connect(two, 0);
  two.connect(one, 0);
  device::Datagram datagram;
  {
    const auto lock = one.device->lock();
    const verbs::Sge sge{reinterpret_cast<std::uint64_t>(one.buffer.data()), 64,
                         one.region->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::write;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = reinterpret_cast<std::uint64_t>(two.buffer.data());
    request.rkey = two.region->rkey();
    one.buffer[0] = std::byte{42};
    ASSERT_EQ(one.device->adapter().post_send(*one.qp, request), verbs::VerbsStatus::ok);
    ASSERT_TRUE(one.device->adapter().pull_datagram(one.device->now(), datagram));
    datagram.finish_frame(0);
  }
  std::vector<std::byte> plain;
  const auto add = [&](std::span<const std::byte> piece) {
    plain.insert(plain.end(), piece.begin(), piece.end());
  };
  add(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
  for (std::size_t i = 0; i < datagram.piece_count; ++i) add(datagram.pieces[i]);
  add(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
  const UniqueFd sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(4791);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(sendto(sender.get(), plain.data(), plain.size(), 0,
                   reinterpret_cast<const sockaddr*>(&to), sizeof to),
            static_cast<ssize_t>(plain.size()));
  std::this_thread::sleep_for(5ms);
  {
    const auto lock = two.device->lock();
    two.device->progress();
    EXPECT_EQ(two.buffer[0], std::byte{0});
    EXPECT_EQ(two.device->adapter().counters().packets_received, 0u);
  }
  // The sealed one comes after the timeout.
  EXPECT_EQ(one.completion(true), verbs::CompletionStatus::success);
  EXPECT_EQ(two.buffer[0], std::byte{42});
}

TEST_F(DeviceTest, EveryFrameIsCapturedAndIsWhatWasOnTheWire) {
  Hello hello;
  hello.purpose = Purpose::capture;
  hello.ring_bytes = 64 << 20;
  auto capture = ask_agent(read_settings(), hello, IfAbsent::fail);
  ASSERT_TRUE(capture) << capture.error().message;
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  std::vector<CaptureRing> rings;
  while (rings.size() < 2) {
    auto message = await_message(capture->connection.get(), 2'000);
    CaptureSource source;
    ASSERT_TRUE(message && decode(message->bytes, source) && message->fds.size() == 1);
    auto ring = CaptureRing::map(std::move(message->fds[0]));
    ASSERT_TRUE(ring);
    rings.push_back(std::move(*ring));
  }
  std::this_thread::sleep_for(50ms);  // lets the devices' threads learn of the capture
  one.connect(two, 0);
  two.connect(one, 0);
  one.transfer(two, verbs::SendOpcode::write, 1 << 20);
  ASSERT_EQ(one.completion(true), verbs::CompletionStatus::success);

  std::array<std::uint64_t, 2> frames_of{};  // in, out
  for (CaptureRing& ring : rings) {
    CapturedFrame frame;
    std::vector<std::byte> bytes;
    while (ring.read(frame, bytes)) {
      ++frames_of[frame.outbound ? 1 : 0];
      wire::IpUdp ip;
      const auto headers = wire::decode(bytes, ip);
      ASSERT_TRUE(headers.ok);
      wire::Packet packet;
      std::span<const std::byte> payload;
      ASSERT_EQ(port::decode(ip, frame.outbound, std::span(bytes).subspan(headers.header_bytes),
                             packet, payload),
                port::Verdict::ok);
    }
    EXPECT_EQ(ring.dropped(), 0u);
  }
  const auto lock = one.device->lock();
  const auto& sent = one.device->adapter().counters();
  EXPECT_GE(sent.packets_sent, 1'024u);
  EXPECT_EQ(frames_of[0], frames_of[1]);
  EXPECT_GE(frames_of[1], sent.packets_sent + sent.packets_received);
}

// Checks that the caller holds the lock again after it let others run.
TEST_F(DeviceTest, WhoPollsInVainLetsOthersRunNowAndThen) {
  DeviceEnd end("tulle0");
  auto held = end.device->lock();
  int times = 0;
  for (int i = 0; i < 1'024; ++i) {
    end.device->progress();
    const bool others_ran = end.device->let_others_run(held);
    ASSERT_TRUE(held.owns_lock());
    times += others_ran ? 1 : 0;
    if (i < 100) {
      EXPECT_FALSE(others_ran) << i;
    }
  }
  EXPECT_EQ(times, 8);
}

TEST_F(DeviceTest, RecoveryIsAsTheEnvironmentSays) {
  DeviceEnd usual("tulle0");
  setenv("TULLE_RECOVERY", "selective-repeat", 1);
  DeviceEnd selective("tulle1");
  unsetenv("TULLE_RECOVERY");
  const transport::RecoverySettings& of_usual = usual.device->adapter().configuration().recovery;
  EXPECT_EQ(of_usual.kind, transport::Recovery::go_back_n);
  EXPECT_EQ(of_usual.window_packets, 0u);
  const transport::RecoverySettings& of_other =
      selective.device->adapter().configuration().recovery;
  EXPECT_EQ(of_other.kind, transport::Recovery::selective_repeat);
  EXPECT_GT(of_other.window_packets, 0u);
}

TEST_F(DeviceTest, IdleDevicesUseNoProcessorTime) {
  DeviceEnd one("tulle0");
  DeviceEnd two("tulle1");
  one.connect(two, 0);
  two.connect(one, 0);
  one.transfer(two, verbs::SendOpcode::write, 8);
  ASSERT_EQ(one.completion(true), verbs::CompletionStatus::success);
  std::this_thread::sleep_for(50ms);  // lets leases end and the acknowledgement timer expire
  const std::uint64_t before = switches_of_device_threads();
  std::this_thread::sleep_for(500ms);
  EXPECT_LE(switches_of_device_threads() - before, 2u);
}

}  // namespace
}  // namespace tulle::live
