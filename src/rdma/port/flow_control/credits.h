#pragma once

// The two ends of InfiniBand's link-level flow control (IBTA 7.9), for one virtual lane in one
// direction of a link. The counts are absolute, so that a lost update costs only time.

#include <cstdint>

#include "rdma/port/flow_control/control.h"

namespace tulle::port {

class CreditSender {
 public:
  // IBTA 7.9.4.2: a packet may be sent if the total including it does not exceed the limit, modulo
  // 2^12.
  bool may_send(std::uint32_t bytes) const {
    return ((limit_ - (sent_ + blocks_of(bytes))) & credit_mask) <= credit_mask / 2;
  }
  void sent(std::uint32_t bytes) { sent_ = (sent_ + blocks_of(bytes)) & credit_mask; }
  void update(std::uint16_t limit) { limit_ = limit; }
  std::uint32_t total_sent() const { return sent_; }
  std::uint32_t limit() const { return limit_; }

 private:
  std::uint32_t sent_ = 0;   // FCTBS
  std::uint32_t limit_ = 0;  // FCCL from the latest update
};

class CreditReceiver {
 public:
  explicit CreditReceiver(std::uint32_t buffer_blocks = 0) : free_(buffer_blocks) {}

  void received(std::uint32_t bytes) {
    const std::uint32_t blocks = blocks_of(bytes);
    arrived_ = (arrived_ + blocks) & credit_mask;
    free_ -= blocks;
  }
  void released(std::uint32_t bytes) { free_ += blocks_of(bytes); }
  // IBTA 7.9.4.4: returns the total that may arrive, at most 2047 blocks ahead.
  std::uint16_t limit() const {
    return static_cast<std::uint16_t>((arrived_ + (free_ < 2'047 ? free_ : 2'047)) & credit_mask);
  }
  // Returns the number of blocks by which the limit has moved since the sender was last told.
  std::uint32_t untold() const { return (limit() - told_) & credit_mask; }
  // Returns true if the limit has moved far enough to be worth an update: by a quarter of the
  // lane's memory, so that the rest keeps the link busy until the update arrives.
  bool is_worth_telling(std::uint32_t buffer_blocks) const { return untold() * 4 >= buffer_blocks; }
  std::uint16_t tell() { return told_ = limit(); }
  std::uint32_t free_blocks() const { return free_; }
  // The sender says how much it has sent. What is not here by now was lost on the way (IBTA
  // 7.9.4.4: ABR is set to FCTBS).
  void resynchronise(std::uint32_t total_sent) { arrived_ = total_sent & credit_mask; }
  // Restarts the totals when the link is initialised again (IBTA 7.9.4). Packets that are still in
  // memory keep their blocks.
  void restart() {
    arrived_ = 0;
    told_ = 0;
  }

 private:
  std::uint32_t arrived_ = 0;  // ABR
  std::uint32_t free_ = 0;
  std::uint16_t told_ = 0;
};

}  // namespace tulle::port
