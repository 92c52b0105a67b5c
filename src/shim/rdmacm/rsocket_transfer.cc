// Streams: moves data, and exchanges the messages that say where there is room for more.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "shim/rdmacm/rsocket_stream.h"

namespace tulle::shim::rdmacm {
namespace {

// The identifier of a work request holds what its completion gives back: the message, and in the
// upper half the bytes of the ring.
constexpr std::uint64_t to_work_id(MessageType type, std::uint32_t value,
                                   std::uint32_t ring_bytes) {
  return std::uint64_t{ring_bytes} << 32 | to_message(type, value);
}

// A transfer starts with small pieces, so that the peer has something to do early. They grow.
constexpr std::size_t first_piece_bytes = 2048;
constexpr std::size_t last_piece_bytes = 64 << 10;
// Limit for pieces that are sent inline, which are gathered on the stack.
constexpr std::size_t inline_max = 512;

// Copies bytes [offset, offset + count) of the vectors, one after the other.
void gather(std::span<const iovec> from, std::size_t offset, std::size_t count, std::byte* to) {
  for (const iovec& each : from) {
    if (count == 0) return;
    if (offset >= each.iov_len) {
      offset -= each.iov_len;
      continue;
    }
    const std::size_t piece = std::min(count, each.iov_len - offset);
    std::memcpy(to, static_cast<const std::byte*>(each.iov_base) + offset, piece);
    to += piece;
    count -= piece;
    offset = 0;
  }
}

void scatter(const std::byte* from, std::size_t count, std::span<const iovec> to,
             std::size_t offset) {
  for (const iovec& each : to) {
    if (count == 0) return;
    if (offset >= each.iov_len) {
      offset -= each.iov_len;
      continue;
    }
    const std::size_t piece = std::min(count, each.iov_len - offset);
    std::memcpy(static_cast<std::byte*>(each.iov_base) + offset, from, piece);
    from += piece;
    count -= piece;
    offset = 0;
  }
}

TargetEntry swapped(const TargetEntry& entry) {
  return {__builtin_bswap64(entry.address), __builtin_bswap32(entry.key),
          __builtin_bswap32(entry.bytes)};
}

}  // namespace

TargetEntry& Stream::target() const {
  return reinterpret_cast<TargetEntry*>(targets_.data())[target_index_];
}

// The peer may write the list at any time, so that the entry's length is read first, and once.
bool Stream::can_send() const {
  if (sends_free_ == 0 || send_free_bytes_ < send_low_water_bytes) return false;
  if (messages_sent_ == messages_allowed_) return false;
  return std::atomic_ref(target().bytes).load(std::memory_order_acquire) != 0;
}

int Stream::post(ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id_->qp, &request, &bad);
  if (error == 0) ++posted_;
  return error;
}

// `bytes` lie in the send buffer, unless they fit inline: then posting copies them.
int Stream::post_write(std::span<const std::byte> bytes, MessageType type, std::uint32_t value,
                       std::uint64_t address, std::uint32_t key, bool with_immediate,
                       std::uint32_t ring_bytes) {
  const bool is_inline = bytes.size() <= inline_bytes_;
  ibv_sge piece = {reinterpret_cast<std::uint64_t>(bytes.data()),
                   static_cast<std::uint32_t>(bytes.size()), send_buffer_.region()->lkey};
  ibv_send_wr request = {};
  request.wr_id = to_work_id(type, value, ring_bytes);
  request.sg_list = &piece;
  request.num_sge = bytes.empty() ? 0 : 1;
  request.opcode = with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = is_inline ? IBV_SEND_INLINE : 0;
  request.imm_data = htonl(to_message(type, value));
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  return post(request);
}

int Stream::post_control(Control control) {
  ++controls_sent_;
  const auto value = static_cast<std::uint32_t>(control);
  // Keeping a connection alive takes a packet that the peer's program does not see.
  return post_write({}, MessageType::control, value, 0, 0, control != Control::keep_alive);
}

int Stream::post_receives(std::uint32_t count) {
  std::array<ibv_recv_wr, 32> requests = {};
  while (count > 0) {
    const std::size_t batch = std::min<std::size_t>(count, requests.size());
    for (std::size_t i = 0; i < batch; ++i) {
      requests[i].wr_id = receive_flag;
      requests[i].next = i + 1 < batch ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(id_->qp, requests.data(), &bad); error != 0) return error;
    count -= static_cast<std::uint32_t>(batch);
  }
  return 0;
}

void Stream::handle_sent(const ibv_wc& completion) {
  const auto message = static_cast<std::uint32_t>(completion.wr_id);
  --posted_;
  switch (type_of(message)) {
    case MessageType::credits:
      ++controls_allowed_;
      break;
    case MessageType::control:
      ++controls_allowed_;
      if (value_of(message) == static_cast<std::uint32_t>(Control::disconnect)) {
        end(State::disconnected, 0);
      }
      break;
    default:
      ++sends_free_;
      send_free_bytes_ += static_cast<std::uint32_t>(completion.wr_id >> 32);
      break;
  }
  if (completion.status != IBV_WC_SUCCESS) end(State::broken, EIO);
}

void Stream::handle_message(std::uint32_t message) {
  const std::uint32_t value = value_of(message);
  switch (type_of(message)) {
    case MessageType::data:
      // An rsocket sends no message that is longer than a half.
      if (value > settings_.receive_buffer_bytes / 2) return end(State::broken, EPROTO);
      arrived_.push_back(value);
      break;
    case MessageType::credits:
      messages_allowed_ = static_cast<std::uint16_t>(value);
      break;
    case MessageType::map:
      ++messages_read_;
      break;
    case MessageType::control:
      if (value == static_cast<std::uint32_t>(Control::disconnect)) {
        end(State::disconnected, 0);
      } else if (value == static_cast<std::uint32_t>(Control::shutdown)) {
        readable_ = false;
        if (!writable_) end(State::disconnected, 0);
      }
      break;
    default:
      break;
  }
}

void Stream::poll_completions() {
  if (id_->recv_cq == nullptr) return;
  std::array<ibv_wc, 16> completions;
  std::uint32_t received = 0;
  for (;;) {
    const int count = ibv_poll_cq(id_->recv_cq, completions.size(), completions.data());
    if (count < 0) return end(State::broken, EIO);
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      if ((completion.wr_id & receive_flag) == 0) {
        handle_sent(completion);
      } else if (completion.status == IBV_WC_SUCCESS) {
        ++received;
        handle_message(ntohl(completion.imm_data));
      }
    }
    if (count < static_cast<int>(completions.size())) break;
  }
  if (received == 0) return;
  if (is_connected() || is_opening()) {
    if (const int error = post_receives(received); error != 0) end(State::broken, error);
  }
}

void Stream::update_credits() {
  if (!is_connected() || !can_control()) return;
  const auto ahead = static_cast<std::int16_t>(messages_read_ - credits_due_);
  if (ahead >= 0 || read_bytes_ >= settings_.receive_buffer_bytes / 2) send_credits();
}

// Tells the peer how far it may count, and offers it the half that was read to its end, if any.
void Stream::send_credits() {
  const std::uint32_t half = settings_.receive_buffer_bytes / 2;
  const auto credits = static_cast<std::uint16_t>(messages_read_ + settings_.receive_queue);
  credits_due_ = static_cast<std::uint16_t>(messages_read_ + settings_.receive_queue / 2);
  const std::uint32_t slot = controls_sent_++ % 4;
  int error = 0;
  if (read_bytes_ >= half) {
    TargetEntry entry = {receive_buffer_.address() + free_offset_, receive_buffer_.region()->rkey,
                         half};
    if (swaps_entries_) entry = swapped(entry);
    // Each control message that may be under way has a slot for itself.
    std::byte* at = send_buffer_.data() + settings_.send_buffer_bytes + slot * sizeof(TargetEntry);
    std::memcpy(at, &entry, sizeof entry);
    error = post_write({at, sizeof entry}, MessageType::credits, credits,
                       remote_targets_.address + std::uint64_t{remote_index_} * sizeof entry,
                       remote_targets_.key, true);
    read_bytes_ -= half;
    free_offset_ = free_offset_ == 0 ? half : 0;
    remote_index_ = (remote_index_ + 1) % remote_targets_.bytes;
  } else {
    error = post_write({}, MessageType::credits, credits, 0, 0, true);
  }
  if (error != 0) end(State::broken, error);
}

int Stream::sleep(Lock& lock) {
  const int error = sleepers_.sleep(lock, id_->recv_cq_channel->fd);
  if (take_completion_events(*id_->recv_cq_channel)) {
    is_armed_ = false;
    wake_pollers();
  }
  return error;
}

int Stream::await(Lock& lock, bool may_block, const std::function<bool()>& condition) {
  const Clock::time_point start = Clock::now();
  for (;;) {
    update_credits();
    poll_completions();
    update_credits();
    if (condition()) return 0;
    if (!may_block) return EAGAIN;
    if (Clock::now() - start < settings_.polling) {
      // Another thread may need the lock to do what this one waits for.
      lock.unlock();
      lock.lock();
      continue;
    }
    if (!is_armed_) {
      is_armed_ = true;
      ibv_req_notify_cq(id_->recv_cq, 0);
      continue;
    }
    if (const int error = sleep(lock); error != 0) return error;
  }
}

int Stream::await_room(Lock& lock, int call_flags) {
  if (can_send() && writable_) return 0;
  const int error =
      await(lock, !never_blocks(call_flags), [this] { return can_send() || !writable_; });
  if (error != 0) return error;
  if (writable_) return 0;
  return state_ == State::broken && error_ != 0 ? error_ : ECONNRESET;
}

void Stream::take_ring(std::uint32_t bytes) {
  send_free_bytes_ -= bytes;
  send_head_ = (send_head_ + bytes) % settings_.send_buffer_bytes;
}

int Stream::send_piece(std::span<const iovec> from, std::size_t offset, std::size_t left,
                       std::size_t piece_max, std::size_t& sent) {
  TargetEntry& entry = target();
  std::size_t count = std::min({left, piece_max, std::size_t{entry.bytes}});
  std::array<std::byte, inline_max> small;
  std::span<const std::byte> bytes;
  std::uint32_t ring_bytes = 0;
  if (count <= std::min<std::size_t>(inline_bytes_, small.size())) {
    gather(from, offset, count, small.data());
    bytes = {small.data(), count};
  } else {
    const std::size_t to_end = settings_.send_buffer_bytes - send_head_;
    count = std::min({count, to_end, std::size_t{send_free_bytes_}});
    gather(from, offset, count, send_buffer_.data() + send_head_);
    bytes = {send_buffer_.data() + send_head_, count};
    ring_bytes = static_cast<std::uint32_t>(count);
    take_ring(ring_bytes);
  }
  const auto length = static_cast<std::uint32_t>(count);
  const std::uint64_t address = entry.address;
  // Update the entry before posting: the peer may write it again as soon as the half is full.
  entry.address += length;
  const bool is_full = entry.bytes == length;
  const std::uint32_t key = entry.key;
  entry.bytes -= length;
  if (is_full) target_index_ = (target_index_ + 1) % target_entries;
  ++messages_sent_;
  --sends_free_;
  sent = count;
  return post_write(bytes, MessageType::data, length, address, key, true, ring_bytes);
}

int Stream::send(std::span<const iovec> from, int call_flags, const sockaddr* to, socklen_t,
                 std::size_t& bytes) {
  if (to != nullptr) return EISCONN;
  Lock lock(mutex_);
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  const std::size_t total = total_bytes(from);
  bytes = 0;
  std::size_t piece_max = first_piece_bytes;
  int error = send_maps(lock, call_flags);
  while (error == 0 && bytes < total) {
    error = await_room(lock, call_flags);
    if (error != 0) break;
    std::size_t sent = 0;
    error = send_piece(from, bytes, total - bytes, piece_max, sent);
    if (error != 0) end(State::broken, error);
    bytes += sent;
    piece_max = std::min(2 * piece_max, last_piece_bytes);
  }
  return bytes > 0 ? 0 : error;
}

// Copies data into the vectors behind their first `done` bytes. Returns the number of bytes that
// they hold then.
std::size_t Stream::receive_arrived(std::span<const iovec> into, std::size_t done, bool peek) {
  const std::size_t room = total_bytes(into);
  const std::size_t before = done;
  std::uint32_t offset = read_offset_;
  std::size_t at = 0;
  while (done < room && at < arrived_.size()) {
    const std::uint32_t message = arrived_[at];
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(message, room - done));
    // A message never crosses the buffer's end, because it fits the rest of a half.
    scatter(receive_buffer_.data() + offset, count, into, done);
    done += count;
    offset = (offset + count) % settings_.receive_buffer_bytes;
    if (peek) {
      ++at;
    } else if (count < message) {
      arrived_.front() -= count;
    } else {
      arrived_.pop_front();
      ++messages_read_;
    }
  }
  if (!peek) {
    read_offset_ = offset;
    read_bytes_ += static_cast<std::uint32_t>(done - before);
  }
  return done;
}

int Stream::receive(std::span<const iovec> into, int call_flags, sockaddr_storage* from,
                    std::size_t& bytes) {
  Lock lock(mutex_);
  if (const int error = ensure_connected(call_flags, lock); error != 0) return error;
  if (from != nullptr) *from = id_->route.addr.dst_storage;
  const std::size_t room = total_bytes(into);
  const bool peek = (call_flags & MSG_PEEK) != 0;
  const bool wants_all = (call_flags & MSG_WAITALL) != 0 && !peek;
  bytes = 0;
  int error = 0;
  do {
    if (!has_data()) {
      error = await(lock, !never_blocks(call_flags), [this] { return has_data() || !readable_; });
      if (error != 0) break;
    }
    bytes = receive_arrived(into, bytes, peek);
  } while (wants_all && bytes < room && (readable_ || has_data()));
  update_credits();
  if (bytes > 0 || room == 0) return 0;
  if (error != 0) return error;
  return state_ == State::broken && error_ != 0 ? error_ : 0;
}

short Stream::ready(short events) {
  Lock lock(mutex_);
  if (is_opening()) advance();
  if (state_ == State::listening) {
    return static_cast<short>(accepted_.empty() ? 0 : events & POLLIN);
  }
  if (state_ == State::refused) return static_cast<short>((events & (POLLIN | POLLOUT)) | POLLERR);
  if (!was_connected()) return 0;
  update_credits();
  poll_completions();
  update_credits();
  int out = 0;
  if (has_data() || !readable_) out |= events & POLLIN;
  if (writable_ && can_send()) out |= events & POLLOUT;
  // POLLHUP waits until all data is read, because programs give up as soon as they see it.
  if (state_ == State::disconnected && !has_data()) out |= POLLHUP;
  if (state_ == State::broken) out |= POLLERR;
  return static_cast<short>(out);
}

int Stream::arm() {
  const Lock lock(mutex_);
  if (state_ == State::listening) return accepted_fd_;
  if (!was_connected() || id_->recv_cq_channel == nullptr) return fd();
  if (!is_armed_) {
    is_armed_ = true;
    ibv_req_notify_cq(id_->recv_cq, 0);
  }
  return id_->recv_cq_channel->fd;
}

void Stream::drain() {
  const Lock lock(mutex_);
  if (!was_connected() || id_->recv_cq_channel == nullptr) return;
  if (!take_completion_events(*id_->recv_cq_channel)) return;
  is_armed_ = false;
  sleepers_.wake();
  wake_pollers();
}

}  // namespace tulle::shim::rdmacm
