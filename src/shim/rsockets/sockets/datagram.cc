#include "shim/rsockets/sockets/datagram.h"

#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "shim/rsockets/protocol/vectors.h"

namespace tulle::rsockets {

namespace {

constexpr std::uint32_t slot_bytes = 2048;
constexpr int datagrams_in_a_turn = 64;  // of those that came over UDP
constexpr std::chrono::seconds look_again_after{1};
constexpr std::uint32_t address_header_bytes = 40;  // IBTA 11.4.1.2: in front of each UD datagram

const sockaddr& as_address(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr&>(storage);
}

sockaddr& as_address(sockaddr_storage& storage) { return reinterpret_cast<sockaddr&>(storage); }

// Returns the key of an address whatever its port is.
PeerKey host_of(const sockaddr_storage& address) {
  PeerKey key = PeerKey::of(as_address(address));
  key.port = 0;
  return key;
}

std::span<std::byte> slot_of(const RegisteredBuffer& buffer, std::uint32_t slot) {
  return buffer.bytes().subspan(std::size_t{slot} * slot_bytes, slot_bytes);
}

bool is_wildcard(const sockaddr_storage& address) {
  return host_of(address).address == std::array<std::byte, 16>{};
}

void copy_port(const sockaddr_storage& from, sockaddr_storage& to) {
  const std::uint16_t port = PeerKey::of(as_address(from)).port;
  if (to.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(to).sin_port = port;
  if (to.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(to).sin6_port = port;
}

}  // namespace

int create_datagram(Device& device, int domain, std::shared_ptr<Socket>& out) {
  auto datagram = std::make_shared<Datagram>(default_settings(), device);
  if (const int error = datagram->open(domain); error != 0) return error;
  out = std::move(datagram);
  return 0;
}

int Datagram::open(int domain) {
  udp_ = device_.kernel_socket(domain);
  if (udp_ < 0) return errno;
  wait_fd_ = epoll_create1(EPOLL_CLOEXEC);
  news_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wait_fd_ < 0 || news_fd_ < 0) return errno;
  epoll_event event = {EPOLLIN, {}};
  return epoll_ctl(wait_fd_, EPOLL_CTL_ADD, news_fd_, &event) == 0 ? 0 : errno;
}

Datagram::~Datagram() {
  if (udp_ >= 0) forget(udp_);
  for (const int fd : {udp_, wait_fd_, news_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

// Fixes the sizes of queues and buffers. From now on the service answers peers.
int Datagram::start() {
  if (is_started_) return 0;
  const auto slots = [](std::uint32_t queue, std::uint32_t bytes) {
    return std::max(std::min(queue, bytes / slot_bytes), 1u);
  };
  settings_.send_queue = slots(settings_.send_queue, settings_.send_buffer_bytes);
  settings_.receive_queue = slots(settings_.receive_queue, settings_.receive_buffer_bytes);
  is_started_ = true;
  watch(udp_, shared_from_this());
  return 0;
}

int Datagram::bind(const sockaddr_storage& address) {
  const Lock lock(mutex_);
  if (::bind(udp_, &as_address(address), sizeof address) != 0) return errno;
  return start();
}

int Datagram::connect(const sockaddr_storage& address) {
  const Lock lock(mutex_);
  if (const int error = start(); error != 0) return error;
  if (::connect(udp_, &as_address(address), sizeof address) != 0) return errno;
  if (address.ss_family == AF_UNSPEC) {
    connected_ = nullptr;
    return 0;
  }
  return find_peer(address, connected_);
}

// Finds the address of this host from which datagrams to the destination come.
int Datagram::local_address(const sockaddr_storage& destination, sockaddr_storage& out) const {
  sockaddr_storage bound = {};
  socklen_t bytes = sizeof bound;
  if (getsockname(udp_, &as_address(bound), &bytes) != 0) return errno;
  out = bound;
  if (!is_wildcard(bound)) return 0;
  const int probe = device_.kernel_socket(destination.ss_family);
  if (probe < 0) return errno;
  bytes = sizeof out;
  const bool known = ::connect(probe, &as_address(destination), sizeof destination) == 0 &&
                     getsockname(probe, &as_address(out), &bytes) == 0;
  const int error = known ? 0 : errno;
  ::close(probe);
  copy_port(bound, out);
  return error;
}

int Datagram::find_peer(const sockaddr_storage& address, PeerHandle& out) {
  const PeerKey key = PeerKey::of(as_address(address));
  out = peers_.find(key);
  if (out != nullptr) return 0;
  auto peer = std::make_shared<Peer>();
  peer->address = address;
  sockaddr_storage local = {};
  if (const int error = local_address(address, local); error != 0) return error;
  if (const int error = find_endpoint(local, peer->endpoint); error != 0) return error;
  peers_.add(key, peer);
  out = std::move(peer);
  return 0;
}

int Datagram::find_endpoint(const sockaddr_storage& local, Endpoint*& out) {
  for (Endpoint& endpoint : endpoints_) {
    if (host_of(endpoint.local) == host_of(local)) {
      out = &endpoint;
      return 0;
    }
  }
  Endpoint& endpoint = endpoints_.emplace_back();
  endpoint.local = local;
  if (const int error = create_endpoint(endpoint); error != 0) {
    endpoints_.pop_back();
    return error;
  }
  out = &endpoint;
  return 0;
}

int Datagram::create_endpoint(Endpoint& endpoint) {
  int error = device_.create_datagram_queue(endpoint.local, settings_, endpoint.queue);
  if (error != 0) return error;
  DatagramQueue& queue = *endpoint.queue;
  error = endpoint.send_buffer.create(queue, settings_.send_queue * slot_bytes, false);
  if (error == 0) {
    error = endpoint.receive_buffer.create(
        queue, settings_.receive_queue * slot_bytes + address_header_bytes, false);
  }
  if (error != 0) return error;
  const std::size_t header_bytes = datagram_header(as_address(endpoint.local)).length;
  endpoint.data_max = std::min<std::size_t>(queue.mtu_bytes(), slot_bytes) - header_bytes;
  for (std::uint32_t i = 0; i < settings_.send_queue; ++i) endpoint.free_slots.push_back(i);
  for (std::uint32_t i = 0; i < settings_.receive_queue; ++i) {
    if (error = post_receive(endpoint, i); error != 0) return error;
  }
  epoll_event event = {EPOLLIN, {}};
  if (epoll_ctl(wait_fd_, EPOLL_CTL_ADD, queue.completion_fd(), &event) != 0) return errno;
  if (is_armed_) queue.arm();
  return 0;
}

int Datagram::post_receive(Endpoint& endpoint, std::uint32_t slot) {
  const RegisteredBuffer& buffer = endpoint.receive_buffer;
  return endpoint.queue->post_receive(slot, buffer.bytes().last(address_header_bytes),
                                      slot_of(buffer, slot), buffer.local_key());
}

// Looks aside for the way to the peer: anybody can name a peer that never answers, and the device
// may wait for it. Until the way is known, datagrams to the peer go over UDP.
void Datagram::find_way(const PeerHandle& peer) {
  if (peer->is_looked_for || Clock::now() < peer->look_again) return;
  const auto look = [peer, weak = weak_from_this()] {
    const std::shared_ptr<Datagram> socket = weak.lock();
    if (socket == nullptr) return;
    std::unique_ptr<AddressHandle> handle;
    int error = ENOMEM;
    try {
      error = peer->endpoint->queue->make_handle(peer->address, handle);
    } catch (const std::bad_alloc&) {
    }
    const Lock lock(socket->mutex_);
    peer->is_looked_for = false;
    if (error == 0) peer->handle = std::move(handle);
    if (error != 0) peer->look_again = Clock::now() + look_again_after;
  };
  peer->is_looked_for = run_aside(Aside::ways, look);
}

int Datagram::send_over_udp(const Peer& peer, std::span<const iovec> from, bool has_data,
                            std::size_t& bytes) {
  HeaderBytes header =
      udp_header(as_address(peer.endpoint->local), peer.endpoint->queue->qp_number(), has_data);
  std::vector<iovec> pieces = {{header.bytes.data(), header.length}};
  pieces.insert(pieces.end(), from.begin(), from.end());
  sockaddr_storage to = peer.address;
  msghdr message = {};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  // Datagrams to a neighbour that does not exist fill the socket's send buffer for seconds. Nobody
  // waits for room with the lock held.
  const ssize_t sent = sendmsg(udp_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno;
  bytes = static_cast<std::size_t>(sent) - header.length;
  return 0;
}

bool Datagram::has_udp_room() const {
  pollfd udp = {udp_, POLLOUT, 0};
  return poll(&udp, 1, 0) > 0 && (udp.revents & POLLOUT) != 0;
}

// From now on room in the UDP socket makes wait_fd_ readable.
int Datagram::note_udp_full() {
  if (is_udp_full_) return 0;
  epoll_event event = {EPOLLOUT, {}};
  if (epoll_ctl(wait_fd_, EPOLL_CTL_ADD, udp_, &event) != 0) return errno;
  is_udp_full_ = true;
  return 0;
}

int Datagram::send_over_ud(Peer& peer, std::span<const iovec> from, std::size_t& bytes) {
  Endpoint& endpoint = *peer.endpoint;
  const std::uint32_t slot = endpoint.free_slots.back();
  const std::span<std::byte> to = slot_of(endpoint.send_buffer, slot);
  const HeaderBytes header = datagram_header(as_address(endpoint.local));
  const std::size_t data_bytes = total_bytes(from);
  std::memcpy(to.data(), header.bytes.data(), header.length);
  gather(from, 0, to.subspan(header.length, data_bytes));
  const int error =
      endpoint.queue->post_send(slot, to.first(header.length + data_bytes),
                                endpoint.send_buffer.local_key(), *peer.handle, peer.qp_number);
  if (error != 0) return error;
  endpoint.free_slots.pop_back();
  bytes = data_bytes;
  return 0;
}

int Datagram::send(std::span<const iovec> from, int call_flags, const sockaddr_storage* to,
                   std::size_t& bytes) {
  Lock lock(mutex_);
  if (is_shut_) return EPIPE;
  if (const int error = start(); error != 0) return error;
  PeerHandle peer = connected_;
  if (to != nullptr) {
    if (const int error = find_peer(*to, peer); error != 0) return error;
  }
  if (peer == nullptr) return EDESTADDRREQ;
  if (total_bytes(from) > peer->endpoint->data_max) return EMSGSIZE;
  while (peer->handle == nullptr) {
    int error = send_over_udp(*peer, from, true, bytes);
    if (error != EAGAIN) return error;
    error = note_udp_full();
    if (error == 0) {
      error = await(lock, !never_blocks(call_flags), [this] { return is_shut_ || !is_udp_full_; });
    }
    if (error != 0) return error;
    if (is_shut_) return EPIPE;
  }
  const int error = await(lock, !never_blocks(call_flags),
                          [&peer] { return !peer->endpoint->free_slots.empty(); });
  return error != 0 ? error : send_over_ud(*peer, from, bytes);
}

void Datagram::handle_received(Endpoint& endpoint, const Completion& completion) {
  if (!completion.succeeded) return;
  const auto slot = static_cast<std::uint32_t>(completion.work_id);
  const std::size_t bytes =
      std::clamp(completion.bytes, address_header_bytes, address_header_bytes + slot_bytes) -
      address_header_bytes;
  const auto datagram = read_datagram(slot_of(endpoint.receive_buffer, slot).first(bytes));
  if (!datagram) {
    post_receive(endpoint, slot);
    return;
  }
  Arrived arrived;
  arrived.from = datagram->sender;
  arrived.endpoint = &endpoint;
  arrived.slot = slot;
  arrived.data = datagram->data;
  arrived_.push_back(std::move(arrived));
}

void Datagram::poll_completions() {
  std::array<Completion, 16> completions;
  for (Endpoint& endpoint : endpoints_) {
    int count = 0;
    do {
      count = endpoint.queue->poll(completions);
      for (int i = 0; i < count; ++i) {
        const Completion& completion = completions[static_cast<std::size_t>(i)];
        if (completion.is_receive) {
          handle_received(endpoint, completion);
        } else {
          endpoint.free_slots.push_back(static_cast<std::uint32_t>(completion.work_id));
        }
      }
    } while (count == static_cast<int>(completions.size()));
  }
}

bool Datagram::can_send() const {
  if (is_udp_full_ && !has_udp_room()) return false;
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return !endpoint.free_slots.empty(); });
}

void Datagram::arm_all() {
  is_armed_ = true;
  for (Endpoint& endpoint : endpoints_) endpoint.queue->arm();
}

void Datagram::take_events() {
  std::uint64_t ignored = 0;
  bool found = read(news_fd_, &ignored, sizeof ignored) > 0;
  for (Endpoint& endpoint : endpoints_) {
    found = endpoint.queue->take_events() || found;
  }
  if (is_udp_full_ && has_udp_room()) {
    epoll_ctl(wait_fd_, EPOLL_CTL_DEL, udp_, nullptr);
    is_udp_full_ = false;
    found = true;
  }
  if (!found) return;
  is_armed_ = false;
  sleepers_.wake();
  wake_pollers();
}

int Datagram::await(Lock& lock, bool may_block, const std::function<bool()>& condition) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    poll_completions();
    if (condition()) return 0;
    if (!may_block) return EAGAIN;
    if (Clock::now() - start < settings_.polling) {
      lock.unlock();
      lock.lock();
      continue;
    }
    if (!is_armed_) {
      arm_all();
      continue;
    }
    const int error = sleepers_.sleep(lock, wait_fd_, [this] { take_events(); });
    if (error != 0) return error;
  }
}

int Datagram::receive(std::span<const iovec> into, int call_flags, sockaddr_storage* from,
                      std::size_t& bytes) {
  Lock lock(mutex_);
  const int error =
      await(lock, !never_blocks(call_flags), [this] { return !arrived_.empty() || is_shut_; });
  if (error != 0) return error;
  bytes = 0;
  if (arrived_.empty()) return 0;
  const Arrived& first = arrived_.front();
  const std::span<const std::byte> data = first.endpoint != nullptr ? first.data : first.bytes;
  bytes = data.size();
  scatter(data, into, 0);
  if (from != nullptr) *from = first.from;
  if ((call_flags & MSG_PEEK) != 0) return 0;
  if (first.endpoint != nullptr) post_receive(*first.endpoint, first.slot);
  arrived_.pop_front();
  return 0;
}

// Handles what came over UDP: data from a peer that does not know this side's queue pair, or a
// peer's answer that names its queue pair.
void Datagram::handle_udp(std::span<const std::byte> bytes, const sockaddr_storage& from) {
  const auto datagram = read_udp(bytes, from.ss_family);
  PeerHandle peer;
  if (!datagram || find_peer(from, peer) != 0) return;
  std::size_t ignored = 0;
  // Answers leave half of the send buffer to the program. A peer that gets none asks again.
  if (datagram->has_data && has_udp_room()) send_over_udp(*peer, {}, false, ignored);
  const bool is_new = peer->handle == nullptr || peer->qp_number != datagram->qp_number;
  peer->qp_number = datagram->qp_number;
  if (is_new) find_way(peer);
  // A peer whose data the program never reads must not fill this side's memory.
  if (!datagram->has_data || arrived_.size() >= 2 * std::size_t{settings_.receive_queue}) return;
  Arrived arrived;
  arrived.from = from;
  arrived.bytes.assign(datagram->data.begin(), datagram->data.end());
  arrived_.push_back(std::move(arrived));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(news_fd_, &one, sizeof one);
}

void Datagram::on_readable() {
  std::array<std::byte, slot_bytes + sizeof(UdpHeader)> buffer;
  for (int i = 0; i < datagrams_in_a_turn; ++i) {
    sockaddr_storage from = {};
    socklen_t bytes = sizeof from;
    const ssize_t count =
        recvfrom(udp_, buffer.data(), buffer.size(), MSG_DONTWAIT, &as_address(from), &bytes);
    if (count < 0) {
      // Other errors are what somebody on the way says of one datagram (ip(7)): the peer's port is
      // closed, a host cannot be reached. They do not end this socket.
      if (errno == EBADF || errno == ENOTSOCK) forget(udp_);
      return;
    }
    const Lock lock(mutex_);
    handle_udp({buffer.data(), static_cast<std::size_t>(count)}, from);
  }
}

short Datagram::ready(short events) {
  const Lock lock(mutex_);
  poll_completions();
  int out = 0;
  if (!arrived_.empty() || is_shut_) out |= events & POLLIN;
  if (can_send() && !is_shut_) out |= events & POLLOUT;
  return static_cast<short>(out);
}

int Datagram::arm() {
  const Lock lock(mutex_);
  if (!is_armed_) arm_all();
  return wait_fd_;
}

void Datagram::drain() {
  const Lock lock(mutex_);
  if (!sleepers_.has_one_on_descriptor()) take_events();
}

int Datagram::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  Lock lock(mutex_);
  is_shut_ = true;
  const auto all_sent = [this] {
    return std::all_of(endpoints_.begin(), endpoints_.end(), [this](const Endpoint& endpoint) {
      return endpoint.free_slots.size() == settings_.send_queue;
    });
  };
  const int error = await(lock, true, all_sent);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(news_fd_, &one, sizeof one);
  return error;
}

void Datagram::close() {
  forget(udp_);
  shutdown(SHUT_RDWR);
}

int Datagram::local_name(sockaddr_storage& out) {
  socklen_t bytes = sizeof out;
  return getsockname(udp_, &as_address(out), &bytes) == 0 ? 0 : errno;
}

int Datagram::peer_name(sockaddr_storage& out) {
  socklen_t bytes = sizeof out;
  return getpeername(udp_, &as_address(out), &bytes) == 0 ? 0 : errno;
}

int Datagram::set_option(int level, int option, const void* value, socklen_t bytes) {
  const Lock lock(mutex_);
  std::uint32_t number = 0;
  if (value == nullptr || bytes < sizeof number) return EINVAL;
  std::memcpy(&number, value, sizeof number);
  if (level == SOL_RDMA) {
    if (is_started_) return EINVAL;
    if (option == RDMA_SQSIZE) settings_.send_queue = std::min(number, queue_max);
    if (option == RDMA_RQSIZE) settings_.receive_queue = std::min(number, queue_max);
    if (option == RDMA_INLINE) settings_.inline_bytes = std::min(number, queue_max);
    return option <= RDMA_INLINE ? 0 : ENOTSUP;
  }
  if (setsockopt(udp_, level, option, value, bytes) != 0) return errno;
  if (level != SOL_SOCKET || is_started_) return 0;
  if (option == SO_RCVBUF) settings_.receive_buffer_bytes = 2 * number;
  if (option == SO_SNDBUF) settings_.send_buffer_bytes = 2 * number;
  return 0;
}

int Datagram::get_option(int level, int option, void* value, socklen_t& bytes) {
  const Lock lock(mutex_);
  int number = 0;
  if (level == SOL_RDMA) {
    if (option == RDMA_SQSIZE) number = static_cast<int>(settings_.send_queue);
    if (option == RDMA_RQSIZE) number = static_cast<int>(settings_.receive_queue);
    if (option == RDMA_INLINE) number = static_cast<int>(settings_.inline_bytes);
    if (option > RDMA_INLINE) return ENOTSUP;
  } else if (level == SOL_SOCKET && option == SO_RCVBUF) {
    number = static_cast<int>(settings_.receive_buffer_bytes);
  } else if (level == SOL_SOCKET && option == SO_SNDBUF) {
    number = static_cast<int>(settings_.send_buffer_bytes);
  } else {
    return getsockopt(udp_, level, option, value, &bytes) == 0 ? 0 : errno;
  }
  bytes = std::min<socklen_t>(bytes, sizeof number);
  std::memcpy(value, &number, bytes);
  return 0;
}

int Datagram::set_flags(int flags) {
  const Lock lock(mutex_);
  flags_ = flags;
  return 0;
}

}  // namespace tulle::rsockets
