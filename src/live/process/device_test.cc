// Tests two devices of one process over real sockets of a private network namespace.

#include "live/process/device.h"

#include <fcntl.h>
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
#include <sstream>
#include <thread>
#include <vector>

#include "base/folder_test.h"
#include "live/path/packets/capture_ring.h"
#include "live/process/agent_client.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;
using verbs::QpAttribute;
using Clock = std::chrono::steady_clock;

std::atomic<int> events_seen{0};
void count_event(const device::Event&) { ++events_seen; }

// One end of a connection: a device with a connected queue pair and a buffer.
struct End {
  std::shared_ptr<Device> device;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::MemoryRegion* region = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  transport::QueuePair* qp = nullptr;
  std::vector<std::byte> buffer = std::vector<std::byte>(4 << 20);

  explicit End(const std::string& name, Device::EventSink sink = count_event) {
    auto opened = Device::open(name, sink);
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return;
    }
    device = *opened;
    const auto lock = device->lock();
    device::Adapter& adapter = device->adapter();
    verbs::VerbsStatus status{};
    pd = adapter.objects().create_pd(status);
    const auto access = verbs::AccessFlags(verbs::Access::local_write) |
                        verbs::Access::remote_write | verbs::Access::remote_read;
    region = adapter.objects().register_memory(*pd, buffer.data(), buffer.size(),
                                               reinterpret_cast<std::uint64_t>(buffer.data()),
                                               access, status);
    cq = adapter.objects().create_cq(1024, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 64;
    init.send_sges = init.receive_sges = 1;
    qp = adapter.create_qp(init, status);
  }
  ~End() {
    if (!device) return;
    const auto lock = device->lock();
    device::Adapter& adapter = device->adapter();
    static_cast<void>(adapter.destroy(qp));
    static_cast<void>(adapter.objects().destroy(cq));
    static_cast<void>(adapter.objects().destroy(region));
    static_cast<void>(adapter.objects().destroy(pd));
  }

  void step(const transport::QueuePairAttributes& to, verbs::QpAttributeMask mask) {
    ASSERT_EQ(device->adapter().modify(*qp, to, mask), verbs::VerbsStatus::ok);
  }

  void connect(const End& peer, std::size_t gid_index) {
    const auto lock = device->lock();
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = verbs::AccessFlags(verbs::Access::remote_write) | verbs::Access::remote_read;
    step(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                 QpAttribute::port | QpAttribute::access_flags);
    to.state = verbs::QpState::rtr;
    to.path_mtu = verbs::Mtu::b1024;
    to.destination_qp = peer.qp->number;
    to.address.destination = peer.device->info().gids[gid_index].gid;
    to.address.source_gid_index = static_cast<std::uint8_t>(gid_index);
    to.max_dest_rd_atomic = 4;
    step(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
                 QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
                 QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
    to.state = verbs::QpState::rts;
    to.timeout = 12;  // 17 ms
    to.retry_count = 7;
    to.rnr_retry = 7;
    to.max_rd_atomic = 4;
    step(to, verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
                 QpAttribute::retry_count | QpAttribute::rnr_retry | QpAttribute::sq_psn |
                 QpAttribute::max_rd_atomic);
  }

  void transfer(const End& peer, verbs::SendOpcode opcode, std::uint32_t bytes) {
    const auto lock = device->lock();
    const verbs::Sge sge{reinterpret_cast<std::uint64_t>(buffer.data()), bytes, region->lkey()};
    verbs::SendRequest request;
    request.opcode = opcode;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = reinterpret_cast<std::uint64_t>(peer.buffer.data());
    request.rkey = peer.region->rkey();
    ASSERT_EQ(device->adapter().post_send(*qp, request), verbs::VerbsStatus::ok);
    device->transmit();
  }

  // Waits for one completion. With `poll` the caller makes progress, otherwise the device's thread
  // does.
  verbs::CompletionStatus completion(bool poll) {
    verbs::Completion completion;
    const auto deadline = Clock::now() + 10s;
    while (Clock::now() < deadline) {
      {
        const auto lock = device->lock();
        if (cq->poll({&completion, 1}) == 1) return completion.status;
        if (poll) device->progress();
      }
      if (!poll) std::this_thread::sleep_for(200us);
    }
    ADD_FAILURE() << "no completion in ten seconds";
    return verbs::CompletionStatus::bad_response_error;
  }
};

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    setenv("TULLE_DIRECT", "off", 1);
    agent_.emplace();
  }
  void TearDown() override {
    for (const char* name : {"TULLE_DIRECT", "TULLE_OFFLOAD", "TULLE_FAULTS"}) unsetenv(name);
  }

  // Compares under both devices' locks, so that all earlier writes are visible.
  static bool same(End& one, End& two, std::uint32_t bytes) {
    const auto first = one.device->lock();
    const auto second = two.device->lock();
    return std::memcmp(one.buffer.data(), two.buffer.data(), bytes) == 0;
  }

  void exchange(std::size_t gid_index, bool poll, std::uint32_t bytes) {
    End one("tulle0");
    End two("tulle1");
    ASSERT_TRUE(one.device && two.device);
    ASSERT_GT(one.device->info().gids.size(), gid_index);
    one.connect(two, gid_index);
    two.connect(one, gid_index);
    for (std::size_t i = 0; i < bytes; ++i) one.buffer[i] = static_cast<std::byte>(i * 7 + i / 256);
    one.transfer(two, verbs::SendOpcode::write, bytes);
    ASSERT_EQ(one.completion(poll), verbs::CompletionStatus::success);
    EXPECT_TRUE(same(one, two, bytes));
    std::memset(one.buffer.data(), 0, bytes);
    one.transfer(two, verbs::SendOpcode::read, bytes);
    ASSERT_EQ(one.completion(poll), verbs::CompletionStatus::success);
    EXPECT_TRUE(same(one, two, bytes));
    const auto lock = two.device->lock();
    const auto& counters = two.device->adapter().counters();
    const bool is_damaged =
        counters.received_by_verdict[static_cast<std::size_t>(port::Verdict::bad_icrc)] > 0;
    const char* faults = std::getenv("TULLE_FAULTS");
    EXPECT_EQ(is_damaged, faults != nullptr && std::strstr(faults, "corrupt") != nullptr);
    if (!is_damaged) {
      EXPECT_EQ(counters.unknown_queue_pair, 0u);
    }
  }

  std::optional<TestAgent> agent_;
};

TEST_F(DeviceTest, WritesAndReadsOverIpv4) { exchange(0, true, 4 << 20); }
TEST_F(DeviceTest, WritesAndReadsOverIpv6) { exchange(1, true, 4 << 20); }
TEST_F(DeviceTest, TheThreadMakesProgressAlone) { exchange(0, false, 1 << 20); }
// Programs count on that with timers of a second or more.
TEST_F(DeviceTest, RetriesTakeTheirNominalTime) {
  const End end("tulle0");
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
        End one("tulle0");
        End two("tulle1");
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
void expect_traffic(End& one, End& two) {
  one.transfer(two, verbs::SendOpcode::write, 4'096);
  EXPECT_EQ(one.completion(true), verbs::CompletionStatus::success);
}

// The agent hands over a capture's ring just when the process has no descriptor to spare.
TEST_F(DeviceTest, SurvivesAWantOfDescriptors) {
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
  End one("tulle0");
  End two("tulle1");
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
  End one("tulle0");
  End two("tulle1");
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
    folder_.write("keys", std::string(64, '1') + "\n");
    folder_.write("others", std::string(64, '2') + "\n");
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
  End one("tulle0");
  End two("tulle1");
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
  End one("tulle0");
  End two("tulle1");
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
  End one("tulle0");
  End two("tulle1");
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

// Returns how often the devices' threads were given a processor.
std::uint64_t switches_of_device_threads() {
  std::uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string field;
    std::string name;
    for (std::string line; std::getline(status, line);) {
      std::istringstream words(line);
      words >> field;
      if (field == "Name:") words >> name;
      std::uint64_t count = 0;
      if (field == "voluntary_ctxt_switches:" && name == "tulle" && words >> count) sum += count;
    }
  }
  return sum;
}

// Checks that the caller holds the lock again after it let others run.
TEST_F(DeviceTest, WhoPollsInVainLetsOthersRunNowAndThen) {
  End end("tulle0");
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

// A program that sleeps on an event channel's descriptor, and a peer that sends to it. The
// parameter is TULLE_DIRECT: packets come by UDP without it, and by memory with it.
class SleeperTest : public DeviceTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    setenv("TULLE_DIRECT", GetParam(), 1);
    auto made = EventChannel::create();
    ASSERT_TRUE(made);
    channel_ = std::move(*made);
    fcntl(channel_->fd(), F_SETFL, O_NONBLOCK);
    one_.emplace("tulle0");
    two_.emplace("tulle1", [](const device::Event& event) {
      if (event.kind != device::Event::Kind::asynchronous) channel_->push({event.cq, 0});
    });
    ASSERT_TRUE(one_->device && two_->device);
    one_->connect(*two_, 0);
    two_->connect(*one_, 0);
  }
  void TearDown() override {
    if (two_ && two_->device) {
      const auto lock = two_->device->lock();
      two_->device->forget(*channel_);
    }
    one_.reset();
    two_.reset();
    channel_.reset();
    DeviceTest::TearDown();
  }

  void arm() {
    const auto lock = two_->device->lock();
    two_->device->adapter().objects().request_notification(*two_->cq, false);
    two_->device->hand_over();
    two_->device->expect_sleeper(*channel_);
  }
  void post_receive() {
    const auto lock = two_->device->lock();
    const verbs::Sge sge{reinterpret_cast<std::uint64_t>(two_->buffer.data()), 64,
                         two_->region->lkey()};
    verbs::ReceiveRequest request;
    request.sges = {&sge, 1};
    ASSERT_EQ(two_->device->adapter().post_receive(*two_->qp, request), verbs::VerbsStatus::ok);
  }
  void send() {
    post_receive();
    one_->transfer(*two_, verbs::SendOpcode::send, 8);
  }
  static bool is_readable(int milliseconds) {
    pollfd entry{channel_->fd(), POLLIN, 0};
    return poll(&entry, 1, milliseconds) == 1;
  }
  int take(bool may_sleep = false) {
    EventChannel::Item item;
    return two_->device->take_event(*channel_, item, may_sleep);
  }
  // Takes the completion of a message that has come.
  void poll_queue() {
    const auto lock = two_->device->lock();
    verbs::Completion completion;
    ASSERT_EQ(two_->cq->poll({&completion, 1}), 1u);
    EXPECT_EQ(completion.status, verbs::CompletionStatus::success);
  }
  // Sends a message, and takes it as an event-driven program does. Returns whether the descriptor
  // became readable before there was an event.
  bool exchange() {
    arm();
    send();
    EXPECT_TRUE(is_readable(5'000));
    EventChannel::Item item;
    bool is_early = !channel_->try_pop(item);
    if (is_early) {
      int error = take();
      while (error == ENOMSG) error = take(true);
      EXPECT_EQ(error, 0);
    }
    poll_queue();
    EXPECT_EQ(one_->completion(true), verbs::CompletionStatus::success);
    return is_early;
  }
  // On a busy machine a lease may end before anything comes, so this tries again.
  void get_lease() {
    for (int i = 0; i < 200; ++i) {
      for (int arms = 0; arms < 4; ++arms) arm();
      if (exchange()) return;
    }
    FAIL() << "the sleeper got no lease";
  }

  inline static std::unique_ptr<EventChannel> channel_;
  std::optional<End> one_;
  std::optional<End> two_;
};

INSTANTIATE_TEST_SUITE_P(Paths, SleeperTest, testing::Values("off", "on"), [](const auto& each) {
  return std::string(each.param) == "on" ? "memory" : "udp";
});

// With the direct path, a WRITE sends no packet.
class SleeperByUdpTest : public SleeperTest {};
INSTANTIATE_TEST_SUITE_P(Paths, SleeperByUdpTest, testing::Values("off"));

TEST_P(SleeperTest, ASleeperWakesByItself) {
  get_lease();
  for (int i = 0; i < 100; ++i) exchange();
}

TEST_P(SleeperByUdpTest, WhatBringsNoEventIsTold) {
  get_lease();
  arm();
  one_->transfer(*two_, verbs::SendOpcode::write, 8);
  // On a busy machine the thread may have ended the lease, and has taken the packet.
  const bool is_woken = is_readable(100);
  ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  const int error = take();
  EXPECT_TRUE(error == ENOMSG || (error == EAGAIN && !is_woken)) << error;
  EXPECT_EQ(take(true), EAGAIN);
}

TEST_P(SleeperTest, TheThreadServesAProgramThatDoesNotCome) {
  for (int i = 0; i < 3; ++i) {
    get_lease();
    arm();
    send();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success) << "somebody answered";
    EXPECT_EQ(take(), 0);
    poll_queue();
  }
}

TEST_P(SleeperTest, ASleeperInTheCallWakesToo) {
  fcntl(channel_->fd(), F_SETFL, 0);
  for (int i = 0; i < 20; ++i) {
    arm();
    std::thread sender([&] {
      std::this_thread::sleep_for(1ms);
      send();
    });
    EXPECT_EQ(take(), 0);
    sender.join();
    poll_queue();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
}

// A program whose descriptor blocks need not poll it, and then takes it that an event stands for a
// completion.
TEST_P(SleeperByUdpTest, ABlockingDescriptorIsNotReadableForPacketsWithoutEvents) {
  fcntl(channel_->fd(), F_SETFL, 0);
  for (int i = 0; i < 100; ++i) {
    for (int arms = 0; arms < 4; ++arms) arm();
    one_->transfer(*two_, verbs::SendOpcode::write, 8);
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
    ASSERT_FALSE(is_readable(0)) << i;
    send();
    ASSERT_EQ(take(), 0) << i;
    poll_queue();
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
}

// Packets of other queues wake a sleeper again and again. libibverbs then makes an event up, which
// must not count as one that the packets brought.
TEST_P(SleeperByUdpTest, WhoIsWokenInVainLosesTheLease) {
  get_lease();
  arm();
  int woken = 0;
  for (int i = 0; i < 40; ++i) {
    one_->transfer(*two_, verbs::SendOpcode::write, 8);
    if (is_readable(20)) {
      EXPECT_EQ(take(), ENOMSG);
      channel_->push({two_->cq, 0});
      EXPECT_EQ(take(true), 0);
      ++woken;
    }
    ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  }
  EXPECT_LE(woken, 16);
}

TEST_P(SleeperTest, AnIdleSleeperLosesTheLeaseAndNobodyWakes) {
  get_lease();
  arm();
  std::this_thread::sleep_for(100ms);
  const std::uint64_t before = switches_of_device_threads();
  std::this_thread::sleep_for(500ms);
  EXPECT_LE(switches_of_device_threads() - before, 2u);
  EXPECT_FALSE(is_readable(0));
  exchange();
}

TEST_P(SleeperTest, AChannelMayGoWithItsLease) {
  get_lease();
  arm();
  {
    const auto lock = two_->device->lock();
    two_->device->forget(*channel_);
  }
  auto made = EventChannel::create();
  ASSERT_TRUE(made);
  channel_ = std::move(*made);
  send();
  ASSERT_EQ(one_->completion(true), verbs::CompletionStatus::success);
  EXPECT_EQ(take(), 0);
}

TEST_F(DeviceTest, RecoveryIsAsTheEnvironmentSays) {
  End usual("tulle0");
  setenv("TULLE_RECOVERY", "selective-repeat", 1);
  End selective("tulle1");
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
  End one("tulle0");
  End two("tulle1");
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
