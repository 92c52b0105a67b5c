#pragma once

// Packets that arrived ahead of a missing one, in a responder with selective repeat. The responder
// holds them and executes them in order when the gap closes. IBTA 9.5 promises that WRITEs and
// SENDs of one queue pair take effect in order; a WRITE placed early would break this if it
// overlapped an earlier one. Memory is allocated with the first such packet, since most queue pairs
// never see one.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/guarded_access.h"
#include "base/ids.h"
#include "base/ring.h"
#include "rdma/transport/packet_io.h"
#include "rdma/wire/packet.h"

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

  // A packet is held only if it is less than this many PSNs ahead of the expected one.
  std::uint32_t window() const { return packets_; }

  // The packet must be within the window, and its payload must fit into the path MTU.
  void hold(const wire::Packet& packet, Payload payload);
  // Returns null if the packet is not held. The result stays valid until the next hold().
  const Held* find(Psn psn) const;
  // Releases `psns` packets from `first` on, which have been executed.
  void forget(Psn first, std::uint32_t psns);

  // Packets that came early and have not been reported to the requester.
  bool has_untold() const { return !untold_.empty(); }
  Psn next_untold() const { return untold_[0]; }
  void told() { untold_.pop(); }

 private:
  std::size_t slot(Psn psn) const { return psn.value() & (held_.size() - 1); }

  std::uint32_t packets_;
  std::uint32_t mtu_bytes_;
  std::vector<Held> held_;              // by PSN
  std::unique_ptr<std::byte[]> bytes_;  // mtu_bytes_ for each slot; null if only ghosts came
  Ring<Psn> untold_;
};

inline void EarlyPackets::hold(const wire::Packet& packet, Payload payload) {
  // All memory comes first: a slot is not taken before it can hold the packet.
  if (untold_.capacity() == 0) untold_ = Ring<Psn>(packets_);
  const std::size_t slots = std::bit_ceil(packets_);  // so that slots follow PSNs that wrap
  if (payload.data != nullptr && bytes_ == nullptr) {
    bytes_ = std::make_unique_for_overwrite<std::byte[]>(slots * mtu_bytes_);
  }
  if (held_.empty()) held_.resize(slots);
  Held& held = held_[slot(packet.psn)];
  held = {false, packet, payload};
  if (payload.data != nullptr) {
    // The payload may be in the program's memory already (Engine::find_placement).
    std::byte* to = bytes_.get() + slot(packet.psn) * mtu_bytes_;
    if (!copy_guarded(to, payload.data, payload.bytes)) return;
    held.payload.data = to;
  }
  held.taken = true;
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
