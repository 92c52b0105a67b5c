#pragma once

// Two devices of one process over real sockets of a private network namespace, for tests.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "live/process/device.h"
#include "live/test_network_test.h"

namespace tulle::live {

using namespace std::chrono_literals;
using verbs::QpAttribute;
using Clock = std::chrono::steady_clock;

inline std::atomic<int> events_seen{0};
inline void count_event(const device::Event&) { ++events_seen; }

// One end of a connection: a device with a connected queue pair and a buffer.
struct DeviceEnd {
  std::shared_ptr<Device> device;
  verbs::ProtectionDomain* pd = nullptr;
  verbs::MemoryRegion* region = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  transport::QueuePair* qp = nullptr;
  std::vector<std::byte> buffer = std::vector<std::byte>(4 << 20);

  explicit DeviceEnd(const std::string& name, Device::EventSink sink = count_event)
      : DeviceEnd(open(name, sink)) {}
  explicit DeviceEnd(std::shared_ptr<Device> opened) : device(std::move(opened)) {
    if (!device) return;
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
  static std::shared_ptr<Device> open(const std::string& name, Device::EventSink sink) {
    auto opened = Device::open(name, sink);
    if (opened) return *opened;
    ADD_FAILURE() << opened.error().message;
    return nullptr;
  }
  ~DeviceEnd() {
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

  void connect(const DeviceEnd& peer, std::size_t gid_index) {
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

  void transfer(const DeviceEnd& peer, verbs::SendOpcode opcode, std::uint32_t bytes) {
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

// Returns how often the devices' threads were given a processor.
inline std::uint64_t switches_of_device_threads() {
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
  static bool same(DeviceEnd& one, DeviceEnd& two, std::uint32_t bytes) {
    const auto first = one.device->lock();
    const auto second = two.device->lock();
    return std::memcmp(one.buffer.data(), two.buffer.data(), bytes) == 0;
  }

  void exchange(std::size_t gid_index, bool poll, std::uint32_t bytes) {
    DeviceEnd one("tulle0");
    DeviceEnd two("tulle1");
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

}  // namespace tulle::live
