#include "rdma/transport/send_queue.h"

#include <algorithm>
#include <cstring>

#include "rdma/verbs/address_handle.h"

namespace tulle::transport {

using verbs::SendFlag;
using verbs::SendOpcode;
using verbs::VerbsStatus;

namespace {

bool carries_data(SendOpcode opcode) {
  return opcode != SendOpcode::local_invalidate && opcode != SendOpcode::bind_window;
}

}  // namespace

std::uint64_t length_of(const verbs::SendRequest& request) {
  std::uint64_t length = 0;
  if (request.flags.has(SendFlag::inline_data)) {
    for (const auto& piece : request.inline_pieces) length += piece.size();
  } else {
    for (const verbs::Sge& sge : request.sges) length += sge.length;
  }
  return length;
}

SendQueue::SendQueue(std::uint32_t work_requests, std::uint32_t sges, std::uint32_t inline_bytes)
    : capacity_(work_requests), sges_(sges), inline_bytes_(inline_bytes) {
  const std::size_t largest = std::max(sges * sizeof(verbs::Sge), std::size_t{inline_bytes});
  stride_ = static_cast<std::uint32_t>((largest + 15) / 16 * 16);
}

void SendQueue::allocate() {
  Ring<SendWqe> wqes(capacity_);
  data_ = std::make_unique<std::byte[]>(std::size_t{capacity_} * stride_);
  extensions_ = std::make_unique<Extension[]>(capacity_);
  wqes_ = std::move(wqes);  // last, because it says that all are there
}

VerbsStatus SendQueue::check(const verbs::SendRequest& request) const {
  const bool is_inline = request.flags.has(SendFlag::inline_data);
  if (!is_inline && request.sges.size() > sges_) return VerbsStatus::invalid_argument;
  const std::uint64_t length = length_of(request);
  const std::uint64_t longest = is_inline ? inline_bytes_ : message_bytes_max;
  return length > longest ? VerbsStatus::invalid_argument : VerbsStatus::ok;
}

VerbsStatus SendQueue::post(const verbs::SendRequest& request) {
  const bool is_inline = request.flags.has(SendFlag::inline_data);
  if (wqes_.capacity() == 0 && capacity_ > 0) allocate();
  if (wqes_.full()) return VerbsStatus::out_of_memory;

  SendWqe& wqe = wqes_.push();
  wqe = {};
  wqe.wr_id = request.wr_id;
  wqe.opcode = request.opcode;
  wqe.flags = request.flags;
  wqe.remote_address = request.remote_address;
  wqe.rkey = request.rkey;
  wqe.invalidate_rkey = request.invalidate_rkey;
  wqe.immediate = request.immediate;
  wqe.compare_add = request.compare_add;
  wqe.swap = request.swap;
  wqe.length = carries_data(request.opcode) ? static_cast<std::uint32_t>(length_of(request)) : 0;
  wqe.slot = next_slot_;
  next_slot_ = next_slot_ + 1 == capacity_ ? 0 : next_slot_ + 1;
  wqe.place = next_place_;
  if (!request.flags.has(SendFlag::of_device)) ++next_place_;

  std::byte* to = data(wqe);
  if (is_inline) {
    for (const auto& piece : request.inline_pieces) {
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  } else {
    wqe.sge_count = static_cast<std::uint8_t>(request.sges.size());
    if (!request.sges.empty()) std::memcpy(to, request.sges.data(), request.sges.size_bytes());
  }
  if (request.address_handle != nullptr) {
    // NICs send the low 24 bits of the number that the application gives, whatever the others are.
    const QpNumber remote_qp{request.remote_qp.value & qp_number_max};
    extensions_[wqe.slot].datagram = {request.address_handle->to, remote_qp, request.remote_qkey,
                                      request.address_handle->pd};
  }
  if (request.xrc_srq != 0) [[unlikely]]
    extensions_[wqe.slot].xrc_srq = request.xrc_srq;
  if (request.opcode == SendOpcode::bind_window) {
    extensions_[wqe.slot].bind = {
        request.window,
        {request.window_region, request.window_address, request.window_length,
         request.window_access, request.window_rkey}};
  }
  if (wqe.holds_value()) [[unlikely]]
    wqe.length = sizeof(wqe.compare_add);
  return VerbsStatus::ok;
}

}  // namespace tulle::transport
