#include "live/process/device.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/write_best_effort.h"
#include "fabric/faults.h"
#include "live/fabric/client.h"
#include "live/process/agent_client.h"
#include "live/process/competition.h"
#include "live/process/device_impl.h"
#include "live/process/program_memory.h"
#include "live/process/seal_choice.h"
#include "live/settings.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

// The devices that are open in this process, by name. The registry is never destroyed, because the
// program may exit before its last thread does.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Device>> devices;
};
Registry& registry() {
  static Registry* const only = new Registry;
  return *only;
}

// A forked child has its parent's devices in memory, but neither their thread nor a right to their
// slot. Those devices do nothing in the child; opening a device in the child creates a device of
// the child's own.
void before_fork() {
  registry().mutex.lock();
  SharedRegions::of_process().before_fork();
}
void after_fork_in_parent() {
  SharedRegions::of_process().after_fork_in_parent();
  registry().mutex.unlock();
}
void after_fork_in_child() {
  SharedRegions::of_process().after_fork_in_child();
  for (auto& [name, reference] : registry().devices) {
    if (const auto device = reference.lock()) device->impl().forget_in_child();
  }
  registry().devices.clear();
  registry().mutex.unlock();
}

// A program may end as soon as it has seen its last completion, without closing anything. Taking
// the lock of each device sends the acknowledgement that the peer still waits for, and publish()
// leaves the final counters to the host agent.
[[gnu::destructor]] void send_deferred_at_exit() {
  Registry& open_devices = registry();
  const std::unique_lock lock(open_devices.mutex, std::try_to_lock);
  if (!lock) return;
  for (auto& [name, reference] : open_devices.devices) {
    const auto device = reference.lock();
    if (device == nullptr) continue;
    // A signal handler may have called exit() while its thread held the lock.
    const auto held = device->impl().lock_within(std::chrono::milliseconds(20));
    if (!held) continue;
    device->impl().send_deferred();
    device->impl().publish(device->now());
  }
}

void watch_forks() {
  static const int registered =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
}

Result<fabric::FaultSettings> faults_of(const Settings& settings) {
  auto parsed = fabric::parse_faults(settings.faults);
  if (const auto* error = std::get_if<std::string>(&parsed)) return Error{*error, EINVAL};
  return std::get<fabric::FaultSettings>(parsed);
}

// Opens a host's port of a software fabric.
Result<Device::Impl::Grant> open_on_fabric(const Settings& settings, const std::string& name) {
  if (auto faults = faults_of(settings); !faults) return faults.error();
  if (!settings.secure.empty()) {
    return Error{"datagrams are not sealed on a fabric's host: TULLE_SECURE has no effect there",
                 EOPNOTSUPP};
  }
  auto bell = create_bell();
  if (!bell) return bell.error();
  auto port = open_data_port(fabric_place(), bell->button.get());
  if (!port) return port.error();
  auto rings =
      FabricRings::map(std::move(port->memory), std::move(port->button), FabricRings::End::program);
  if (!rings) return rings.error();
  auto counters = CountersPage::create();
  if (!counters) return counters.error();
  const DataPortOpened& opened = port->opened;
  return Device::Impl::Grant{device_of(name, opened.port),
                             QpNumber(opened.first_qp),
                             opened.qp_count,
                             std::move(*counters),
                             AgentLink(settings, std::move(port->connection), {}),
                             std::make_unique<FabricNetwork>(std::move(*rings)),
                             std::move(*bell)};
}

// Takes a slot of the host agent's.
Result<Device::Impl::Grant> open_on_host(const Settings& settings, const std::string& name) {
  auto faults = faults_of(settings);
  if (!faults) return faults.error();
  auto bell = create_bell();
  if (!bell) return bell.error();
  Hello hello;
  hello.purpose = Purpose::open;
  hello.command = program_name();
  hello.device = settings.device;
  hello.device.name = name;
  auto answer = ask_agent(settings, hello, IfAbsent::start);
  if (!answer) return answer.error();
  Opened opened;
  std::vector<UniqueFd>& fds = answer->message.fds;
  const bool is_answer =
      decode(answer->message.bytes, opened) && fds.size() == (opened.is_relayed ? 2 : 4);
  if (!is_answer) return unexpected_answer();

  AgentLink::Rights rights;
  rights.slot = opened.slot;
  if (!opened.is_relayed) {
    rights.lock = std::move(fds[2]);
    rights.vault = std::move(fds[3]);
  }
  rights.counters.reset(dup(fds[1].get()));
  auto counters = CountersPage::map(std::move(fds[1]));
  if (!counters) return counters.error();
  auto seal = seal_like(settings, opened.seal_key_id);
  if (!seal) return seal.error();
  HostNetwork::Grant network{opened.slot,       opened.port,      opened.is_relayed,
                             std::move(fds[0]), std::move(*seal), *faults};
  return Device::Impl::Grant{std::move(opened.device),
                             QpNumber(opened.first_qp),
                             opened.qp_count,
                             std::move(*counters),
                             AgentLink(settings, std::move(answer->connection), std::move(rights)),
                             std::make_unique<HostNetwork>(std::move(network)),
                             std::move(*bell)};
}

std::int64_t processor_nanoseconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// Sleeps for the shortest time that the kernel can, some 60 to 100 us, if others compete for the
// caller's processor. sched_yield() would be shorter. But a Linux kernel with the EEVDF scheduler
// moves the caller behind the others by a whole time slice, and 6.18 has left them without a
// processor for up to 30 s when several threads did so (decision 052).
void pause_if_others_compete() {
  thread_local Competition competition;
  if (!competition.note(DriverClock::system(), processor_nanoseconds())) return;
  const timespec shortest{0, 1};
  const CancellationOff cancellation_off;
  nanosleep(&shortest, nullptr);
  competition.note_pause();
}

}  // namespace

Result<std::vector<DeviceInfo>> devices() {
  const Settings settings = read_settings();
  if (!settings.fabric.empty()) {
    auto port = describe_host(fabric_place());
    if (!port) return port.error();
    return std::vector<DeviceInfo>{device_of(settings.device.name, *port)};
  }
  Hello hello;
  hello.purpose = Purpose::list;
  hello.command = program_name();
  hello.device = settings.device;
  auto answer = ask_agent(settings, hello, IfAbsent::start);
  if (!answer) return answer.error();
  Devices list;
  if (!decode(answer->message.bytes, list)) return unexpected_answer();
  return std::move(list.devices);
}

Result<std::shared_ptr<Device>> Device::open(const std::string& name, EventSink sink) {
  watch_forks();
  Registry& open_devices = registry();
  const std::lock_guard lock(open_devices.mutex);
  if (auto device = open_devices.devices[name].lock()) return device;

  const Settings settings = read_settings();
  auto grant =
      settings.fabric.empty() ? open_on_host(settings, name) : open_on_fabric(settings, name);
  if (!grant) return grant.error();
  auto device = start(std::make_unique<Impl>(std::move(*grant), settings, sink));
  if (device) open_devices.devices[name] = *device;
  return device;
}

Result<std::shared_ptr<Device>> Device::start(std::unique_ptr<Impl> impl) {
  if (auto started = impl->start(); !started) return started.error();
  return std::shared_ptr<Device>(new Device(std::move(impl)));
}

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;

const DeviceInfo& Device::info() const { return impl_->info(); }
std::unique_lock<std::mutex> Device::lock() {
  auto held = impl_->lock();
  impl_->send_deferred();
  return held;
}
std::unique_lock<std::mutex> Device::lock_for_work() {
  auto held = impl_->lock();
  if (is_strict()) [[unlikely]]
    impl_->send_answers();
  return held;
}
device::Adapter& Device::adapter() { return impl_->adapter(); }
Time Device::now() { return impl_->now(); }
SharedRegions::Hold Device::share_memory(const void* memory, std::uint64_t bytes) {
  return SharedRegions::of_process().share(memory, bytes);
}
void Device::tidy_memory() { SharedRegions::of_process().tidy(); }
void Device::transmit() { impl_->transmit(); }
void Device::transmit_posted() {
  if (is_strict()) [[unlikely]]
    return impl_->transmit_later();
  impl_->transmit();
}
bool Device::is_strict() {
  static const bool is_strict = read_settings().strict;
  return is_strict;
}
std::shared_ptr<void> Device::memory_turn() {
  return is_strict() ? std::make_shared<MemoryTurn>(now()) : nullptr;
}
const Likeness* Device::likeness() {
  static const Likeness* const likeness = find_likeness(read_settings().like);
  return likeness;
}
void Device::keep_refusal(const std::string& text) {
  impl_->keep_refusal(text);
  const CancellationOff cancellation_off;
  static const bool explains = read_settings().explain;
  // The caller may hold the device's lock, and a reader may be slow.
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (!explains || poll(&room, 1, 0) <= 0 || (room.revents & POLLOUT) == 0) return;
  const std::string line = "tulle: " + text + "\n";
  write_best_effort(STDERR_FILENO, line.data(), line.size());
}
void Device::progress() { impl_->progress(); }
bool Device::let_others_run(std::unique_lock<std::mutex>& held) {
  if (!impl_->vain_polls_are_many()) return false;
  held.unlock();
  pause_if_others_compete();
  held = impl_->lock();
  return true;
}
void Device::hand_over() { impl_->hand_over(); }
void Device::expect_sleeper(EventChannel& channel) { impl_->expect_sleeper(channel); }
bool Device::look_before_sleep(std::unique_lock<std::mutex>& held, const EventChannel& channel,
                               const verbs::CompletionQueue& queue) {
  return impl_->look_before_sleep(held, channel, queue);
}
int Device::take_event(EventChannel& channel, EventChannel::Item& item, bool may_sleep) {
  return impl_->take_event(channel, item, may_sleep);
}
void Device::forget(EventChannel& channel) { impl_->forget(channel); }
int Device::resolve(const verbs::AddressVector& to) { return impl_->resolve(to); }
void Device::publish() { impl_->publish(now()); }
int Device::join(const Gid& group) { return impl_->join(group); }
void Device::leave(const Gid& group) { impl_->leave(group); }
int Device::may_use_packets() { return impl_->may_use_packets(); }
int Device::open_packets() { return impl_->open_packets(); }
int Device::watch(const device::FlowRule& rule) { return impl_->watch(rule); }
void Device::unwatch(const device::FlowRule& rule) { impl_->unwatch(rule); }

}  // namespace tulle::live
