#include "live/process/device_impl.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/pause.h"
#include "live/path/memory/shared_regions.h"
#include "live/path/packets/neighbours.h"
#include "live/process/program_memory.h"
#include "os/cancellation.h"
#include "os/system_random.h"
#include "rdma/port/framing/roce_v1.h"

namespace tulle::live {
namespace {

constexpr Time publish_interval = Time::milliseconds(10);
constexpr int spins_before_sleep = 200;

// Timers back off up to this code (rdma/transport/recovery.h), which is half a second. A ConnectX-2
// runs no shorter timer than that, whatever a program asks for (RAMCloud's wiki).
constexpr std::uint8_t backed_off_timeout_code = 17;
constexpr int back_off_doublings = 7;
// A thread that is woken on a machine with a free processor runs sooner than this.
constexpr Time late_after = Time::milliseconds(5);

// Selective repeat is made for adapters (rdma/transport/recovery.h). Processes answer late when
// they wait for a processor, and a network of hosts reorders some packets.
constexpr std::uint32_t selective_window_packets = 2048;
constexpr std::uint32_t reordering_packets = 3;  // as TCP counts duplicates (RFC 5681)
// A receiver holds an acknowledgement back for a millisecond at most, until its program calls.
constexpr Time loss_timeout = Time::microseconds(1'250);

device::Configuration configuration_of(const Device::Impl::Grant& grant, const Settings& settings) {
  device::Configuration configuration;
  if (const Likeness* like = find_likeness(settings.like); like != nullptr) {
    configuration.limits = like->limit(configuration.limits);
  }
  configuration.seed = system_random();
  configuration.draw = system_random;
  configuration.first_qp = grant.first_qp;
  configuration.qp_count = grant.qp_count;
  configuration.mtu_bytes = grant.info.mtu_bytes;
  if (const port::Framing* framing = grant.network->framing()) configuration.framing = framing;
  if (const port::Settings* port = grant.network->port()) configuration.port = port;
  configuration.recovery.kind = settings.recovery;
  configuration.recovery.backed_off_timeout_max = transport::ack_timeout(backed_off_timeout_code);
  configuration.recovery.back_off_doublings = back_off_doublings;
  configuration.recovery.late_after = late_after;
  if (settings.recovery == transport::Recovery::selective_repeat) {
    configuration.recovery.window_packets = selective_window_packets;
    configuration.recovery.reordering_packets = reordering_packets;
    configuration.recovery.timeout_low = configuration.recovery.timeout_high = loss_timeout;
  }
  return configuration;
}

// The kernel enlarges the table of descriptors of a process that has threads only after a grace
// period of RCU, which takes tens of milliseconds. The first work request to a peer takes the
// port's sockets, twice 64 descriptors for a moment, with the device's lock held. So the table
// grows while the device is opened. A limit that forbids it is no error here.
void make_room_for_descriptors(int any) {
  constexpr int lowest = 511;  // the kernel's table has a power of two
  const UniqueFd far(fcntl(any, F_DUPFD_CLOEXEC, lowest));
}

}  // namespace

Device::Impl::Impl(Grant grant, const Settings& settings, EventSink sink)
    : info_(grant.info),
      settings_(settings),
      sink_(sink),
      page_(std::move(grant.counters)),
      adapter_(std::make_unique<device::Adapter>(configuration_of(grant, settings))),
      busy_poll_(Time::microseconds(settings.busy_poll_microseconds)),
      agent_(std::move(grant.agent)),
      doorbell_(std::move(grant.bell.bell)),
      doorbell_button_(std::move(grant.bell.button)) {
  network_ = std::move(grant.network);
  adapter_->objects().set_pages(&program_pages());
}

// Takes over what the subnet manager has set.
void Device::Impl::set_port() {
  if (!info_.infiniband) return;
  const InfinibandPort& port = *info_.infiniband;
  std::vector<Pkey> pkeys;
  for (const std::uint16_t pkey : port.pkeys) pkeys.emplace_back(pkey);
  if (!pkeys.empty()) adapter_->set_pkeys(pkeys);
  adapter_->set_lid(Lid(port.lid), port.lmc);
}

void Device::Impl::set_gids() {
  std::vector<Gid> gids;
  for (const GidEntry& entry : info_.gids) gids.push_back(entry.gid);
  // A queue pair that has a withdrawn address keeps its framing, too.
  for (std::size_t i = 0; i < std::min(gids.size(), gids_max); ++i) {
    if (info_.gids[i].in_use()) gids_of_roce_v1_[i] = info_.gids[i].is_roce_v1;
  }
  device::Adapter::OtherFraming other{};
  if (gids_of_roce_v1_.any()) other = {&port::roce_v1, gids_of_roce_v1_};
  adapter_->set_gids(gids, 1, other);
  links_.set_addresses(info_);
}

Result<void> Device::Impl::start() {
  auto loop = EventLoop::create();
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  wakeup_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop || !timer_ || !wakeup_) {
    return Error{std::string("cannot open the device: ") + std::strerror(errno), errno};
  }
  loop_ = std::move(*loop);
  make_room_for_descriptors(loop_.fd());
  if (settings_.strict) adapter_->objects().withhold_payload();
  const LinkContext context{
      info_, settings_, *adapter_, tap_, counters_, agent_, doorbell_button_.get()};
  if (auto opened = network_->open(context, links_); !opened) return opened;
  watched_.resize(links_.by_socket().size());
  set_gids();
  set_port();
  for (const int fd : {timer_.get(), wakeup_.get(), doorbell_.get(), agent_.socket()}) {
    watch(fd, EPOLLIN);
  }
  watch_sockets(true);
  return start_thread();
}

std::unique_lock<std::mutex> Device::Impl::lock() {
  std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
  for (int i = 0; i < spins_before_sleep && !held; ++i) {
    pause_processor();
    static_cast<void>(held.try_lock());
  }
  if (!held) {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    held.lock();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  return held;
}

std::unique_lock<std::mutex> Device::Impl::lock_within(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
  while (!held && std::chrono::steady_clock::now() < until) {
    usleep(100);
    static_cast<void>(held.try_lock());
  }
  return held;
}

// --- called with the lock held ---

Time Device::Impl::now() {
  return clock_.now([this](Time by) {
    adapter_->rebase(by);
    links_.rebase(by);
    sleeper_.rebase(by);
    rebase(by, leased_at_, awake_since_, last_poll_, timer_at_, published_, gids_looked_at_);
  });
}

void Device::Impl::transmit() {
  if (forked_) return;
  const Time at = now();
  const MemoryTurn turn(at);
  survive([&] { send(at); });
  settle(at);
}

void Device::Impl::progress() {
  if (forked_) return;
  const Time at = now();
  const MemoryTurn turn(at);
  last_poll_ = at;
  const std::uint64_t completions = adapter_->completions();
  survive([&] {
    vain_polls_ = receive_before_deadlines(at) > 0 ? 0 : vain_polls_ + 1;
    if (leased_ && !deferred_ && !has_unsent_posts_ && adapter_->completions() != completions) {
      deferred_ = true;
      deliver_events();
    } else {
      send(at);
    }
  });
  if (!leased_ && ++polls_in_row_ >= polls_before_lease_) {
    end_sleepers_lease(SleeperLease::End::in_order);
    set_leased(true);
    leased_at_ = at;
    watch_sockets(false);
    wake_at(at + lease_time);
  }
  settle(at);
}

void Device::Impl::hand_over() {
  polls_in_row_ = 0;
  if (forked_ || !(leased_ || is_awake_)) return;
  end_awake();
  if (leased_) {
    set_leased(false);
    watch_sockets(true);
  }
  const Time at = now();
  const MemoryTurn turn(at);
  if (deferred_ || has_unsent_posts_) survive([&] { send(at); });
  take_unannounced(at);
  settle(at);
}

// A forked child owns neither the sockets nor the device.
int Device::Impl::join(const Gid& group) { return forked_ ? EPERM : links_.join(group); }
void Device::Impl::leave(const Gid& group) {
  if (!forked_) links_.leave(group);
}

int Device::Impl::resolve(const verbs::AddressVector& to) {
  std::optional<std::pair<Link*, Link::Neighbour>> unknown;
  {
    const auto held = lock();
    if (!forked_) unknown = links_.unknown_neighbour(info_, to);
  }
  if (!unknown) return 0;
  const auto& [link, neighbour] = *unknown;
  auto mac = resolve_neighbour(neighbour.interface_index, neighbour.source, neighbour.gid);
  if (!mac) return mac.error().error_number;
  const auto held = lock();
  link->set_neighbour(neighbour, *mac);
  return 0;
}

int Device::Impl::may_use_packets() {
  RawLink* const raw = network_->raw();
  return raw == nullptr ? EOPNOTSUPP : raw->may_open();
}

int Device::Impl::open_packets() {
  if (forked_) return EPERM;
  RawLink* const raw = network_->raw();
  if (raw == nullptr) return EOPNOTSUPP;
  if (raw->is_open()) return 0;
  if (const int error = raw->open(); error != 0) return error;
  links_.add_first(*raw);
  watched_.insert(watched_.begin(), Watched{});
  return 0;
}

int Device::Impl::watch(const device::FlowRule& rule) {
  if (forked_) return EPERM;
  RawLink* const raw = network_->raw();
  const int error = raw == nullptr ? EINVAL : raw->watch(rule);
  watch_changed_sockets();
  return error;
}

// The socket may be closed, which does not end its watch while another process has it.
void Device::Impl::unwatch(const device::FlowRule& rule) {
  if (forked_) return;
  for (Watched& watched : watched_) {
    loop_.forget(watched.fd);
    watched = {};
  }
  network_->raw()->unwatch(rule);
  watch_changed_sockets();
}

int Device::Impl::move_data(Time at) {
  int calls = 0;
  bool has_received_all = false;
  while (calls < receive_calls_max) {
    ++calls;
    if (receive(at) < Link::received_max) {
      has_received_all = true;
      break;
    }
  }
  handle_deadlines(at, has_received_all);
  send(at);
  return calls;
}

// A time-out that is due waits until what has come is handled, since the acknowledgement may be
// among it. More may come without end: it waits no longer than what was there takes.
void Device::Impl::handle_deadlines(Time at, bool has_received_all) {
  if (adapter_->next_deadline() > at) {
    turns_before_deadlines_ = 0;
    return;
  }
  if (!has_received_all && ++turns_before_deadlines_ < turns_before_deadlines_max) return;
  turns_before_deadlines_ = 0;
  adapter_->handle_deadline(at);
}

// Receives once, and does the work that is due. Returns what receive() does.
int Device::Impl::receive_before_deadlines(Time at) {
  // While packets come by memory, most calls leave the socket out.
  if (adapter_->next_deadline() <= at) polls_to_next_look_ = 0;
  const int received = receive(at);
  handle_deadlines(at, received < Link::received_max);
  return received;
}

void Device::Impl::send(Time at) {
  deferred_ = has_unsent_posts_ = false;
  links_.transmit(*adapter_, at);
  deliver_events();
}

void Device::Impl::set_leased(bool leased) {
  leased_ = leased;
  polls_between_looks_ = polls_to_next_look_ = 0;
  tell_who_looks(leased);
}

// Publishes to local peers which thread polls this process's rings: a polling caller, or the thread
// that the doorbell wakes.
void Device::Impl::tell_who_looks(bool a_caller) { links_.set_polled(a_caller); }

int Device::Impl::receive(Time at) {
  // Otherwise the caller was woken, perhaps by a socket, and nobody else polls the sockets.
  const bool is_looked_after = leased_ || sleeper_.holder() != nullptr;
  const int from_memory = links_.receive_from_memory(*adapter_, at) > 0 ? 1 : 0;
  if (from_memory > 0) {
    ++counters_.receive_calls;
    polls_between_looks_ =
        is_looked_after ? std::min(polls_between_looks_ * 2 + 1, polls_between_looks_max) : 0;
    if (links_.is_unfinished()) return Link::received_max;
  }
  if (polls_to_next_look_ > 0) {
    --polls_to_next_look_;
    return from_memory;
  }
  polls_to_next_look_ = polls_between_looks_;
  const int from_sockets = links_.receive_from_sockets(*adapter_, at);
  if (from_sockets > 0 || !is_looked_after) polls_between_looks_ = polls_to_next_look_ = 0;
  if (!leased_) watch_changed_sockets();
  return std::max(from_memory, from_sockets);
}

void Device::Impl::deliver_events() {
  device::Event event;
  while (adapter_->pull_event(event)) sink_(event);
}

// Called after anything that may have changed what the thread waits for.
void Device::Impl::settle(Time at) {
  for (const Link* const link : links_.by_socket()) {
    if (link->blocked_socket() >= 0) [[unlikely]]
      watch_until_writable(*link, at);
  }
  if (at >= published_ + publish_interval) publish(at);
  // The thread continues with a long transfer, since the caller may not poll but look at its
  // memory.
  const bool must_continue = links_.must_continue();
  if (leased_ && !must_continue) return;  // the thread checks once a millisecond, and callers poll
  wake_at(std::min(adapter_->next_deadline(), links_.next_deadline()));
  if (is_awake_ && !must_continue) return;  // the caller continues
  if (links_.has_more() || links_.is_unfinished()) [[unlikely]]
    wake();
}

void Device::Impl::watch_sockets(bool readable) {
  is_waking_socket_watched_ = readable;
  watch_changed_sockets();
}

void Device::Impl::watch_changed_sockets() {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    watch_socket(*links_.by_socket()[i], watched_[i]);
  }
}

// The thread serves what a caller that sleeps is not woken by.
void Device::Impl::watch_socket(const Link& link, Watched& watched) {
  const int fd = link.receiving_socket();
  if (fd < 0) {
    watched = {};
    return;
  }
  const bool is_served = link.wakes_sleepers() ? is_waking_socket_watched_ : !leased_;
  const bool readable = is_served && link.wants_wake();
  if (fd == watched.fd && readable == watched.is_readable) return;
  watched = {fd, readable};
  watch(fd, readable ? std::uint32_t{EPOLLIN} : 0u);
}

// The tag of an event is its descriptor.
void Device::Impl::watch(int fd, std::uint32_t events) {
  if (fd >= 0) loop_.watch(fd, events, static_cast<std::uint64_t>(fd));
}

void Device::Impl::watch_doorbell(bool readable) {
  watch(doorbell_.get(), readable ? std::uint32_t{EPOLLIN} : 0u);
}

// Watches a sender's full socket once, until it is writable. (A receiving socket sends only if no
// other socket could be had. The timer serves it.)
void Device::Impl::watch_until_writable(const Link& link, Time at) {
  const int fd = link.blocked_socket();
  if (fd == link.receiving_socket()) return wake_at(at + Time::milliseconds(1));
  watch(fd, EPOLLOUT | EPOLLONESHOT);
}

// Makes the thread wake no later than this. Only a time earlier than the timer's costs a system
// call.
void Device::Impl::wake_at(Time when) {
  if (when >= timer_at_) return;
  timer_at_ = when;
  const std::int64_t at = clock_.monotonic_nanoseconds(std::max(when, Time::zero())) + 1;
  itimerspec setting{};
  setting.it_value.tv_sec = at / 1'000'000'000;
  setting.it_value.tv_nsec = at % 1'000'000'000;
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &setting, nullptr);
}

void Device::Impl::wake() {
  const CancellationOff cancellation_off;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakeup_.get(), &one, sizeof(one));
}

void Device::Impl::publish(Time at) {
  if (forked_) return;  // the page belongs to the parent
  links_.count();
  using Unshared = SharedRegions::Unshared;
  const SharedRegions::Counters shared = SharedRegions::of_process().counters();
  counters_.shared_files = shared.files;
  counters_.shared_bytes = shared.bytes;
  counters_.unshared_kind_of_memory = shared.unshared_for(Unshared::kind);
  counters_.unshared_because_of_devices = shared.unshared_for(Unshared::devices);
  counters_.unshared_because_of_threads = shared.unshared_for(Unshared::threads);
  counters_.unshared_registered_before = shared.unshared_for(Unshared::registered);
  counters_.unshared_for_want_of_room = shared.unshared_for(Unshared::room);
  page_.publish(*adapter_, counters_);
  published_ = at;
}

// All of this process's traffic must go through sockets while it is captured.
void Device::Impl::set_captured() { links_.set_captured(tap_.is_open()); }

void Device::Impl::forget_in_child() {
  forked_ = true;
  sleeper_.forget_all();  // the channel's epoll is the parent's too
  is_awake_ = false;
  is_doorbell_taken_ = false;
  new (&mutex_) std::mutex;  // a thread that is not in the child may have held it
  agent_ = {};
  links_.forget_in_child(wakeup_.get());
}

}  // namespace tulle::live
