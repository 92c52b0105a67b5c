// A live device without sockets, threads or a host agent: it receives what it sends. It stands in
// for the live room, so that the C API is tested in one process, in the order in which the calls
// are made.

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <new>

#include "base/guarded_access.h"
#include "base/on_throw.h"
#include "live/process/device.h"
#include "live/process/event_channel.h"
#include "live/process/program_memory.h"
#include "rdma/device/raw_packets.h"

namespace tulle::live {

namespace {

DeviceInfo loopback_info() {
  DeviceInfo info;
  info.name = "tulle0";
  info.node_guid = 0x0200'00FF'FE00'0001;
  info.mtu_bytes = 1024;
  info.gids.push_back({Gid::from_ipv4(0x7F00'0001), 1, "lo"});
  GidEntry ipv6{{}, 1, "lo"};
  ipv6.gid.bytes[15] = 1;
  info.gids.push_back(ipv6);
  return info;
}

device::Configuration loopback_configuration() {
  device::Configuration configuration;
  configuration.seed = 1;
  configuration.mtu_bytes = 1024;
  return configuration;
}

}  // namespace

Result<std::vector<DeviceInfo>> devices() {
  if (std::getenv("TULLE_TEST_NO_AGENT") != nullptr) {
    return Error{"no agent answers, and none can be started", ENOSYS};
  }
  return std::vector<DeviceInfo>{loopback_info()};
}

class Device::Impl {
 public:
  explicit Impl(EventSink sink) : sink(sink), adapter(loopback_configuration()) {
    std::vector<Gid> gids;
    for (const GidEntry& entry : info.gids) gids.push_back(entry.gid);
    adapter.set_gids(gids);
    adapter.objects().set_pages(&program_pages());
    watch_for_faults();
    bytes.reserve(datagram_bytes_max);
  }

  static Time now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Time::seconds(t.tv_sec) + Time::nanoseconds(t.tv_nsec);
  }

  // A datagram that there is no memory for is lost.
  void deliver() {
    try {
      deliver_all();
    } catch (const std::bad_alloc&) {
    }
  }

  void deliver_all() {
    for (device::Datagram datagram; adapter.pull_datagram(now(), datagram);) {
      bytes.resize(datagram.udp_payload_bytes());
      auto to = bytes.begin();
      const auto add = [&](std::span<const std::byte> piece) {
        to = std::copy(piece.begin(), piece.end(), to);
      };
      const bool is_there = attempt({datagram.pieces.data(), datagram.piece_count}, [&] {
        datagram.finish_frame(0);
        add(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
        for (std::uint8_t i = 0; i < datagram.piece_count; ++i) add(datagram.pieces[i]);
        add(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
      });
      if (!is_there) continue;
      if (datagram.ip().destination == datagram.ip().source ||
          datagram.ip().destination.is_multicast()) {
        (void)adapter.handle_datagram(now(), datagram.ip(), true, bytes);
      }
    }
    if (has_packets) deliver_packets();
    for (device::Event event; adapter.pull_event(event);) sink(event);
  }

  void deliver_packets() {
    device::RawPackets& packets = adapter.raw_packets();
    for (auto frames = packets.pull_frames(); !frames.empty(); frames = packets.pull_frames()) {
      const OnThrow send_again([&] { packets.sent(0); });
      std::vector<std::vector<std::byte>> wire;
      for (const auto& frame : frames) {
        auto& bytes = wire.emplace_back();
        for (std::uint8_t i = 0; i < frame.piece_count; ++i) {
          bytes.insert(bytes.end(), frame.pieces[i].begin(), frame.pieces[i].end());
        }
      }
      packets.sent(wire.size());
      for (const auto& frame : wire) {
        (void)packets.handle_frame(frame, device::RawPackets::IfNoRoom::drop);
      }
    }
  }

  static constexpr std::size_t datagram_bytes_max = 65'536;
  std::vector<std::byte> bytes;
  bool has_packets = false;
  std::mutex mutex;
  EventSink sink;
  DeviceInfo info = loopback_info();
  device::Adapter adapter;
};

Result<std::shared_ptr<Device>> Device::open(const std::string& name, EventSink sink) {
  static std::mutex mutex;
  static std::weak_ptr<Device> opened;
  const std::lock_guard guard(mutex);
  if (name != loopback_info().name) return Error{"no such device", ENODEV};
  auto device = opened.lock();
  if (device == nullptr) {
    device = std::shared_ptr<Device>(new Device(std::make_unique<Impl>(sink)));
    opened = device;
  }
  return device;
}

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;

const DeviceInfo& Device::info() const { return impl_->info; }
std::unique_lock<std::mutex> Device::lock() { return std::unique_lock(impl_->mutex); }
std::unique_lock<std::mutex> Device::lock_for_work() { return lock(); }
device::Adapter& Device::adapter() { return impl_->adapter; }
Time Device::now() { return Impl::now(); }
SharedRegions::Hold Device::share_memory(const void*, std::uint64_t) { return {}; }
void Device::tidy_memory() {}
void SharedRegions::Hold::reset() {}
bool Device::is_strict() { return std::getenv("TULLE_TEST_STRICT") != nullptr; }
std::shared_ptr<void> Device::memory_turn() { return nullptr; }
const Likeness* Device::likeness() { return nullptr; }
// A test reads the reason in the environment.
void Device::keep_refusal(const std::string& text) {
  setenv("TULLE_TEST_REFUSAL", text.c_str(), 1);
}
void Device::transmit() { impl_->deliver(); }
void Device::transmit_posted() { impl_->deliver(); }
void Device::progress() {
  impl_->adapter.handle_deadline(Impl::now());
  impl_->deliver();
}
bool Device::look_before_sleep(std::unique_lock<std::mutex>&, const EventChannel&,
                               const verbs::CompletionQueue&) {
  return false;
}
bool Device::let_others_run(std::unique_lock<std::mutex>&) { return false; }
void Device::hand_over() { progress(); }
void Device::expect_sleeper(EventChannel&) {}
int Device::take_event(EventChannel& channel, EventChannel::Item& item, bool) {
  {
    const auto held = lock();
    hand_over();
  }
  return channel.pop(item);
}
void Device::forget(EventChannel&) {}
int Device::resolve(const verbs::AddressVector&) { return 0; }
void Device::publish() {}
// The device hears everything that it sends.
int Device::join(const Gid&) { return 0; }
void Device::leave(const Gid&) {}
int Device::may_use_packets() {
  return std::getenv("TULLE_TEST_NO_PACKETS") != nullptr ? EPERM : 0;
}
int Device::open_packets() {
  const int error = may_use_packets();
  impl_->has_packets |= error == 0;
  return error;
}
int Device::watch(const device::FlowRule&) { return 0; }
void Device::unwatch(const device::FlowRule&) {}

}  // namespace tulle::live
