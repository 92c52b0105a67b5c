#include "live/path/packets/udp_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/guarded_access.h"
#include "base/on_throw.h"
#include "live/path/memory/packet_bytes.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

// A payload of up to this size is cheaper to copy than to refer to.
constexpr std::size_t copy_bytes_max = 256;
// Time after which a receiver that had no room is checked again.
constexpr Time look_again_after = Time::microseconds(20);
constexpr std::size_t message_bytes_max = 65'487;  // UDP over IPv6, without jumbograms
constexpr std::size_t message_pieces_max = 1'024;  // UIO_MAXIOV
constexpr std::size_t datagram_bytes_max = port::udp_payload_bytes_max + seal_bytes;
constexpr std::size_t scratch_per_datagram =
    wire::header_bytes_max + 8 + copy_bytes_max * (verbs::sges_max + 2);

bool same_path(const wire::IpUdp& a, const wire::IpUdp& b) {
  return a.destination == b.destination && a.source == b.source &&
         a.traffic_class == b.traffic_class && a.hop_limit == b.hop_limit;
}

}  // namespace

UdpLink::UdpLink(Options options, const DeviceInfo& device, CaptureTap& tap,
                 DriverCounters& counters)
    : options_(std::move(options)),
      own_sender_(options_.sender ? options_.sender.get() : options_.socket.get()),
      device_(device),
      tap_(tap),
      counters_(counters),
      offload_(options_.offload && !options_.faults.any()),
      is_ipv6_(is_ipv6(own_sender_)),
      receiver_(options_.socket.get(), options_.port, options_.from),
      backlog_(std::move(options_.vault)),
      faults_(options_.faults.any() ? std::make_unique<FaultLine>(options_.faults) : nullptr),
      messages_(batch_max),
      headers_(batch_max),
      pieces_(batch_max * pieces_per_datagram_max),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(batch_max * scratch_per_datagram)),
      sealed_(options_.seal == nullptr
                  ? nullptr
                  : std::make_unique_for_overwrite<std::byte[]>(batch_max * datagram_bytes_max)),
      kept_(std::make_unique_for_overwrite<std::byte[]>(batch_max * datagram_bytes_max)) {
  borrowed_.reserve(batch_max);
}

UdpLink::~UdpLink() {
  for (const Sender& sender : senders_) {
    if (sender.socket >= 0 && sender.socket != own_sender_) close(sender.socket);
  }
}

Link::Offer UdpLink::offer(device::Datagram& datagram, Time) {
  if (!std::holds_alternative<wire::IpUdp>(datagram.path)) return Offer::declined;
  borrowed_.push_back(&datagram);
  return Offer::borrowed;
}

Link::Flushed UdpLink::flush(Time now) {
  if (borrowed_.empty()) return Flushed::all;
  const CancellationOff cancellation_off;
  // Datagrams that there is no memory to send are lost, as on a network.
  const OnThrow forget([this] { borrowed_.clear(); });
  if (faults_) {
    send_with_faults(now);
  } else {
    compose();
    send(now);
  }
  borrowed_.clear();
  return blocked_ ? Flushed::waits : Flushed::all;
}

bool UdpLink::resume(Time now) {
  if (!faults_ && !blocked_) return true;
  const CancellationOff cancellation_off;
  if (faults_) {
    faults_->release(now, [this](const auto& ip, auto bytes) { send_held(ip, bytes); });
  }
  return !blocked_ || send_rest(now);
}

// --- receiving ---

int UdpLink::receive(device::Adapter& adapter, Time now) {
  Seal* const seal = options_.seal.get();
  if (seal != nullptr) [[unlikely]]
    seal->look_at_file(now);
  const int count = receiver_.receive([&](const wire::IpUdp& ip, std::span<const std::byte> bytes) {
    if (seal != nullptr) [[unlikely]] {
      const auto opened = seal->open(ip, bytes);
      if (!opened) {
        ++counters_.unsealed_drops;
        return;
      }
      bytes = *opened;
    }
    if (tap_.is_open()) [[unlikely]]
      tap_.received(ip, bytes);
    survive([&] { adapter.handle_datagram(now, ip, false, bytes); });
  });
  if (count > 0) ++counters_.receive_calls;
  return count;
}

// --- the rest of a device's life ---

void UdpLink::rebase(Time by) {
  tulle::rebase(by, held_back_until_);
  backlog_.rebase(by);
  if (faults_) faults_->rebase(by);
  if (options_.seal != nullptr) options_.seal->rebase(by);
}

void UdpLink::lose_network(DeviceInfo&, int other) {
  dup3(other, options_.socket.get(), O_CLOEXEC);
}

void UdpLink::forget_in_child(int other) {
  backlog_.forget();
  const bool is_replaced = dup3(other, options_.socket.get(), O_CLOEXEC) >= 0;
  if (!is_replaced) options_.socket.reset();  // the process's limit is below the number
}

// --- messages from datagrams ---

void UdpLink::compose() {
  message_count_ = next_message_ = 0;
  piece_count_ = scratch_used_ = 0;
  for (std::size_t i = 0; i < borrowed_.size(); ++i) {
    device::Datagram& datagram = *borrowed_[i];
    const Sender& sender = sender_for(datagram.packet.destination_qp);
    datagram.ip().source_port = sender.port;
    datagram.ip().destination_port = options_.port;
    const std::size_t bytes =
        datagram.udp_payload_bytes() + (options_.seal != nullptr ? seal_bytes : 0);
    const std::size_t pieces = datagram.piece_count + 3u;
    if (message_count_ == 0 ||
        !joins(messages_[message_count_ - 1], i, sender.socket, bytes, pieces)) {
      begin_message(i, sender, bytes);
    }
    Message& message = messages_[message_count_ - 1];
    const std::size_t pieces_before = piece_count_;
    const std::size_t last_bytes = pieces_before > 0 ? pieces_[pieces_before - 1].iov_len : 0;
    // The kernel writes k as the identification of the k-th segment of a message.
    const auto identification = static_cast<std::uint16_t>(message.count);
    bool is_there = false;
    if (options_.seal != nullptr) [[unlikely]] {
      const std::span<std::byte> sealed =
          sealed_copy(datagram, identification, sealed_.get() + i * datagram_bytes_max);
      is_there = !sealed.empty();
      append(sealed);
    } else {
      is_there = attempt(payload_of(datagram), [&] {
        datagram.finish_frame(identification);
        append_frame(datagram);
        if (tap_.is_open()) tap_.sent(datagram);
      });
    }
    if (!is_there) {
      // To the transport, a payload that is gone by now is lost on the way. It finds out when it
      // gathers the payload again.
      ++counters_.send_errors;
      piece_count_ = pieces_before;
      if (pieces_before > 0) pieces_[pieces_before - 1].iov_len = last_bytes;
      if (message.count == 0) --message_count_;
      continue;
    }
    ++message.count;
    message.bytes += bytes;
  }
  end_message();
}

bool UdpLink::joins(const Message& message, std::size_t datagram, int socket, std::size_t bytes,
                    std::size_t pieces) const {
  const bool all_equal_so_far = message.bytes == message.count * message.segment_bytes;
  // A message's datagrams are adjacent, so nothing joins behind one that was lost.
  const bool is_next = datagram == message.first + message.count;
  const std::size_t first_piece =
      static_cast<std::size_t>(headers_[message_count_ - 1].msg_hdr.msg_iov - pieces_.data());
  return offload_ && all_equal_so_far && is_next && bytes <= message.segment_bytes &&
         message.socket == socket && message.bytes + bytes <= message_bytes_max &&
         piece_count_ - first_piece + pieces <= message_pieces_max &&
         same_path(borrowed_[message.first]->ip(), borrowed_[datagram]->ip());
}

void UdpLink::begin_message(std::size_t datagram, const Sender& sender, std::size_t bytes) {
  end_message();
  Message& message = messages_[message_count_];
  message.socket = sender.socket;
  message.slot = slot_of(borrowed_[datagram]->packet.destination_qp);
  message.stays_on_host = is_own(borrowed_[datagram]->ip().destination);
  message.first = datagram;
  message.count = 0;
  message.bytes = 0;
  message.segment_bytes = bytes;
  headers_[message_count_].msg_hdr.msg_iov = &pieces_[piece_count_];
  ++message_count_;
}

void UdpLink::end_message() {
  if (message_count_ == 0) return;
  Message& message = messages_[message_count_ - 1];
  const wire::IpUdp& ip = borrowed_[message.first]->ip();
  const std::size_t segment_bytes = message.count > 1 ? message.segment_bytes : 0;
  fill(message.address, ip, is_ipv6_, interface_of(ip.source), options_.port,
       static_cast<std::uint16_t>(segment_bytes));
  msghdr& header = headers_[message_count_ - 1].msg_hdr;
  header.msg_name = &message.address.name;
  header.msg_namelen = message.address.name_bytes;
  header.msg_control = message.address.control;
  header.msg_controllen = message.address.control_bytes;
  header.msg_iovlen = static_cast<std::size_t>(&pieces_[piece_count_] - header.msg_iov);
}

void UdpLink::append_frame(const device::Datagram& datagram) {
  append_copy(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
  for (std::size_t i = 0; i < datagram.piece_count; ++i) {
    const std::span<const std::byte> piece = datagram.pieces[i];
    if (piece.size() <= copy_bytes_max) {
      append_copy(piece);
    } else {
      append(piece);
    }
  }
  append_copy(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
}

void UdpLink::append_copy(std::span<const std::byte> bytes) {
  std::byte* at = scratch_.get() + scratch_used_;
  std::copy(bytes.begin(), bytes.end(), at);
  scratch_used_ += bytes.size();
  append({at, bytes.size()});
}

// Appends a piece to the message. Bytes that directly follow its last piece in memory extend that
// piece.
void UdpLink::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  auto* data = const_cast<std::byte*>(bytes.data());
  const bool is_first = &pieces_[piece_count_] == headers_[message_count_ - 1].msg_hdr.msg_iov;
  if (!is_first) {
    iovec& last = pieces_[piece_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += bytes.size();
      return;
    }
  }
  pieces_[piece_count_++] = {data, bytes.size()};
}

// --- to the kernel ---

void UdpLink::send(Time now) {
  while (next_message_ < message_count_) {
    const int socket = messages_[next_message_].socket;
    std::size_t end = next_message_;
    while (end < message_count_ && messages_[end].socket == socket &&
           !is_held_back(messages_[end], now)) {
      ++end;
    }
    if (end == next_message_) return keep_rest();
    while (next_message_ < end) {
      const int sent =
          sendmmsg(socket, &headers_[next_message_], static_cast<unsigned>(end - next_message_),
                   MSG_DONTWAIT | MSG_NOSIGNAL);
      ++counters_.send_calls;
      if (sent > 0) {
        next_message_ += static_cast<std::size_t>(sent);
      } else if (sent < 0 && !refused(errno)) {
        return;
      }
    }
  }
}

bool UdpLink::is_held_back(const Message& message, Time now) {
  is_held_back_ = message.stays_on_host && !backlog_.admits(message.slot, message.bytes, now);
  if (is_held_back_) held_back_until_ = now + look_again_after;
  return is_held_back_;
}

// Handles the kernel's refusal of the first unsent message. Returns false if the kernel takes
// nothing more for now.
bool UdpLink::refused(int error) {
  Message& message = messages_[next_message_];
  switch (error) {
    case EINTR:
      return true;
    case EAGAIN:
    case ENOBUFS:
      keep_rest();
      return false;
    case EIO:     // the interface cannot compute the checksums that segmentation needs
    case EINVAL:  // or its MTU is smaller than the device's
      if (message.count > 1) {
        if (error == EIO) offload_ = false;
        send_singly(message);
        ++next_message_;
        return true;
      }
      [[fallthrough]];
    default:
      // No route, a datagram too long, or a firewall: to the transport, the datagram is lost on the
      // way.
      counters_.send_errors += message.count;
      ++next_message_;
      return true;
  }
}

void UdpLink::send_singly(Message& message) {
  for (std::size_t i = message.first; i < message.first + message.count; ++i) {
    device::Datagram& datagram = *borrowed_[i];
    const std::span<const std::byte> bytes = sealed_copy(datagram, 0, kept_.get());
    if (!bytes.empty()) {
      send_held(datagram.ip(), bytes);
    } else {
      ++counters_.send_errors;
    }
  }
}

// Copies the datagram's UDP payload to `room`, sealed if datagrams are. Returns nothing if the
// program's memory is gone.
std::span<std::byte> UdpLink::sealed_copy(device::Datagram& datagram, std::uint16_t identification,
                                          std::byte* room) {
  const std::size_t front = options_.seal != nullptr ? seal_header_bytes : 0;
  std::size_t size = front;
  const auto add = [&](std::span<const std::byte> piece) {
    std::copy(piece.begin(), piece.end(), room + size);
    size += piece.size();
  };
  const bool is_there = attempt(payload_of(datagram), [&] {
    datagram.finish_frame(identification);
    add(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
    for (std::size_t k = 0; k < datagram.piece_count; ++k) add(datagram.pieces[k]);
    add(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
  });
  if (!is_there) return {};
  if (options_.seal == nullptr) return {room, size};
  // A capture shows what is in the seal.
  if (tap_.is_open()) tap_.sent(datagram.ip(), {room + front, size - front});
  const std::span<std::byte> sealed(room, size + seal_tag_bytes);
  return options_.seal->seal(datagram.ip(), sealed) ? sealed : std::span<std::byte>();
}

// Copies the unsent messages, because the application may change their memory once it runs again.
void UdpLink::keep_rest() {
  ++counters_.send_delays;
  std::size_t used = 0;
  std::size_t piece = 0;
  // Entries of pieces_ are overwritten from the front, never ahead of where they are read.
  for (std::size_t i = next_message_; i < message_count_; ++i) {
    msghdr& header = headers_[i].msg_hdr;
    std::byte* start = kept_.get() + used;
    for (std::size_t k = 0; k < header.msg_iovlen; ++k) {
      const iovec& from = header.msg_iov[k];
      // Without these bytes the datagrams' checksums are wrong, and the receiver drops them.
      const bool is_there = copy_guarded(kept_.get() + used, from.iov_base, from.iov_len);
      if (!is_there) std::memset(kept_.get() + used, 0, from.iov_len);
      used += from.iov_len;
    }
    pieces_[piece] = {start, messages_[i].bytes};
    header.msg_iov = &pieces_[piece++];
    header.msg_iovlen = 1;
  }
  blocked_ = true;
}

bool UdpLink::send_rest(Time now) {
  while (next_message_ < message_count_) {
    if (is_held_back(messages_[next_message_], now)) return false;
    const int sent = sendmmsg(messages_[next_message_].socket, &headers_[next_message_], 1,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    ++counters_.send_calls;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    if (sent < 0) counters_.send_errors += messages_[next_message_].count;
    ++next_message_;
  }
  blocked_ = false;
  return true;
}

void UdpLink::send_with_faults(Time now) {
  for (device::Datagram* const each : borrowed_) {
    device::Datagram& datagram = *each;
    datagram.ip().source_port = sender_for(datagram.packet.destination_qp).port;
    datagram.ip().destination_port = options_.port;
    const std::span<const std::byte> bytes = sealed_copy(datagram, 0, kept_.get());
    if (!bytes.empty()) {
      faults_->offer(now, datagram.ip(), {&bytes, 1});
    } else {
      ++counters_.send_errors;
    }
  }
  faults_->release(now, [this](const auto& ip, auto bytes) { send_held(ip, bytes); });
  const fabric::FaultCounters& c = faults_->counters();
  counters_.faults_dropped = c.dropped + faults_->overflows();
  counters_.faults_duplicated = c.duplicated;
  counters_.faults_corrupted = c.corrupted;
  counters_.faults_reordered = c.reordered;
}

void UdpLink::send_held(const wire::IpUdp& ip, std::span<const std::byte> bytes) {
  SendAddress address;
  fill(address, ip, is_ipv6_, interface_of(ip.source), options_.port, 0);
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_name = &address.name;
  header.msg_namelen = address.name_bytes;
  header.msg_control = address.control;
  header.msg_controllen = address.control_bytes;
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  const auto sender = std::find_if(senders_.begin(), senders_.end(), [&](const Sender& s) {
    return s.socket >= 0 && s.port == ip.source_port;
  });
  if (sender == senders_.end()) return;
  ++counters_.send_calls;
  if (sendmsg(sender->socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) ++counters_.send_errors;
  if (tap_.is_open() && options_.seal == nullptr) tap_.sent(ip, bytes);
}

UdpLink::Sender& UdpLink::sender_for(QpNumber destination) {
  Sender& sender = senders_[slot_of(destination)];
  if (sender.socket >= 0) return sender;
  auto bound = bind_sender(destination.value * 0x9E37u ^ static_cast<std::uint32_t>(getpid()));
  sender.socket = bound ? bound->release() : own_sender_;
  sender.port = port_of(sender.socket);
  return sender;
}

std::uint32_t UdpLink::interface_of(const Gid& gid) const {
  if (gid.bytes[0] != 0xFE) return 0;  // only link-local addresses need it
  for (const GidEntry& entry : device_.gids) {
    if (entry.gid == gid) return entry.interface_index;
  }
  return 0;
}

bool UdpLink::is_own(const Gid& gid) const {
  return std::any_of(device_.gids.begin(), device_.gids.end(),
                     [&](const GidEntry& entry) { return entry.gid == gid; });
}

}  // namespace tulle::live
