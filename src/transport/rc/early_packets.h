#pragma once

// Packets that came before one that is missing, in a responder with selective repeat. They are
// held, and executed in order when the gap closes: IBTA 9.5 promises that WRITEs and SENDs of one
// queue pair take effect in order, which a WRITE placed early would break where it overlaps an
// earlier one. Memory is taken with the first of them, since most queue pairs never see one.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/ring.h"
#include "transport/packet_io.h"
#include "wire/packet.h"

namespace tulle::transport::rc {

class EarlyPackets {
 public:
  struct Held {
    bool taken = false;
    wire::Packet packet;
    Payload payload;
  };

  EarlyPackets(std::uint32_t packets, std::uint32_t mtu_bytes)
      : packets_(packets), mtu_bytes_(mtu_bytes) {}

  // How far ahead of the packet that is expected.
  std::uint32_t window() const { return packets_; }

  // The packet lies within the window, its payload within the path MTU.
  void hold(const wire::Packet& packet, Payload payload);
  // Null: not here. It stays good until the next hold().
  const Held* find(Psn psn) const;
  // Of the packets from `first` on, which are executed.
  void forget(Psn first, std::uint32_t psns);

  // Packets that came early and that the requester has not been told of.
  bool has_untold() const { return !untold_.empty(); }
  Psn next_untold() const { return untold_[0]; }
  void told() { untold_.pop(); }

 private:
  std::size_t slot(Psn psn) const { return psn.value() & (held_.size() - 1); }

  std::uint32_t packets_;
  std::uint32_t mtu_bytes_;
  std::vector<Held> held_;              // by PSN
  std::unique_ptr<std::byte[]> bytes_;  // mtu_bytes_ each; none for ghosts
  Ring<Psn> untold_;
};

inline void EarlyPackets::hold(const wire::Packet& packet, Payload payload) {
  if (held_.empty()) {
    held_.resize(std::bit_ceil(packets_));  // so that slots follow PSNs where those wrap
    untold_ = Ring<Psn>(packets_);
  }
  Held& held = held_[slot(packet.psn)];
  held = {true, packet, payload};
  if (payload.data != nullptr) {
    if (bytes_ == nullptr) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(held_.size() * mtu_bytes_);
    }
    std::byte* to = bytes_.get() + slot(packet.psn) * mtu_bytes_;
    std::memcpy(to, payload.data, payload.bytes);
    held.payload.data = to;
  }
  if (!untold_.full()) untold_.push(packet.psn);
}

inline const EarlyPackets::Held* EarlyPackets::find(Psn psn) const {
  if (held_.empty()) return nullptr;
  const Held& held = held_[slot(psn)];
  return held.taken && held.packet.psn == psn ? &held : nullptr;
}

inline void EarlyPackets::forget(Psn first, std::uint32_t psns) {
  if (held_.empty()) return;
  for (std::uint32_t i = 0; i < std::min(psns, packets_); ++i) {
    held_[slot(first + i)].taken = false;
  }
}

}  // namespace tulle::transport::rc
