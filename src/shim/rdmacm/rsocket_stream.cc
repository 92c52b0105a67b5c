// Streams: connecting, accepting, shutting down and closing.

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "shim/rdmacm/rsocket_stream.h"

namespace tulle::shim::rdmacm {

using rsockets::ConnectionData;
using rsockets::Control;
using rsockets::StreamSender;

namespace {

constexpr int resolve_retries_max = 6;
constexpr std::uint8_t retries_without_end = 7;

std::span<const std::byte> private_data_of(const rdma_cm_event& event) {
  const rdma_conn_param& parameters = event.param.conn;
  return {static_cast<const std::byte*>(parameters.private_data), parameters.private_data_len};
}

}  // namespace

int create_stream(int domain, std::shared_ptr<Socket>& out) {
  auto stream = std::make_shared<Stream>(default_settings());
  if (const int error = stream->open(domain); error != 0) return error;
  out = std::move(stream);
  return 0;
}

int Stream::open(int domain) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(nullptr, &id, this, RDMA_PS_TCP) != 0) return errno;
  id_ = &Id::of(id);
  // The channel never blocks: where this side waits, it polls the descriptor.
  fcntl(id_->channel->fd, F_SETFL, O_NONBLOCK);
  id_->route.addr.src_storage.ss_family = static_cast<sa_family_t>(domain);
  return 0;
}

Stream::~Stream() {
  if (id_ == nullptr) return;
  forget(fd());
  for (ibv_mr* map : maps_) ibv_dereg_mr(map);
  rdma_destroy_qp(id_);
  send_buffer_.reset();
  receive_buffer_.reset();
  targets_.reset();
  if (accepted_fd_ >= 0) ::close(accepted_fd_);
  rdma_destroy_id(id_);
}

int Stream::bind(const sockaddr* address, socklen_t bytes) {
  if (address == nullptr || bytes < length_of(address) || length_of(address) == 0) return EINVAL;
  const Lock lock(mutex_);
  if (state_ != State::idle) return EINVAL;
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(address)) != 0) return errno;
  state_ = State::bound;
  return 0;
}

int Stream::listen(int backlog) {
  const Lock lock(mutex_);
  if (state_ == State::listening) return 0;
  if (state_ != State::idle && state_ != State::bound) return EINVAL;
  if (rdma_listen(id_, backlog) != 0) return errno;
  accepted_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  if (accepted_fd_ < 0) return errno;
  state_ = State::listening;
  watch(fd(), shared_from_this());
  return 0;
}

int Stream::accept(std::shared_ptr<Socket>& out) {
  for (;;) {
    {
      const Lock lock(mutex_);
      if (state_ != State::listening) return EINVAL;
      if (!accepted_.empty()) {
        std::uint64_t ignored = 0;
        [[maybe_unused]] const ssize_t taken = read(accepted_fd_, &ignored, sizeof ignored);
        out = std::move(accepted_.front());
        accepted_.pop_front();
        return 0;
      }
    }
    if (never_blocks(0)) return EAGAIN;
    if (const int error = wait_readable(accepted_fd_); error != 0) return error;
  }
}

// The service calls this function when requests wait at a listener.
void Stream::accept_requests() {
  for (;;) {
    rdma_cm_id* request = nullptr;
    if (rdma_get_request(id_, &request) != 0) {
      if (errno != EAGAIN && errno != EINTR) {
        const Lock lock(mutex_);
        // Only ENODEV, the end of the host agent, means that no more requests come.
        if (errno == ENODEV) forget(fd());
      }
      return;
    }
    auto stream = std::make_shared<Stream>(settings_);
    stream->listener_ = weak_from_this();
    const int error = stream->answer_request(Id::of(request));
    if (error == EAGAIN) {
      const Lock lock(mutex_);
      accepting_.push_back(stream);
      watch(stream->fd(), stream);
      continue;
    }
    if (error != 0) rdma_reject(request, nullptr, 0);
    deliver(std::move(stream), error);
  }
}

int Stream::answer_request(Id& request) {
  const Lock lock(mutex_);
  id_ = &request;
  fcntl(id_->channel->fd, F_SETFL, O_NONBLOCK);
  id_->context = this;
  rdma_conn_param parameters = request.event->param.conn;
  const std::span<const std::byte> peer_data = private_data_of(*request.event);
  if (!rsockets::StreamProtocol::is_known(peer_data)) return EINVAL;
  if (const int error = create_endpoint(); error != 0) return error;
  if (const int error = protocol_.open(peer_data); error != 0) return error;
  const ConnectionData data = protocol_.own_data();
  parameters.private_data = &data;
  parameters.private_data_len = sizeof data;
  if (rdma_accept(&request, &parameters) == 0) return finish_step();
  if (errno != EAGAIN) return errno;
  state_ = State::accepting;
  is_waiting_ = true;
  return EAGAIN;
}

// A connection that was on its way is established, or failed with `error`. An established one waits
// for accept() from now on.
void Stream::deliver(std::shared_ptr<Stream> stream, int error) {
  {
    const Lock lock(mutex_);
    accepting_.remove(stream);
    if (error != 0 || is_closed_) return;
    watch(stream->fd(), stream);
    accepted_.push_back(std::move(stream));
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(accepted_fd_, &one, sizeof one);
  }
  wake_pollers();
}

int Stream::connect(const sockaddr* address, socklen_t bytes) {
  if (address == nullptr || bytes < length_of(address) || length_of(address) == 0) return EINVAL;
  Lock lock(mutex_);
  if (is_connected()) return EISCONN;
  if (is_opening()) return EALREADY;
  if (state_ != State::idle && state_ != State::bound) return EINVAL;
  std::memcpy(&destination_, address, length_of(address));
  state_ = State::resolving_address;
  const int error = advance();
  if (error != EAGAIN) return error;
  if (never_blocks(0)) {
    watch(fd(), shared_from_this());
    return EINPROGRESS;
  }
  return ensure_connected(0, lock);
}

int Stream::start_step() {
  const int timeout = 1000 << retries_;
  switch (state_) {
    case State::resolving_address:
      return rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&destination_), timeout) ==
                     0
                 ? 0
                 : errno;
    case State::resolving_route:
      if (route_.empty()) return rdma_resolve_route(id_, timeout) == 0 ? 0 : errno;
      if (rdma_set_option(id_, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, route_.data(), route_.size()) !=
          0) {
        return errno;
      }
      return complete(*id_);
    case State::connecting: {
      if (const int error = create_endpoint(); error != 0) return error;
      const ConnectionData data = protocol_.own_data();
      rdma_conn_param parameters = {};
      parameters.private_data = &data;
      parameters.private_data_len = sizeof data;
      parameters.flow_control = 1;
      parameters.retry_count = retries_without_end;
      parameters.rnr_retry_count = retries_without_end;
      return rdma_connect(id_, &parameters) == 0 ? 0 : errno;
    }
    default:
      return EINVAL;
  }
}

// Finishes the step that was under way, and enters the next state.
int Stream::finish_step() {
  retries_ = 0;
  switch (state_) {
    case State::resolving_address:
      state_ = State::resolving_route;
      return 0;
    case State::resolving_route:
      state_ = State::connecting;
      return 0;
    case State::connecting:
      if (const int error = protocol_.open(private_data_of(*id_->event)); error != 0) return error;
      break;
    default:
      break;
  }
  state_ = State::established;
  if (keep_alive_ != 0) schedule_keep_alive();
  sleepers_.wake();
  return 0;
}

int Stream::advance() {
  while (is_opening()) {
    int error = is_waiting_ ? complete(*id_) : start_step();
    if (error == EAGAIN) {
      is_waiting_ = true;
      return EAGAIN;
    }
    if (error == EINTR) return error;
    is_waiting_ = false;
    const bool is_resolving =
        state_ == State::resolving_address || state_ == State::resolving_route;
    if (error == ETIMEDOUT && is_resolving && ++retries_ <= resolve_retries_max) continue;
    if (error == 0) error = finish_step();
    if (error != 0) return fail_connecting(error);
  }
  return 0;
}

int Stream::fail_connecting(int error) {
  state_ = State::refused;
  error_ = error;
  sleepers_.wake();
  return error;
}

// Calls that need a connection call this function, which finishes a connection that is under way.
int Stream::ensure_connected(int call_flags, Lock& lock) {
  const bool was_opening = is_opening();
  while (is_opening()) {
    const int error = advance();
    if (error != EAGAIN) return error;
    if (never_blocks(call_flags)) return EAGAIN;
    lock.unlock();
    const int interrupted = wait_readable(fd());
    lock.lock();
    if (interrupted != 0) return interrupted;
  }
  if (was_opening && is_connected()) watch(fd(), shared_from_this());
  return was_connected() ? 0 : ENOTCONN;
}

int Stream::create_endpoint() {
  if (id_->qp != nullptr) return 0;
  set_queue_sizes(*id_, settings_);
  ibv_qp_init_attr attributes = {};
  attributes.qp_context = this;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_sge = 2;
  attributes.cap.max_recv_sge = 1;
  if (const int error = create_queue_pair(*id_, settings_, attributes); error != 0) return error;
  inline_bytes_ = attributes.cap.max_inline_data;

  const std::uint32_t half = settings_.receive_buffer_bytes / 2;
  settings_.receive_buffer_bytes = 2 * half;
  rsockets::SocketSizes sizes = settings_;
  sizes.inline_bytes = inline_bytes_;
  constexpr int peer_writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  int error =
      send_buffer_.create(id_->pd, StreamSender::buffer_bytes(sizes), IBV_ACCESS_LOCAL_WRITE);
  if (error == 0) {
    error = targets_.create(id_->pd, rsockets::StreamProtocol::targets_bytes(sizes), peer_writes);
  }
  if (error == 0) {
    error = receive_buffer_.create(id_->pd, settings_.receive_buffer_bytes, peer_writes);
  }
  if (error != 0) return error;
  protocol_.start({send_buffer_.bytes(),
                   {receive_buffer_.bytes(), receive_buffer_.region()->rkey},
                   {targets_.bytes(), targets_.region()->rkey}},
                  sizes);
  return post_receives(settings_.receive_queue);
}

void Stream::fail(int error) {
  protocol_.fail(error);
  sleepers_.wake();
}

// Ends the connection if the connection manager reports that the peer is gone, perhaps without a
// message of its own, or if the host agent is gone.
void Stream::notice_disconnect() {
  Lock lock(mutex_);
  for (;;) {
    const int error = complete(*id_);
    if (error == EAGAIN || error == EINTR) return;
    const bool is_over = error == ENODEV ||
                         (id_->event != nullptr && id_->event->event == RDMA_CM_EVENT_DISCONNECTED);
    if (error == ENODEV) forget(fd());
    if (!is_over) continue;
    poll_completions();
    protocol_.disconnect(error);
    sleepers_.wake();
    // Posted work requests are flushed, which wakes all threads that wait for completions.
    if (id_->recv_cq != nullptr) ibv_req_notify_cq(id_->recv_cq, 0);
    to_error(*id_);
    lock.unlock();
    wake_pollers();
    if (error == ENODEV) return;
    lock.lock();
  }
}

void Stream::on_readable() {
  {
    Lock lock(mutex_);
    if (is_closed_) return;
    if (is_opening()) {
      const auto self = shared_from_this();
      const int error = advance();
      if (error == EAGAIN || error == EINTR) return;
      const auto listener = listener_.lock();
      lock.unlock();
      if (listener != nullptr) {
        forget(fd());
        listener->deliver(self, error);
      } else if (error != 0) {
        forget(fd());
      }
      return wake_pollers();
    }
  }
  if (state_ == State::listening) return accept_requests();
  if (was_connected()) return notice_disconnect();
  forget(fd());
}

int Stream::shutdown(int how) {
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return EINVAL;
  Lock lock(mutex_);
  if (!was_connected()) return ENOTCONN;
  poll_completions();
  int error = 0;
  if (is_connected()) {
    const std::optional<Control> control = protocol_.shut(how);
    if (!control) return 0;
    error = await(lock, true, [this] { return protocol_.can_control() || !is_connected(); });
    if (error == 0 && is_connected()) error = post(protocol_.write_control(*control));
  }
  if (error == 0) {
    error = await(lock, true, [this] { return protocol_.all_sent() || !is_connected(); });
  }
  if (protocol_.is_disconnected()) {
    if (id_->recv_cq != nullptr) ibv_req_notify_cq(id_->recv_cq, 0);
    to_error(*id_);
  }
  lock.unlock();
  wake_pollers();
  return error;
}

void Stream::close() {
  forget(fd());
  bool says_goodbye = false;
  {
    const Lock lock(mutex_);
    is_closed_ = true;
    says_goodbye = is_connected();
  }
  if (says_goodbye) shutdown(SHUT_RDWR);
  std::list<std::shared_ptr<Stream>> unwanted;
  std::deque<std::shared_ptr<Stream>> unaccepted;
  {
    const Lock lock(mutex_);
    unwanted.swap(accepting_);
    unaccepted.swap(accepted_);
    if (!was_connected()) state_ = State::refused;
    protocol_.shut(SHUT_RDWR);
    sleepers_.wake();
  }
  for (const auto& stream : unaccepted) stream->close();
}

int Stream::local_name(sockaddr_storage& out) {
  const Lock lock(mutex_);
  out = id_->route.addr.src_storage;
  return 0;
}

int Stream::peer_name(sockaddr_storage& out) {
  const Lock lock(mutex_);
  if (!was_connected()) return ENOTCONN;
  out = id_->route.addr.dst_storage;
  return 0;
}

int Stream::set_flags(int flags) {
  const Lock lock(mutex_);
  flags_ = flags;
  return 0;
}

}  // namespace tulle::shim::rdmacm
