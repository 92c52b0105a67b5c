#include "shim/rdmacm/rsocket_datagram.h"

#include <arpa/inet.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "live/path/packets/kernel_socket.h"

namespace tulle::shim::rdmacm {
namespace {

constexpr std::uint32_t slot_bytes = 2048;
constexpr std::uint32_t address_header_bytes = 40;  // IBTA 11.4.1.2: in front of each UD datagram
constexpr std::uint32_t qp_number_mask = 0xFF'FFFF;

const sockaddr* as_address(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr*>(&storage);
}

std::vector<std::byte> key_of(const live::SocketAddress& address) {
  std::vector<std::byte> key(address.address.begin(), address.address.end());
  key.push_back(static_cast<std::byte>(address.port >> 8));
  key.push_back(static_cast<std::byte>(address.port));
  key.push_back(static_cast<std::byte>(address.family));
  return key;
}

DatagramHeader header_of(const live::SocketAddress& from) {
  DatagramHeader header;
  header.port = from.port;
  const bool is_ipv4 = from.family == AF_INET;
  header.version = is_ipv4 ? 4 : 6;
  header.length = is_ipv4 ? datagram_header_ipv4_bytes : datagram_header_ipv6_bytes;
  if (is_ipv4) {
    std::memcpy(header.address.data(), from.address.data(), 4);
  } else {
    const be32 flow = from.flow_information;
    std::memcpy(header.address.data(), &flow, sizeof flow);
    std::memcpy(header.address.data() + sizeof flow, from.address.data(), 16);
  }
  return header;
}

// Returns false if the bytes are not an rsocket's datagram.
bool read_header(std::span<const std::byte> bytes, DatagramHeader& header, sockaddr_storage& from) {
  if (bytes.size() < datagram_header_ipv4_bytes) return false;
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  const bool is_ipv4 = header.version == 4 && header.length == datagram_header_ipv4_bytes;
  const bool is_ipv6 = header.version == 6 && header.length == datagram_header_ipv6_bytes;
  if ((!is_ipv4 && !is_ipv6) || bytes.size() < header.length) return false;
  live::SocketAddress address;
  address.family = is_ipv4 ? AF_INET : AF_INET6;
  address.port = header.port;
  std::memcpy(address.address.data(), header.address.data() + (is_ipv4 ? 0 : 4), is_ipv4 ? 4 : 16);
  address.copy_to(from);
  return true;
}

std::size_t scatter(std::span<const std::byte> from, std::span<const iovec> to) {
  std::size_t done = 0;
  for (const iovec& each : to) {
    const std::size_t count = std::min(each.iov_len, from.size() - done);
    std::memcpy(each.iov_base, from.data() + done, count);
    done += count;
  }
  return done;
}

}  // namespace

int create_datagram(int domain, std::shared_ptr<Socket>& out) {
  auto datagram = std::make_shared<Datagram>(default_settings());
  if (const int error = datagram->open(domain); error != 0) return error;
  out = std::move(datagram);
  return 0;
}

int Datagram::open(int domain) {
  udp_ = live::kernel_socket(domain, SOCK_DGRAM).release();
  if (udp_ < 0) return errno;
  wait_fd_ = epoll_create1(EPOLL_CLOEXEC);
  news_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wait_fd_ < 0 || news_fd_ < 0) return errno;
  epoll_event event = {EPOLLIN, {}};
  return epoll_ctl(wait_fd_, EPOLL_CTL_ADD, news_fd_, &event) == 0 ? 0 : errno;
}

Datagram::Endpoint::~Endpoint() {
  if (id == nullptr) return;
  rdma_destroy_qp(id);
  send_buffer.reset();
  receive_buffer.reset();
  rdma_destroy_id(id);
}

Datagram::~Datagram() {
  if (udp_ >= 0) forget(udp_);
  for (auto& [key, peer] : peers_) {
    if (peer.handle != nullptr) ibv_destroy_ah(peer.handle);
  }
  endpoints_.clear();
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

int Datagram::bind(const sockaddr* address, socklen_t bytes) {
  const Lock lock(mutex_);
  if (::bind(udp_, address, bytes) != 0) return errno;
  return start();
}

int Datagram::connect(const sockaddr* address, socklen_t bytes) {
  if (address == nullptr || bytes < length_of(address)) return EINVAL;
  const Lock lock(mutex_);
  if (const int error = start(); error != 0) return error;
  if (::connect(udp_, address, bytes) != 0) return errno;
  return find_peer(address, connected_);
}

// Finds the address of this host from which datagrams to the destination come.
int Datagram::local_address(const sockaddr* destination, live::SocketAddress& out) const {
  sockaddr_storage found = {};
  socklen_t bytes = sizeof found;
  if (getsockname(udp_, reinterpret_cast<sockaddr*>(&found), &bytes) != 0) return errno;
  out = from_c(as_address(found));
  if (!out.is_wildcard()) return 0;
  const std::uint16_t port = out.port;
  const int probe = live::kernel_socket(destination->sa_family, SOCK_DGRAM).release();
  if (probe < 0) return errno;
  bytes = sizeof found;
  const bool known = ::connect(probe, destination, length_of(destination)) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&found), &bytes) == 0;
  const int error = known ? 0 : errno;
  ::close(probe);
  out = from_c(as_address(found));
  out.port = port;
  return error;
}

int Datagram::find_peer(const sockaddr* address, Peer*& out) {
  if (length_of(address) == 0) return EAFNOSUPPORT;
  const live::SocketAddress wanted = from_c(address);
  const auto key = key_of(wanted);
  if (const auto found = peers_.find(key); found != peers_.end()) {
    out = &found->second;
    return 0;
  }
  Peer peer;
  peer.address = wanted;
  live::SocketAddress local;
  if (const int error = local_address(address, local); error != 0) return error;
  if (const int error = find_endpoint(local, peer.endpoint); error != 0) return error;
  out = &peers_.emplace(key, peer).first->second;
  return 0;
}

int Datagram::find_endpoint(const live::SocketAddress& local, Endpoint*& out) {
  for (Endpoint& endpoint : endpoints_) {
    if (endpoint.local.gid() == local.gid()) {
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
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(nullptr, &id, this, RDMA_PS_UDP) != 0) return errno;
  endpoint.id = &Id::of(id);
  live::SocketAddress any_port = endpoint.local;
  any_port.port = 0;
  sockaddr_storage address = {};
  any_port.copy_to(address);
  if (rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&address)) != 0) return errno;
  if (id->verbs == nullptr) return ENODEV;
  ibv_qp_init_attr attributes = {};
  attributes.qp_type = IBV_QPT_UD;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 2;
  if (int error = create_queue_pair(*endpoint.id, settings_, attributes); error != 0) return error;
  int error = endpoint.send_buffer.create(id->pd, settings_.send_queue * slot_bytes,
                                          IBV_ACCESS_LOCAL_WRITE);
  if (error == 0) {
    error = endpoint.receive_buffer.create(
        id->pd, settings_.receive_queue * slot_bytes + address_header_bytes,
        IBV_ACCESS_LOCAL_WRITE);
  }
  if (error != 0) return error;
  ibv_port_attr port = {};
  if (ibv_query_port(id->verbs, id->port_num, &port) != 0) return errno;
  endpoint.datagram_max = std::min<std::size_t>(128u << port.active_mtu, slot_bytes);
  const Gid own = endpoint.local.gid();
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid = {};
    if (ibv_query_gid(id->verbs, id->port_num, i, &gid) != 0) continue;
    if (std::memcmp(gid.raw, own.bytes.data(), sizeof gid.raw) != 0) continue;
    endpoint.gid_index = static_cast<std::uint8_t>(i);
    break;
  }
  for (std::uint32_t i = 0; i < settings_.send_queue; ++i) endpoint.free_slots.push_back(i);
  for (std::uint32_t i = 0; i < settings_.receive_queue; ++i) {
    if (error = post_receive(endpoint, i); error != 0) return error;
  }
  const int channel = id->recv_cq_channel->fd;
  epoll_event event = {EPOLLIN, {}};
  if (epoll_ctl(wait_fd_, EPOLL_CTL_ADD, channel, &event) != 0) return errno;
  if (is_armed_) ibv_req_notify_cq(id->recv_cq, 0);
  return 0;
}

int Datagram::post_receive(Endpoint& endpoint, std::uint32_t slot) {
  const std::uint32_t key = endpoint.receive_buffer.region()->lkey;
  const std::uint64_t start = endpoint.receive_buffer.address();
  std::array<ibv_sge, 2> pieces = {
      {{start + std::uint64_t{settings_.receive_queue} * slot_bytes, address_header_bytes, key},
       {start + std::uint64_t{slot} * slot_bytes, slot_bytes, key}}};
  ibv_recv_wr request = {};
  request.wr_id = receive_flag | slot;
  request.sg_list = pieces.data();
  request.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(endpoint.id->qp, &request, &bad);
}

int Datagram::make_handle(Peer& peer, std::uint32_t qp_number) {
  if (peer.handle != nullptr) ibv_destroy_ah(peer.handle);
  ibv_ah_attr attributes = {};
  attributes.is_global = 1;
  attributes.port_num = peer.endpoint->id->port_num;
  // With RoCE v2, an address is its GID.
  const Gid destination = peer.address.gid();
  std::memcpy(attributes.grh.dgid.raw, destination.bytes.data(), sizeof attributes.grh.dgid.raw);
  attributes.grh.sgid_index = peer.endpoint->gid_index;
  attributes.grh.hop_limit = 64;
  peer.handle = ibv_create_ah(peer.endpoint->id->pd, &attributes);
  peer.qp_number = qp_number;
  return peer.handle != nullptr ? 0 : errno;
}

int Datagram::send_over_udp(const Peer& peer, std::span<const iovec> from, MessageType operation,
                            std::size_t& bytes) {
  UdpHeader header;
  const live::SocketAddress& local = peer.endpoint->local;
  const bool is_ipv4 = local.family == AF_INET;
  header.version = is_ipv4 ? 4 : 6;
  header.operation = static_cast<std::uint8_t>(operation);
  header.length = is_ipv4 ? udp_header_ipv4_bytes : udp_header_ipv6_bytes;
  header.qp_number = peer.endpoint->id->qp->qp_num;
  std::memcpy(header.address.data(), local.address.data(), is_ipv4 ? 4 : 16);
  std::vector<iovec> pieces = {{&header, header.length}};
  pieces.insert(pieces.end(), from.begin(), from.end());
  sockaddr_storage to = {};
  msghdr message = {};
  message.msg_name = &to;
  message.msg_namelen = peer.address.copy_to(to);
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t sent = sendmsg(udp_, &message, MSG_NOSIGNAL);
  if (sent < 0) return errno;
  bytes = static_cast<std::size_t>(sent) - header.length;
  return 0;
}

int Datagram::send_over_ud(Peer& peer, std::span<const iovec> from, std::size_t& bytes) {
  Endpoint& endpoint = *peer.endpoint;
  const std::uint32_t slot = endpoint.free_slots.back();
  std::byte* at = endpoint.send_buffer.data() + std::size_t{slot} * slot_bytes;
  const DatagramHeader header = header_of(endpoint.local);
  std::memcpy(at, &header, header.length);
  std::size_t length = header.length;
  for (const iovec& each : from) {
    std::memcpy(at + length, each.iov_base, each.iov_len);
    length += each.iov_len;
  }
  ibv_sge piece = {reinterpret_cast<std::uint64_t>(at), static_cast<std::uint32_t>(length),
                   endpoint.send_buffer.region()->lkey};
  ibv_send_wr request = {};
  request.wr_id = slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.wr.ud.ah = peer.handle;
  request.wr.ud.remote_qpn = peer.qp_number;
  request.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(endpoint.id->qp, &request, &bad); error != 0) return error;
  endpoint.free_slots.pop_back();
  bytes = length - header.length;
  return 0;
}

int Datagram::send(std::span<const iovec> from, int call_flags, const sockaddr* to, socklen_t,
                   std::size_t& bytes) {
  Lock lock(mutex_);
  if (is_shut_) return EPIPE;
  if (const int error = start(); error != 0) return error;
  Peer* peer = connected_;
  if (to != nullptr) {
    if (const int error = find_peer(to, peer); error != 0) return error;
  }
  if (peer == nullptr) return EDESTADDRREQ;
  const std::size_t header_max =
      peer->address.family == AF_INET ? datagram_header_ipv4_bytes : datagram_header_ipv6_bytes;
  if (total_bytes(from) + header_max > peer->endpoint->datagram_max) return EMSGSIZE;
  if (peer->handle == nullptr) return send_over_udp(*peer, from, MessageType::data, bytes);
  const int error = await(lock, !never_blocks(call_flags),
                          [peer] { return !peer->endpoint->free_slots.empty(); });
  return error != 0 ? error : send_over_ud(*peer, from, bytes);
}

void Datagram::handle_received(Endpoint& endpoint, const ibv_wc& completion) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  Arrived arrived;
  DatagramHeader header;
  if (completion.status == IBV_WC_SUCCESS && completion.byte_len >= address_header_bytes) {
    const std::span<const std::byte> bytes = {
        endpoint.receive_buffer.data() + std::size_t{slot} * slot_bytes,
        completion.byte_len - address_header_bytes};
    if (read_header(bytes, header, arrived.from)) {
      arrived.endpoint = &endpoint;
      arrived.slot = slot;
      arrived.offset = header.length;
      arrived.length = static_cast<std::uint32_t>(bytes.size()) - header.length;
      arrived_.push_back(std::move(arrived));
      return;
    }
  }
  if (completion.status == IBV_WC_SUCCESS) post_receive(endpoint, slot);
}

void Datagram::poll_completions() {
  std::array<ibv_wc, 16> completions;
  for (Endpoint& endpoint : endpoints_) {
    int count = 0;
    do {
      count = ibv_poll_cq(endpoint.id->recv_cq, completions.size(), completions.data());
      for (int i = 0; i < count; ++i) {
        const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
        if ((completion.wr_id & receive_flag) != 0) {
          handle_received(endpoint, completion);
        } else {
          endpoint.free_slots.push_back(static_cast<std::uint32_t>(completion.wr_id));
        }
      }
    } while (count == static_cast<int>(completions.size()));
  }
}

bool Datagram::can_send() const {
  return std::all_of(endpoints_.begin(), endpoints_.end(),
                     [](const Endpoint& endpoint) { return !endpoint.free_slots.empty(); });
}

void Datagram::arm_all() {
  is_armed_ = true;
  for (Endpoint& endpoint : endpoints_) ibv_req_notify_cq(endpoint.id->recv_cq, 0);
}

void Datagram::take_events() {
  std::uint64_t ignored = 0;
  bool found = read(news_fd_, &ignored, sizeof ignored) > 0;
  for (Endpoint& endpoint : endpoints_) {
    found = take_completion_events(*endpoint.id->recv_cq_channel) || found;
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
    const int error = sleepers_.sleep(lock, wait_fd_);
    take_events();
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
  std::span<const std::byte> data = first.bytes;
  if (first.endpoint != nullptr) {
    data = {
        first.endpoint->receive_buffer.data() + std::size_t{first.slot} * slot_bytes + first.offset,
        first.length};
  }
  bytes = scatter(data, into);
  if (from != nullptr) *from = first.from;
  if ((call_flags & MSG_PEEK) != 0) return 0;
  if (first.endpoint != nullptr) post_receive(*first.endpoint, first.slot);
  arrived_.pop_front();
  return 0;
}

// Handles what came over UDP: data from a peer that does not know this side's queue pair, or a
// peer's answer that names its queue pair.
void Datagram::handle_udp(std::span<const std::byte> datagram, const sockaddr_storage& from) {
  UdpHeader header;
  if (datagram.size() < udp_header_ipv4_bytes) return;
  std::memcpy(&header, datagram.data(), std::min(datagram.size(), sizeof header));
  const bool is_ipv4 =
      header.version == 4 && header.length == udp_header_ipv4_bytes && from.ss_family == AF_INET;
  const bool is_ipv6 =
      header.version == 6 && header.length == udp_header_ipv6_bytes && from.ss_family == AF_INET6;
  if (header.tag != udp_tag || (!is_ipv4 && !is_ipv6)) return;
  if (datagram.size() < header.length) return;
  Peer* peer = nullptr;
  if (find_peer(as_address(from), peer) != 0) return;
  const bool is_data = header.operation == static_cast<std::uint8_t>(MessageType::data);
  std::size_t ignored = 0;
  if (is_data) send_over_udp(*peer, {}, MessageType::control, ignored);
  const std::uint32_t qp_number = header.qp_number & qp_number_mask;
  if (peer->handle == nullptr || peer->qp_number != qp_number) make_handle(*peer, qp_number);
  // A peer whose data the program never reads must not fill this side's memory.
  if (!is_data || arrived_.size() >= 2 * std::size_t{settings_.receive_queue}) return;
  const auto data = datagram.subspan(header.length);
  Arrived arrived;
  arrived.from = from;
  arrived.bytes.assign(data.begin(), data.end());
  arrived_.push_back(std::move(arrived));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(news_fd_, &one, sizeof one);
}

void Datagram::on_readable() {
  std::array<std::byte, slot_bytes + sizeof(UdpHeader)> buffer;
  for (;;) {
    sockaddr_storage from = {};
    socklen_t bytes = sizeof from;
    const ssize_t count = recvfrom(udp_, buffer.data(), buffer.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&from), &bytes);
    if (count < 0) {
      // ECONNREFUSED says that nothing listens at a peer's port, which does not end this socket.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED) return;
      return forget(udp_);
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
  take_events();
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
  return getsockname(udp_, reinterpret_cast<sockaddr*>(&out), &bytes) == 0 ? 0 : errno;
}

int Datagram::peer_name(sockaddr_storage& out) {
  socklen_t bytes = sizeof out;
  return getpeername(udp_, reinterpret_cast<sockaddr*>(&out), &bytes) == 0 ? 0 : errno;
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

}  // namespace tulle::shim::rdmacm
