#include "live/process/device_impl.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/pause.h"
#include "live/path/packets/multicast.h"
#include "live/path/packets/neighbours.h"
#include "live/process/agent_client.h"
#include "live/process/program_memory.h"
#include "os/system_random.h"
#include "port/framing/infiniband.h"
#include "port/framing/roce_v1.h"

namespace tulle::live {
namespace {

constexpr Time publish_interval = Time::milliseconds(10);
constexpr int spins_before_sleep = 200;
constexpr Patience find_peer_patience = {50, 50};

// Timers back off up to this code (transport/recovery.h), which is half a second. A ConnectX-2 runs
// no shorter timer than that, whatever a program asks for (RAMCloud's wiki).
constexpr std::uint8_t backed_off_timeout_code = 17;
constexpr int back_off_doublings = 7;
// A thread that is woken on a machine with a free processor runs sooner than this.
constexpr Time late_after = Time::milliseconds(5);

// Selective repeat is made for adapters (transport/recovery.h). Processes answer late when they
// wait for a processor, and a network of hosts reorders some packets.
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
  if (grant.fabric != nullptr) {
    configuration.framing = &port::infiniband;
    configuration.port = &FabricPath::port_settings();
  }
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

Transmitter::Options transmitter_options(const Device::Impl::Grant& grant, int sender, bool offload,
                                         const fabric::FaultSettings& faults, Seal* seal) {
  return {grant.is_relayed ? sender : grant.socket.get(), grant.port, offload, faults, seal};
}

UniqueFd sender_for_relay(bool is_relayed) {
  if (!is_relayed) return {};
  auto bound = bind_sender(static_cast<std::uint32_t>(getpid()));
  return bound ? std::move(*bound) : UniqueFd();
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

Device::Impl::Impl(Grant grant, const Settings& settings, const fabric::FaultSettings& faults,
                   EventSink sink)
    : info_(grant.info),
      settings_(settings),
      sink_(sink),
      slot_(grant.slot),
      is_relayed_(grant.is_relayed),
      sender_(sender_for_relay(grant.is_relayed)),
      page_(std::move(grant.counters)),
      seal_(std::move(grant.seal)),
      adapter_(std::make_unique<device::Adapter>(configuration_of(grant, settings))),
      receiver_(grant.socket.get(), grant.port,
                grant.is_relayed ? Receiver::From::relay : Receiver::From::udp_socket),
      transmitter_(transmitter_options(grant, sender_.get(), settings.offload, faults, seal_.get()),
                   UniqueFd(fcntl(grant.agent.vault(), F_DUPFD_CLOEXEC, 0)), info_, tap_,
                   counters_),
      has_faults_(faults.any()),
      busy_poll_(Time::microseconds(settings.busy_poll_microseconds)),
      agent_(std::move(grant.agent)) {
  socket_ = std::move(grant.socket);
  adapter_->objects().set_pages(&program_pages());
  set_gids();
  if (grant.fabric == nullptr) return;
  fabric_ = std::move(grant.fabric);
  doorbell_ = std::move(grant.bell.bell);
  doorbell_button_ = std::move(grant.bell.button);
  rings_ = fabric_.get();
  set_port();
}

// Takes over what the subnet manager has set.
void Device::Impl::set_port() {
  const InfinibandPort& port = *info_.infiniband;
  std::vector<Pkey> pkeys;
  for (const std::uint16_t pkey : port.pkeys) pkeys.emplace_back(pkey);
  if (!pkeys.empty()) adapter_->set_pkeys(pkeys);
  adapter_->set_lid(Lid(port.lid), port.lmc);
}

void Device::Impl::set_gids() {
  std::vector<Gid> gids;
  for (const GidEntry& entry : info_.gids) gids.push_back(entry.gid);
  if (roce_v1_ == nullptr) return adapter_->set_gids(gids);
  // A queue pair that has a withdrawn address keeps its framing, too.
  for (std::size_t i = 0; i < std::min(gids.size(), gids_max); ++i) {
    if (info_.gids[i].in_use()) gids_of_roce_v1_[i] = info_.gids[i].is_roce_v1;
  }
  adapter_->set_gids(gids, 1, {&port::roce_v1, gids_of_roce_v1_});
  roce_v1_->set_addresses(info_.gids);
}

// Opens the sockets of RoCE v1's frames, if the program wants addresses of RoCE v1.
Result<void> Device::Impl::open_roce_v1() {
  if (settings_.device.roce == RoceVersions::v2 || fabric_ != nullptr) return {};
  if (seal_ != nullptr) {
    return Error{"RoCE v1's frames are not sealed: --secure goes with --roce v2 alone", EINVAL};
  }
  if (has_faults_) {
    return Error{"faults change RoCE v2's datagrams: --faults goes with --roce v2 alone", EINVAL};
  }
  const device::Configuration& configuration = adapter_->configuration();
  auto port = RoceV1Port::open(configuration.first_qp, configuration.qp_count, tap_);
  if (!port) return port.error();
  roce_v1_ = std::move(*port);
  transmitter_.use(roce_v1_.get());
  set_gids();
  return {};
}

Result<void> Device::Impl::start() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  wakeup_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fabric_ == nullptr) {
    if (auto made = create_bell()) {
      doorbell_ = std::move(made->bell);
      doorbell_button_ = std::move(made->button);
    }
  }
  if (!epoll_ || !timer_ || !wakeup_ || !doorbell_) {
    return Error{std::string("cannot open the device: ") + std::strerror(errno), errno};
  }
  make_room_for_descriptors(epoll_.get());
  if (auto opened = open_roce_v1(); !opened) return opened;
  const int frames = roce_v1_ != nullptr ? roce_v1_->receiving_socket() : -1;
  for (const int fd :
       {socket_.get(), timer_.get(), wakeup_.get(), doorbell_.get(), agent_.socket(), frames}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  if (settings_.strict) adapter_->objects().withhold_payload();
  if (auto created = create_direct_path(); !created) return created;
  return start_thread();
}

Result<void> Device::Impl::create_direct_path() {
  if (!settings_.direct || settings_.strict || has_faults_ || fabric_ != nullptr) return {};
  const auto is_local = [this](const Gid& gid) {
    return std::any_of(info_.gids.begin(), info_.gids.end(),
                       [&](const GidEntry& entry) { return entry.gid == gid; });
  };
  // Asked while a queue pair is connected, with the device's lock held. A stopped agent must not
  // hold the program up, neither once for long nor at each connection.
  const auto find_peer = [this](QpNumber number) -> Result<HostPath::Peer> {
    if (clock_.peek() < ask_again_at_)
      return Error{"the agent did not answer a moment ago", ETIMEDOUT};
    Hello hello;
    hello.purpose = Purpose::find_peer;
    hello.slot = slot_of(number);
    const Time asked = clock_.peek();
    auto answer = ask_agent(settings_, hello, IfAbsent::fail, find_peer_patience);
    const Time answered = clock_.peek();
    if (answered >= asked + Time::milliseconds(find_peer_patience.answer_milliseconds)) {
      ask_again_at_ = answered + Time::seconds(5);
    }
    if (!answer) return answer.error();
    PeerProcess peer;
    std::vector<UniqueFd>& fds = answer->message.fds;
    if (!decode(answer->message.bytes, peer) || fds.size() != 2) {
      return Error{"the agent knows no such process", ESRCH};
    }
    return HostPath::Peer{peer.pid, std::move(fds[0]), std::move(fds[1])};
  };
  SharedRegions& shared = SharedRegions::of_process();
  const bool shares = settings_.share_memory && shared.enable();
  auto path = HostPath::create(slot_, find_peer, is_local, shares ? &shared : nullptr);
  if (!path) return path.error();
  direct_path_ = std::move(*path);
  adapter_->objects().set_direct_path(direct_path_.get());
  agent_.expose(direct_path_->peers().table_fd(), doorbell_button_.get());
  host_packets_ =
      std::make_unique<HostPackets>(direct_path_->peers(), [this](const Gid& gid, bool is_roce_v1) {
        return std::ranges::any_of(info_.gids, [&](const GidEntry& entry) {
          return entry.gid == gid && entry.is_roce_v1 == is_roce_v1;
        });
      });
  rings_ = host_packets_.get();
  transmitter_.use(host_packets_.get());
  return {};
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
    transmitter_.rebase(by);
    if (packets_ != nullptr) packets_->rebase(by);
    if (rings_ != nullptr) rings_->rebase(by);
    if (seal_ != nullptr) seal_->rebase(by);
    sleeper_.rebase(by);
    rebase(by, leased_at_, awake_since_, last_poll_, timer_at_, published_, gids_looked_at_,
           ask_again_at_);
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
    watch_socket(false);
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
    watch_socket(true);
  }
  const Time at = now();
  const MemoryTurn turn(at);
  if (deferred_ || has_unsent_posts_) survive([&] { send(at); });
  take_unannounced(at);
  settle(at);
}

// A forked child owns neither the socket nor the device.
int Device::Impl::join(const Gid& group) {
  if (forked_) return EPERM;
  if (fabric_ != nullptr) return 0;  // the program joins at the subnet's administration
  if (roce_v1_ != nullptr) {
    if (const int error = roce_v1_->join(group); error != 0) return error;
  }
  const int error =
      is_relayed_ ? change_membership(group, false) : join_group(socket_.get(), info_, group);
  if (error != 0 && roce_v1_ != nullptr) roce_v1_->leave(group);
  return error;
}

void Device::Impl::leave(const Gid& group) {
  if (forked_ || fabric_ != nullptr) return;
  if (roce_v1_ != nullptr) roce_v1_->leave(group);
  if (is_relayed_) {
    change_membership(group, true);
  } else {
    leave_group(socket_.get(), info_, group);
  }
}

int Device::Impl::resolve(const verbs::AddressVector& to) {
  if (roce_v1_ == nullptr) return 0;
  Gid source;
  std::uint32_t interface_index = 0;
  {
    const auto held = lock();
    if (forked_ || to.source_gid_index >= info_.gids.size()) return 0;
    const GidEntry& entry = info_.gids[to.source_gid_index];
    const bool is_asked = entry.is_roce_v1 && !to.destination.gid.is_multicast() &&
                          !roce_v1_->is_own(to.destination.gid);
    if (!is_asked) return 0;
    source = entry.gid;
    interface_index = entry.interface_index;
  }
  auto mac = resolve_neighbour(interface_index, source, to.destination.gid);
  if (!mac) return mac.error().error_number;
  const auto held = lock();
  roce_v1_->set_neighbour(interface_index, to.destination.gid, *mac);
  return 0;
}

// Asks the agent, which has the slot's socket. Returns 0 or an errno.
int Device::Impl::change_membership(const Gid& group, bool leaves) const {
  constexpr Patience patience = {50, 50};
  auto connection = connect_to_agent(settings_, patience);
  if (!connection) return EHOSTDOWN;
  if (!send_message(connection->get(), encode(Membership{slot_, group, leaves}))) return EHOSTDOWN;
  auto answer = await_message(connection->get(), patience.answer_milliseconds);
  MembershipChanged changed;
  if (!answer || !decode(answer->bytes, changed)) return EHOSTDOWN;
  return changed.error;
}

// The kernel takes milliseconds to close a packet socket, so that the answer is kept.
int Device::Impl::may_use_packets() {
  if (seal_ != nullptr) return EOPNOTSUPP;    // frames are not sealed
  if (fabric_ != nullptr) return EOPNOTSUPP;  // InfiniBand has no frames of Ethernet
  if (info_.gids.empty()) return EOPNOTSUPP;
  const std::string& interface = info_.gids[0].interface;
  if (!probed_ || probed_->interface != interface) {
    probed_ = Probed{interface, PacketPort::probe(interface)};
  }
  return probed_->error;
}

int Device::Impl::open_packets() {
  if (forked_) return EPERM;
  if (packets_ != nullptr) return 0;
  if (const int error = may_use_packets(); error != 0) return error;
  auto port = PacketPort::open(info_.gids[0].interface);
  if (!port) return port.error().error_number;
  packets_ = std::move(*port);
  adapter_->raw_packets().set_frame_bytes_max(packets_->frame_bytes_max());
  return 0;
}

int Device::Impl::watch(const device::FlowRule& rule) {
  if (forked_) return EPERM;
  if (packets_ == nullptr) return EINVAL;
  const bool is_first = packets_->receiving_socket() < 0;
  if (const int error = packets_->watch(rule); error != 0) return error;
  if (is_first) watch_packets(true);
  return 0;
}

// Closing the socket removes it from epoll.
void Device::Impl::unwatch(const device::FlowRule& rule) {
  if (!forked_) packets_->unwatch(rule);
}

void Device::Impl::watch_packets(bool added) {
  epoll_event event{};
  const bool looks = !leased_ && !packets_->is_waiting();
  event.events = looks ? std::uint32_t{EPOLLIN} : 0u;
  event.data.fd = packets_->receiving_socket();
  epoll_ctl(epoll_.get(), added ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, event.data.fd, &event);
}

void Device::Impl::send_packets(Time at) {
  const PacketPort::Sent sent = packets_->transmit(adapter_->raw_packets());
  if (sent == PacketPort::Sent::all) return;
  // A full interface queue gives no notice when it has room again.
  if (sent == PacketPort::Sent::queue_is_full) return wake_at(at + Time::milliseconds(1));
  watch_until_writable(packets_->sending_socket());
}

int Device::Impl::move_data(Time at) {
  int calls = 0;
  bool has_received_all = false;
  while (calls < receive_calls_max) {
    ++calls;
    if (receive(at) < Receiver::messages_max) {
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
  handle_deadlines(at, received < Receiver::messages_max);
  return received;
}

void Device::Impl::send(Time at) {
  deferred_ = has_unsent_posts_ = false;
  if (direct_path_) direct_path_->begin_turn();
  if (host_packets_ != nullptr) host_packets_->meet_peers();
  if (fabric_ != nullptr) {
    fabric_->transmit(*adapter_, at);
  } else {
    transmitter_.transmit(*adapter_, at);
  }
  if (host_packets_ != nullptr) host_packets_->ring_doorbells();
  if (packets_ != nullptr) [[unlikely]]
    send_packets(at);
  deliver_events();
}

void Device::Impl::set_leased(bool leased) {
  leased_ = leased;
  polls_between_looks_ = polls_to_next_look_ = 0;
  tell_who_looks(leased);
}

// Publishes which thread polls this process's rings: a polling caller, or the thread that the
// doorbell wakes.
void Device::Impl::tell_who_looks(bool a_caller) {
  if (rings_ != nullptr) rings_->set_polled(a_caller);
}

int Device::Impl::receive_from_memory(Time at) {
  if (rings_ == nullptr || !rings_->has_peers()) return 0;
  return rings_->receive(*adapter_, at);
}

int Device::Impl::receive(Time at) {
  // Otherwise the caller was woken, perhaps by the socket, which nobody else polls.
  const bool is_looked_after = leased_ || sleeper_.holder() != nullptr;
  const int from_memory = receive_from_memory(at) > 0 ? 1 : 0;
  if (from_memory > 0) {
    ++counters_.receive_calls;
    polls_between_looks_ =
        is_looked_after ? std::min(polls_between_looks_ * 2 + 1, polls_between_looks_max) : 0;
    if (rings_->is_unfinished()) return Receiver::messages_max;
  }
  if (fabric_ != nullptr) return from_memory;
  if (polls_to_next_look_ > 0) {
    --polls_to_next_look_;
    return from_memory;
  }
  polls_to_next_look_ = polls_between_looks_;
  if (seal_ != nullptr) [[unlikely]]
    seal_->look_at_file(at);
  const int count = receiver_.receive([&](const wire::IpUdp& ip, std::span<const std::byte> bytes) {
    if (seal_ != nullptr) [[unlikely]] {
      const auto opened = seal_->open(ip, bytes);
      if (!opened) {
        ++counters_.unsealed_drops;
        return;
      }
      bytes = *opened;
    }
    if (tap_.is_open()) [[unlikely]]
      tap_.received(ip, bytes);
    survive([&] { adapter_->handle_datagram(at, ip, false, bytes); });
  });
  if (count > 0) ++counters_.receive_calls;
  if (count > 0 || !is_looked_after) polls_between_looks_ = polls_to_next_look_ = 0;
  const int received = std::max(from_memory, count);
  const int frames = roce_v1_ != nullptr ? receive_frames(at) : 0;
  if (packets_ != nullptr) [[unlikely]]
    return std::max({received, frames, receive_packets(at)});
  return std::max(received, frames);
}

// Returns Receiver::messages_max if more frames may be waiting, so that move_data() calls again.
int Device::Impl::receive_frames(Time at) {
  const int count =
      roce_v1_->receive([&](port::Arrival& arrival, std::span<const std::byte> frame) {
        survive([&] { adapter_->handle_frame(at, arrival, frame); });
      });
  if (count > 0) ++counters_.receive_calls;
  return count < RoceV1Port::frames_max ? std::min(count, 1) : Receiver::messages_max;
}

// Returns Receiver::messages_max if more frames may be waiting, so that move_data() calls again.
int Device::Impl::receive_packets(Time at) {
  const bool waited = packets_->is_waiting();
  const int count = packets_->receive(at, adapter_->raw_packets());
  if (count > 0) ++counters_.receive_calls;
  // More frames must not wake a port that waits for a receive request; the timer makes it look
  // again.
  if (!leased_ && waited != packets_->is_waiting()) watch_packets(false);
  if (packets_->is_waiting()) wake_at(at + Time::milliseconds(1));
  return count < PacketPort::frames_max ? std::min(count, 1) : Receiver::messages_max;
}

void Device::Impl::deliver_events() {
  device::Event event;
  while (adapter_->pull_event(event)) sink_(event);
}

// Called after anything that may have changed what the thread waits for.
void Device::Impl::settle(Time at) {
  if (transmitter_.blocked_socket() >= 0) [[unlikely]]
    watch_blocked_socket();
  if (at >= published_ + publish_interval) publish(at);
  // The thread continues a long transfer, since the caller may check its memory without polling.
  const bool must_go_on = direct_path_ && direct_path_->has_unfinished();
  if (leased_ && !must_go_on) return;  // the thread checks once a millisecond, and callers poll
  const Time next_send =
      fabric_ != nullptr ? fabric_->next_deadline() : transmitter_.next_deadline();
  wake_at(std::min(adapter_->next_deadline(), next_send));
  const bool has_unread = rings_ != nullptr && rings_->is_unfinished();
  const bool has_unsent = fabric_ != nullptr ? fabric_->has_more() : transmitter_.has_more();
  if (is_awake_ && !must_go_on) return;  // the caller continues
  if (has_unsent || has_unread) [[unlikely]]
    wake();
}

void Device::Impl::watch_socket(bool readable) {
  epoll_event event{};
  event.events = readable ? std::uint32_t{EPOLLIN} : 0u;
  event.data.fd = socket_.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket_.get(), &event);
  if (packets_ != nullptr && packets_->receiving_socket() >= 0) watch_packets(false);
  if (roce_v1_ == nullptr) return;
  // A caller that sleeps does not look at these frames: the thread does.
  event.events = leased_ ? 0u : std::uint32_t{EPOLLIN};
  event.data.fd = roce_v1_->receiving_socket();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, event.data.fd, &event);
}

void Device::Impl::watch_doorbell(bool readable) {
  epoll_event event{};
  event.events = readable ? std::uint32_t{EPOLLIN} : 0u;
  event.data.fd = doorbell_.get();
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, doorbell_.get(), &event);
}

// Watches a sender's full socket once, until it is writable. (The slot's own socket sends only if
// no other socket could be had. The timer serves it.)
void Device::Impl::watch_blocked_socket() {
  const int fd = transmitter_.blocked_socket();
  if (fd == socket_.get()) return wake_at(now() + Time::milliseconds(1));
  watch_until_writable(fd);
}

void Device::Impl::watch_until_writable(int fd) {
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLONESHOT;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
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
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakeup_.get(), &one, sizeof(one));
}

void Device::Impl::publish(Time at) {
  if (forked_) return;  // the page belongs to the parent
  if (direct_path_) {
    counters_.queue_pairs_by_memory = direct_path_->queue_pairs();
    counters_.direct_transfers = direct_path_->moved().transfers;
    counters_.direct_bytes = direct_path_->moved().bytes;
  }
  counters_.kernel_drops = receiver_.kernel_drops();
  using Unshared = SharedRegions::Unshared;
  const SharedRegions::Counters shared = SharedRegions::of_process().counters();
  counters_.shared_files = shared.files;
  counters_.shared_bytes = shared.bytes;
  counters_.unshared_kind_of_memory = shared.unshared_for(Unshared::kind);
  counters_.unshared_because_of_devices = shared.unshared_for(Unshared::devices);
  counters_.unshared_because_of_threads = shared.unshared_for(Unshared::threads);
  counters_.unshared_registered_before = shared.unshared_for(Unshared::registered);
  counters_.unshared_for_want_of_room = shared.unshared_for(Unshared::room);
  if (fabric_ != nullptr) {
    const FabricPath::Counters& fabric = fabric_->counters();
    counters_.memory_packets_sent = fabric.sent;
    counters_.memory_packets_received = fabric.received;
    counters_.memory_packets_dropped = fabric.dropped + fabric.refused;
    counters_.memory_delays = fabric.delayed;
  }
  if (host_packets_) {
    const HostPackets::Counters& memory = host_packets_->counters();
    counters_.memory_packets_sent = memory.sent;
    counters_.memory_packets_received = memory.received;
    counters_.memory_packets_dropped = memory.dropped + memory.refused + memory.recalled;
    counters_.memory_delays = memory.delayed;
    counters_.doorbells = memory.doorbells;
  }
  page_.publish(*adapter_, counters_);
  published_ = at;
}

// All of this process's traffic must go through sockets while it is captured.
void Device::Impl::update_direct_path() {
  if (direct_path_) direct_path_->set_open(!tap_.is_open());
}

void Device::Impl::forget_in_child() {
  forked_ = true;
  sleeper_.forget_all();  // the channel's epoll is the parent's too
  is_awake_ = false;
  is_doorbell_taken_ = false;
  new (&mutex_) std::mutex;  // a thread that is not in the child may have held it
  agent_ = {};
  transmitter_.use(static_cast<HostPackets*>(nullptr));
  rings_ = nullptr;
  host_packets_.reset();
  if (fabric_ != nullptr) fabric_->forget_in_child();
  if (direct_path_) direct_path_->forget_in_child();
  // The port must be free once its users are gone, even if this child lives on. Descriptors keep
  // their numbers, which the program might otherwise be given for its own files.
  transmitter_.forget_vault();
  if (roce_v1_ != nullptr) roce_v1_->replace_sockets(wakeup_.get());
  const bool is_replaced = dup3(wakeup_.get(), socket_.get(), O_CLOEXEC) >= 0;
  if (!is_replaced) socket_.reset();  // the process's limit is below the number
}

}  // namespace tulle::live
