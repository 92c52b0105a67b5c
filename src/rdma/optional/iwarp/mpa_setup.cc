#include "rdma/optional/iwarp/mpa_setup.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::transport::iwarp {

namespace mpa = wire::mpa;
namespace error = wire::rdmap::error;
using mpa::EnhancedSetup;
using wire::rdmap::Opcode;

MpaSetup::MpaSetup(Role role, const Offer& offer)
    : role_(role),
      offer_(offer),
      enhanced_(offer.enhanced),
      private_data_(offer.private_data.begin(), offer.private_data.end()) {
  offer_.private_data = {};
  TULLE_CHECK(private_data_.size() + (enhanced_ ? mpa::enhanced_setup_bytes : 0) <=
              mpa::private_data_bytes_max);
  if (role == Role::responder) return;
  EnhancedSetup setup;
  setup.inbound_reads = offer.inbound_reads;
  setup.outbound_reads = offer.outbound_reads;
  setup.peer_to_peer = offer.peer_to_peer;
  setup.ready_by_write = offer.peer_to_peer && offer.ready_by_write;
  setup.ready_by_read = offer.peer_to_peer && offer.ready_by_read;
  write_frame(false, setup);
}

void MpaSetup::write_frame(bool rejected, const EnhancedSetup& setup) {
  mpa::StartFrame frame;
  frame.is_reply = role_ == Role::responder;
  // RFC 5044 7.1.1: CRCs are used if either end wants them. The reply says the result.
  frame.flags.crc = offer_.crc || crc_asked_;
  frame.flags.rejected = rejected;
  frame.flags.enhanced = enhanced_;
  frame.revision = enhanced_ ? 2 : 1;
  const std::size_t setup_bytes = enhanced_ ? mpa::enhanced_setup_bytes : 0;
  frame.private_data_bytes = static_cast<std::uint16_t>(setup_bytes + private_data_.size());
  to_send_.resize(mpa::start_frame_bytes + setup_bytes);
  mpa::encode(frame, std::span(to_send_).first<mpa::start_frame_bytes>());
  if (enhanced_) mpa::encode(setup, std::span(to_send_).last<mpa::enhanced_setup_bytes>());
  to_send_.insert(to_send_.end(), private_data_.begin(), private_data_.end());
}

std::size_t MpaSetup::receive(std::span<const std::byte> bytes) {
  std::size_t used = 0;
  while (state_ == State::waits) {
    std::size_t wanted = mpa::start_frame_bytes;
    if (received_.size() >= wanted) {
      const auto start =
          mpa::decode_start(std::span<const std::byte>(received_).first<mpa::start_frame_bytes>());
      const bool fits = start && start->is_reply == (role_ == Role::initiator) &&
                        start->private_data_bytes <= mpa::private_data_bytes_max;
      if (!fits) {
        refuse(error::invalid_start_frame);
        break;
      }
      wanted += start->private_data_bytes;
    }
    if (received_.size() == wanted) {
      handle_frame();
      break;
    }
    if (used == bytes.size()) break;
    const std::size_t count = std::min(wanted - received_.size(), bytes.size() - used);
    const auto part = bytes.subspan(used, count);
    received_.insert(received_.end(), part.begin(), part.end());
    used += count;
  }
  return used;
}

void MpaSetup::handle_frame() {
  const std::span<const std::byte> whole(received_);
  const auto frame = *mpa::decode_start(whole.first<mpa::start_frame_bytes>());
  const auto data = whole.subspan(mpa::start_frame_bytes);
  const std::size_t setup_bytes = frame.flags.enhanced ? mpa::enhanced_setup_bytes : 0;
  // RFC 6581 6: only revision 2 may have the enhanced set-up.
  const bool known = frame.revision == 1 || frame.revision == 2;
  if (!known || data.size() < setup_bytes || (frame.flags.enhanced && frame.revision != 2)) {
    return refuse(error::invalid_start_frame);
  }
  peer_private_data_.assign(data.begin() + static_cast<std::ptrdiff_t>(setup_bytes), data.end());
  if (role_ == Role::responder) {
    handle_request(frame);
  } else {
    handle_reply(frame);
  }
}

void MpaSetup::handle_request(const mpa::StartFrame& request) {
  crc_asked_ = request.flags.crc;
  // A request without the enhanced set-up gets a reply without it.
  enhanced_ = enhanced_ && request.flags.enhanced;
  if (request.flags.markers) {
    write_frame(true, {});
    return refuse(error::marker_and_length);
  }
  outcome_ = {offer_.crc || crc_asked_, offer_.inbound_reads, offer_.outbound_reads, {}};
  EnhancedSetup answer;
  if (enhanced_) {
    const auto data = std::span<const std::byte>(received_).subspan(mpa::start_frame_bytes);
    const auto asked = mpa::decode_enhanced(data.first<mpa::enhanced_setup_bytes>());
    if (!agree_as_responder(asked, answer)) {
      write_frame(true, answer);
      return refuse(error::no_matching_ready);
    }
  }
  write_frame(false, answer);
  state_ = State::established;
}

// RFC 6581 9: an end has no more READs outstanding than its peer takes. The responder chooses one
// of the offered ways to say "ready". Returns false if it accepts none of them.
bool MpaSetup::agree_as_responder(const EnhancedSetup& asked, EnhancedSetup& answer) {
  constexpr auto unspecified = EnhancedSetup::depth_max;
  if (asked.inbound_reads != unspecified) {
    outcome_.outbound_reads = std::min(offer_.outbound_reads, asked.inbound_reads);
  }
  if (asked.outbound_reads != unspecified) {
    outcome_.inbound_reads = std::min(offer_.inbound_reads, asked.outbound_reads);
  }
  answer.inbound_reads = outcome_.inbound_reads;
  answer.outbound_reads = outcome_.outbound_reads;
  if (!asked.peer_to_peer) return true;
  answer.peer_to_peer = true;
  answer.ready_by_write = asked.ready_by_write && offer_.ready_by_write;
  answer.ready_by_read = !answer.ready_by_write && asked.ready_by_read && offer_.ready_by_read;
  if (answer.ready_by_write) outcome_.ready = Opcode::write;
  if (answer.ready_by_read) outcome_.ready = Opcode::read_request;
  return outcome_.ready.has_value();
}

void MpaSetup::handle_reply(const mpa::StartFrame& reply) {
  if (reply.flags.rejected) {
    state_ = State::refused;
    return;
  }
  if (reply.flags.markers) return refuse(error::marker_and_length);
  // A reply without the enhanced set-up of the request is one of revision 1 (RFC 6581 6).
  enhanced_ = enhanced_ && reply.flags.enhanced;
  outcome_ = {offer_.crc || reply.flags.crc, offer_.inbound_reads, offer_.outbound_reads, {}};
  if (!enhanced_) {
    if (offer_.peer_to_peer) return refuse(error::no_matching_ready);
    state_ = State::established;
    return;
  }
  const auto data = std::span<const std::byte>(received_).subspan(mpa::start_frame_bytes);
  agree_as_initiator(mpa::decode_enhanced(data.first<mpa::enhanced_setup_bytes>()));
}

void MpaSetup::agree_as_initiator(const EnhancedSetup& answer) {
  constexpr auto unspecified = EnhancedSetup::depth_max;
  if (answer.inbound_reads != unspecified) {
    outcome_.outbound_reads = std::min(offer_.outbound_reads, answer.inbound_reads);
  }
  // The responder would have more READs outstanding than this end takes.
  if (answer.outbound_reads != unspecified && answer.outbound_reads > offer_.inbound_reads) {
    return refuse(error::insufficient_reads);
  }
  if (offer_.peer_to_peer) {
    if (answer.ready_by_write && offer_.ready_by_write) {
      outcome_.ready = Opcode::write;
    } else if (answer.ready_by_read && offer_.ready_by_read) {
      outcome_.ready = Opcode::read_request;
    } else {
      return refuse(error::no_matching_ready);
    }
  }
  state_ = State::established;
}

void MpaSetup::refuse(wire::rdmap::TerminateCode code) {
  error_ = code;
  state_ = State::refused;
}

}  // namespace tulle::transport::iwarp
