#include "live/process/device_impl.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "live/path/memory/shared_regions.h"
#include "live/path/packets/neighbours.h"
#include "live/process/program_memory.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

constexpr Time publish_interval = Time::milliseconds(10);

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

void count_shared(DriverCounters& counters) {
  using Unshared = SharedRegions::Unshared;
  const SharedRegions::Counters shared = SharedRegions::of_process().counters();
  counters.shared_files = shared.files;
  counters.shared_bytes = shared.bytes;
  counters.unshared_kind_of_memory = shared.unshared_for(Unshared::kind);
  counters.unshared_because_of_devices = shared.unshared_for(Unshared::devices);
  counters.unshared_because_of_threads = shared.unshared_for(Unshared::threads);
  counters.unshared_registered_before = shared.unshared_for(Unshared::registered);
  counters.unshared_for_want_of_room = shared.unshared_for(Unshared::room);
}

}  // namespace

Device::Impl::Impl(Grant grant, const Settings& settings, EventSink sink)
    : settings_(settings),
      sink_(sink),
      page_(std::move(grant.counters)),
      adapter_(std::make_unique<device::Adapter>(configuration_of(grant, settings))),
      identity_(std::move(grant.info), *adapter_, links_, agent_, sink),
      busy_poll_(Time::microseconds(settings.busy_poll_microseconds)),
      agent_(std::move(grant.agent)),
      doorbell_(std::move(grant.bell)) {
  network_ = std::move(grant.network);
  adapter_->objects().set_pages(&program_pages());
}

Result<void> Device::Impl::start() {
  if (auto opened = wakes_.open(); !opened) return opened;
  make_room_for_descriptors(wakes_.loop_fd());
  if (settings_.strict) adapter_->objects().withhold_payload();
  const LinkContext context{identity_.info(), settings_, *adapter_,         tap_,
                            counters_,        agent_,    doorbell_.button()};
  if (auto opened = network_->open(context, links_); !opened) return opened;
  wakes_.set_links(links_.by_socket().size());
  identity_.apply();
  wakes_.watch(doorbell_.fd(), EPOLLIN);
  wakes_.watch(agent_.socket(), EPOLLIN);
  watch_sockets(true);
  return start_thread();
}

// --- called with the lock held ---

Time Device::Impl::now() {
  return clock_.now([this](Time by) {
    adapter_->rebase(by);
    links_.rebase(by);
    poller_.rebase(by);
    sleeper_.rebase(by);
    identity_.rebase(by);
    wakes_.rebase(by);
    rebase(by, awake_since_, last_poll_, published_);
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
    if (poller_.is_held() && !deferred_ && !has_unsent_posts_ &&
        adapter_->completions() != completions) {
      deferred_ = true;
      deliver_events();
    } else {
      send(at);
    }
  });
  if (poller_.count_poll()) {
    end_sleepers_lease(SleeperLease::End::in_order);
    poller_.begin(at);
    note_lease();
    wake_at(at + PollerLease::check_interval);
  }
  settle(at);
}

void Device::Impl::hand_over() {
  poller_.forget_polls();
  if (forked_ || !(poller_.is_held() || is_awake_)) return;
  end_awake();
  if (poller_.is_held()) {
    poller_.end();
    note_lease();
  }
  const Time at = now();
  const MemoryTurn turn(at);
  if (deferred_ || has_unsent_posts_) survive([&] { send(at); });
  take_unannounced(at);
  settle(at);
}

// A forked child owns neither the sockets nor the device.
void Device::Impl::leave(const Gid& group) {
  if (!forked_) links_.leave(group);
}

int Device::Impl::resolve(const verbs::AddressVector& to) {
  std::optional<std::pair<Link*, Link::Neighbour>> unknown;
  {
    const auto held = lock();
    if (!forked_) unknown = links_.unknown_neighbour(identity_.info(), to);
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
  wakes_.add_first_link();
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
  wakes_.forget_links();
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
  if (adapter_->next_deadline() <= at) socket_pace_.look_now();
  const int received = receive(at);
  handle_deadlines(at, received < Link::received_max);
  return received;
}

void Device::Impl::send(Time at) {
  deferred_ = has_unsent_posts_ = false;
  links_.transmit(*adapter_, at);
  deliver_events();
}

// Publishes to local peers which thread polls this process's rings: a polling caller, or the thread
// that the doorbell wakes. Watches the sockets if that is the thread.
void Device::Impl::note_lease() {
  socket_pace_.reset();
  links_.set_polled(poller_.is_held());
  watch_sockets(!poller_.is_held());
}

int Device::Impl::receive(Time at) {
  // Otherwise the caller was woken, perhaps by a socket, and nobody else polls the sockets.
  const bool is_looked_after = poller_.is_held() || sleeper_.holder() != nullptr;
  const int from_memory = links_.receive_from_memory(*adapter_, at) > 0 ? 1 : 0;
  if (from_memory > 0) {
    ++counters_.receive_calls;
    socket_pace_.note_memory(is_looked_after);
    if (links_.is_unfinished()) return Link::received_max;
  }
  if (socket_pace_.leaves_out()) return from_memory;
  const int from_sockets = links_.receive_from_sockets(*adapter_, at);
  if (from_sockets > 0 || !is_looked_after) socket_pace_.reset();
  if (!poller_.is_held()) watch_changed_sockets();
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
      wakes_.watch_until_writable(*link, at, clock_);
  }
  if (at >= published_ + publish_interval) publish(at);
  // The thread continues with a long transfer, since the caller may not poll but look at its
  // memory. Otherwise, with a lease, it checks once a millisecond, and callers poll.
  const bool must_continue = links_.must_continue();
  if (poller_.is_held() && !must_continue) return;
  wake_at(std::min(adapter_->next_deadline(), links_.next_deadline()));
  if (is_awake_ && !must_continue) return;  // the caller continues
  if (links_.has_more() || links_.is_unfinished()) [[unlikely]]
    wakes_.wake();
}

void Device::Impl::watch_sockets(bool readable) {
  is_waking_socket_watched_ = readable;
  watch_changed_sockets();
}

// The thread serves what a caller that sleeps is not woken by.
void Device::Impl::watch_changed_sockets() {
  wakes_.watch_links(links_.by_socket(),
                     {.waking = is_waking_socket_watched_, .others = !poller_.is_held()});
}

void Device::Impl::publish(Time at) {
  if (forked_) return;  // the page belongs to the parent
  links_.count();
  count_shared(counters_);
  page_.publish(*adapter_, counters_);
  published_ = at;
}

void Device::Impl::forget_in_child() {
  forked_ = true;
  sleeper_.forget_all();  // the channel's epoll is the parent's too
  is_awake_ = false;
  doorbell_.leave();
  mutex_.forget_in_child();
  agent_ = {};
  links_.forget_in_child(wakes_.wake_fd());
}

}  // namespace tulle::live
