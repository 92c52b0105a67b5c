#include "management/rmpp.h"

#include <algorithm>
#include <utility>

#include "rdma/wire/rmpp.h"

namespace tulle::management {
namespace {

using wire::RmppHeader;
using wire::RmppType;

// Status codes of an abort (IBTA 13.6.2.3, table 114).
constexpr std::uint8_t status_resources_exhausted = 1;
constexpr std::uint8_t status_bad_length = 120;
constexpr std::uint8_t status_bad_segment = 121;

RmppHeader rmpp_of(Request mad) {
  RmppHeader header;
  std::memcpy(&header, mad.data() + wire::rmpp_header_offset, sizeof header);
  return header;
}

void set_rmpp(const RmppHeader& header, Answer mad) {
  std::memcpy(mad.data() + wire::rmpp_header_offset, &header, sizeof header);
}

RmppType type_of(const RmppHeader& header) { return static_cast<RmppType>(header.type); }

bool is_same_transaction(Request a, Request b) {
  const wire::MadHeader first = header_of(a);
  const wire::MadHeader second = header_of(b);
  return first.transaction_id == second.transaction_id &&
         first.management_class == second.management_class;
}

// Both ends of a transaction carry the method of the data, but for the bit of an answer, which the
// acknowledgement turns over (IBTA 13.6.2.1).
void turn_method(Answer mad) {
  wire::MadHeader header = header_of(mad);
  header.method ^= response_bit;
  std::memcpy(mad.data(), &header, sizeof header);
}

}  // namespace

bool asks_for_rmpp(Request mad) {
  return wire::rmpp_data_offset(header_of(mad).management_class) != 0 &&
         (rmpp_of(mad).response_time_and_flags & RmppHeader::active) != 0;
}

bool is_rmpp(Request mad) {
  const RmppHeader header = rmpp_of(mad);
  return asks_for_rmpp(mad) && header.version == RmppHeader::current_version && header.type != 0;
}

bool is_first_segment(Request mad) {
  const RmppHeader header = rmpp_of(mad);
  return type_of(header) == RmppType::data && header.segment == 1 &&
         (header.response_time_and_flags & RmppHeader::first) != 0;
}

// --- sending ---

RmppSender::RmppSender(Time now, const Packet& packet, std::vector<std::byte> bytes)
    : packet_(packet),
      bytes_(std::move(bytes)),
      data_offset_(wire::rmpp_data_offset(header_of(packet.mad).management_class)),
      end_(now + transaction_life_max),
      deadline_(now + patience) {
  const std::size_t in_segment = mad_bytes - data_offset_;
  const std::size_t data = bytes_.size() > data_offset_ ? bytes_.size() - data_offset_ : 0;
  segments_ =
      static_cast<std::uint32_t>(std::max<std::size_t>((data + in_segment - 1) / in_segment, 1));
}

Packet RmppSender::segment(std::uint32_t number) const {
  const std::size_t in_segment = mad_bytes - data_offset_;
  const std::size_t begin = data_offset_ + (number - 1) * in_segment;
  const std::size_t end = std::min(begin + in_segment, bytes_.size());
  const std::size_t missing = in_segment - (end > begin ? end - begin : 0);
  Packet out = packet_;
  std::copy_n(bytes_.begin(), std::min(data_offset_, bytes_.size()), out.mad.begin());
  std::fill(out.mad.begin() + static_cast<std::ptrdiff_t>(data_offset_), out.mad.end(),
            std::byte{0});
  if (end > begin) {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin),
              bytes_.begin() + static_cast<std::ptrdiff_t>(end),
              out.mad.begin() + static_cast<std::ptrdiff_t>(data_offset_));
  }
  RmppHeader header = rmpp_of(out.mad);
  header.version = RmppHeader::current_version;
  header.type = static_cast<std::uint8_t>(RmppType::data);
  header.status = 0;
  header.segment = number;
  header.length_or_window = 0;
  unsigned flags = (header.response_time_and_flags & 0xF8u) | RmppHeader::active;
  // IBTA 13.6.3.2: the first segment has the length of all, and the last one its own.
  if (number == segments_) {
    flags |= RmppHeader::last;
    header.length_or_window = static_cast<std::uint32_t>(wire::rmpp_payload_bytes - missing);
  }
  if (number == 1) {
    flags |= RmppHeader::first;
    const std::size_t last_end = data_offset_ + segments_ * in_segment;
    const std::size_t pad = last_end - std::max(bytes_.size(), data_offset_);
    header.length_or_window =
        static_cast<std::uint32_t>(segments_ * wire::rmpp_payload_bytes - pad);
  }
  header.response_time_and_flags = static_cast<std::uint8_t>(flags);
  set_rmpp(header, out.mad);
  return out;
}

std::optional<Packet> RmppSender::take_packet() {
  if (is_over_ || next_ > segments_ || next_ > window_end_) return std::nullopt;
  return segment(next_++);
}

bool RmppSender::owns(const Packet& answer) const {
  const RmppType type = type_of(rmpp_of(answer.mad));
  return type != RmppType::data && type != RmppType::none && answer.source == packet_.destination &&
         is_same_transaction(answer.mad, packet_.mad);
}

bool RmppSender::is_for(Lid destination, std::uint64_t transaction) const {
  return packet_.destination == destination && header_of(packet_.mad).transaction_id == transaction;
}

void RmppSender::receive(Time now, const Packet& answer) {
  const RmppHeader header = rmpp_of(answer.mad);
  if (type_of(header) != RmppType::ack) {
    is_over_ = true;
    return;
  }
  const std::uint32_t acknowledged = header.segment;
  // A segment that was never sent cannot have come.
  if (acknowledged >= next_ || acknowledged < acknowledged_) return;
  // An acknowledgement of nothing new may open the window. It is no progress, or a receiver could
  // keep the transaction for ever.
  if (acknowledged > acknowledged_) {
    tries_left_ = tries_max;
    deadline_ = std::min(now + patience, end_);
  }
  acknowledged_ = acknowledged;
  const std::uint32_t window_end =
      std::min<std::uint32_t>(header.length_or_window, acknowledged + window_max);
  window_end_ = std::max(window_end, window_end_);
  is_over_ = acknowledged_ >= segments_;
}

void RmppSender::expire(Time now) {
  if (now < deadline_) return;
  if (--tries_left_ <= 0 || now >= end_) {
    is_over_ = true;
    return;
  }
  next_ = acknowledged_ + 1;
  deadline_ = std::min(now + patience, end_);
}

// --- receiving ---

RmppReceiver::RmppReceiver(Time now, const Packet& first)
    : first_(first),
      data_offset_(wire::rmpp_data_offset(header_of(first.mad).management_class)),
      end_(now + transaction_life_max),
      deadline_(now + patience) {}

bool RmppReceiver::owns(const Packet& packet) const {
  return type_of(rmpp_of(packet.mad)) == RmppType::data && packet.source == first_.source &&
         packet.source_qp == first_.source_qp && is_same_transaction(packet.mad, first_.mad);
}

Packet RmppReceiver::acknowledgement() const {
  Packet out = answer_to(first_);
  RmppHeader header = rmpp_of(first_.mad);
  header.type = static_cast<std::uint8_t>(RmppType::ack);
  header.response_time_and_flags = RmppHeader::active;
  header.segment = received_;
  header.length_or_window = window_end_;
  set_rmpp(header, out.mad);
  turn_method(out.mad);
  return out;
}

Packet RmppReceiver::abort(std::uint8_t status) const {
  Packet out = acknowledgement();
  RmppHeader header = rmpp_of(out.mad);
  header.type = static_cast<std::uint8_t>(RmppType::abort);
  header.status = status;
  set_rmpp(header, out.mad);
  return out;
}

std::optional<Packet> RmppReceiver::receive(Time now, const Packet& packet, std::size_t bytes_max) {
  const RmppHeader header = rmpp_of(packet.mad);
  const bool is_last = (header.response_time_and_flags & RmppHeader::last) != 0;
  if (is_whole_ || header.segment <= received_) return acknowledgement();
  if (header.segment != received_ + 1) {
    if (header.segment > window_end_) return abort(status_bad_segment);
    return acknowledgement();  // a segment in between was lost
  }
  const std::size_t in_segment = mad_bytes - data_offset_;
  std::size_t bytes = in_segment;
  if (is_last) {
    // The last segment's length counts the header of the class, too.
    const std::size_t length = header.length_or_window;
    const std::size_t own = wire::rmpp_payload_bytes - in_segment;
    const bool is_only = received_ == 0;
    if (!is_only && (length < own || length > wire::rmpp_payload_bytes)) {
      deadline_ = now;
      return abort(status_bad_length);
    }
    if (length >= own && length <= wire::rmpp_payload_bytes) bytes = length - own;
  }
  if (bytes_.size() + bytes > bytes_max) {
    deadline_ = now;
    return abort(status_resources_exhausted);
  }
  if (received_ == 0) {
    bytes_.assign(packet.mad.begin(),
                  packet.mad.begin() + static_cast<std::ptrdiff_t>(data_offset_));
  }
  const auto data = packet.mad.begin() + static_cast<std::ptrdiff_t>(data_offset_);
  bytes_.insert(bytes_.end(), data, data + static_cast<std::ptrdiff_t>(bytes));
  ++received_;
  deadline_ = is_last ? now + patience : std::min(now + patience, end_);
  is_whole_ = is_last;
  const bool is_window_used = received_ == window_end_;
  if (is_window_used) window_end_ += window;
  if (is_last || is_window_used || received_ == 1) return acknowledgement();
  return std::nullopt;
}

bool RmppReceiver::take_whole(std::vector<std::byte>& bytes) {
  if (!is_whole_ || is_taken_) return false;
  is_taken_ = true;
  bytes = std::exchange(bytes_, {});
  return true;
}

}  // namespace tulle::management
