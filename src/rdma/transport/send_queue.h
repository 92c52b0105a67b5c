#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ring.h"
#include "rdma/verbs/memory.h"
#include "rdma/verbs/types.h"

namespace tulle::transport {

// IBTA 9.7.7.1.2 allows 2^31 bytes. Half of that keeps every message within a quarter of the PSN
// space at MTU 256.
inline constexpr std::uint64_t message_bytes_max = 1ull << 30;

// Returns the sum of the lengths of a request's pieces or SGEs, in bytes.
std::uint64_t length_of(const verbs::SendRequest& request);

// A send work request while it is queued or in flight.
struct SendWqe {
  std::uint64_t wr_id = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  RemoteKey rkey;
  RemoteKey invalidate_rkey;
  std::uint32_t immediate = 0;
  std::uint32_t length = 0;   // bytes of the message
  Psn first_psn;              // valid once started
  std::uint32_t packets = 0;  // PSNs of the request, valid once started; 0 if it has no packets
  verbs::SendOpcode opcode{};
  verbs::SendFlags flags;
  bool started = false;
  bool executed = false;  // done without packets: a local operation, or by the direct path
  // A local error that was found while sending.
  verbs::CompletionStatus status = verbs::CompletionStatus::success;
  std::uint8_t sge_count = 0;
  std::uint32_t slot = 0;
  std::uint32_t place = 0;  // among the program's requests since the queue was cleared

  Psn last_psn() const { return first_psn + (packets - 1); }
  // True if the responder needs one of its limited resources to answer the request.
  bool is_read_or_atomic() const {
    return opcode == verbs::SendOpcode::read || is_atomic() ||
           opcode == verbs::SendOpcode::atomic_write;
  }
  // An atomic_write whose bytes are in compare_add.
  bool holds_value() const {
    return opcode == verbs::SendOpcode::atomic_write && sge_count == 0 &&
           !flags.has(verbs::SendFlag::inline_data);
  }
  bool is_atomic() const {
    return opcode == verbs::SendOpcode::compare_swap || opcode == verbs::SendOpcode::fetch_add;
  }
  bool is_local() const {
    return opcode == verbs::SendOpcode::local_invalidate ||
           opcode == verbs::SendOpcode::bind_window;
  }
  bool is_write() const {
    return opcode == verbs::SendOpcode::write || opcode == verbs::SendOpcode::write_with_immediate;
  }
  // True if the request consumes a receive request of the peer.
  bool consumes_receive() const {
    return opcode == verbs::SendOpcode::send || opcode == verbs::SendOpcode::send_with_immediate ||
           opcode == verbs::SendOpcode::send_with_invalidate ||
           opcode == verbs::SendOpcode::write_with_immediate;
  }
};

// The part of a WQE that follows its fixed part: for UD the destination, for a bind the window, for
// XRC the number of the shared receive queue.
struct DatagramTarget {
  verbs::AddressVector to;
  QpNumber qp;
  Qkey qkey;
  const verbs::ProtectionDomain* pd = nullptr;  // of the address handle
};
struct BindTarget {
  verbs::MemoryWindow* window = nullptr;
  verbs::WindowBinding binding;
};

// The memory of a send queue: a ring of fixed parts, and for each slot room for SGEs or inline
// data. It is allocated with the first post, so that an idle queue pair costs only its header.
class SendQueue {
 public:
  SendQueue() = default;
  SendQueue(std::uint32_t work_requests, std::uint32_t sges, std::uint32_t inline_bytes);

  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t sges_per_request() const { return sges_; }
  std::uint32_t inline_bytes() const { return inline_bytes_; }

  bool empty() const { return wqes_.empty(); }
  std::uint32_t size() const { return wqes_.size(); }
  SendWqe& operator[](std::uint32_t i) { return wqes_[i]; }
  const SendWqe& operator[](std::uint32_t i) const { return wqes_[i]; }
  SendWqe& front() { return wqes_.front(); }
  void pop() { wqes_.pop(); }
  void clear() {
    wqes_.clear();
    next_place_ = 0;
  }

  // Checks the number of SGEs and the length of the data.
  verbs::VerbsStatus check(const verbs::SendRequest& request) const;
  // Copies a checked request with its SGEs or inline bytes. Returns out_of_memory if the queue is
  // full.
  verbs::VerbsStatus post(const verbs::SendRequest& request);

  const verbs::Sge* sges(const SendWqe& wqe) const {
    return reinterpret_cast<const verbs::Sge*>(data(wqe));
  }
  const std::byte* inline_data(const SendWqe& wqe) const { return data(wqe); }
  const DatagramTarget& datagram_target(const SendWqe& wqe) const {
    return extensions_[wqe.slot].datagram;
  }
  const BindTarget& bind_target(const SendWqe& wqe) const { return extensions_[wqe.slot].bind; }
  std::uint32_t xrc_srq(const SendWqe& wqe) const { return extensions_[wqe.slot].xrc_srq; }

 private:
  union Extension {
    DatagramTarget datagram;
    BindTarget bind;
    std::uint32_t xrc_srq;
    Extension() : bind() {}
  };

  std::byte* data(const SendWqe& wqe) const {
    return data_.get() + std::size_t{wqe.slot} * stride_;
  }
  void allocate();

  std::uint32_t capacity_ = 0;
  std::uint32_t sges_ = 0;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t stride_ = 0;
  std::uint32_t next_slot_ = 0;
  std::uint32_t next_place_ = 0;
  Ring<SendWqe> wqes_;
  std::unique_ptr<std::byte[]> data_;
  std::unique_ptr<Extension[]> extensions_;
};

}  // namespace tulle::transport
