#pragma once

// Holds datagrams that a fault delays on their way out, as whole copies in preallocated memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "fabric/faults.h"
#include "live/security/seal.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/ip_udp.h"

namespace tulle::live {

class FaultLine {
 public:
  explicit FaultLine(const fabric::FaultSettings& settings);

  // Takes a datagram's UDP payload, in pieces, and drops it or holds one or two copies of it.
  void offer(Time now, const wire::IpUdp& ip,
             std::span<const std::span<const std::byte>> udp_payload);
  Time next_deadline() const { return due_.empty() ? Time::never() : due_.front().at; }

  // Hands out the datagrams that are due, oldest first, by send(const wire::IpUdp&, std::span<const
  // std::byte>).
  template <typename Send>
  void release(Time now, Send send) {
    while (!due_.empty() && due_.front().at <= now) {
      const std::uint32_t slot = take_first();
      send(static_cast<const wire::IpUdp&>(held_[slot].ip),
           std::span<const std::byte>(held_[slot].bytes.data(), held_[slot].size));
      free_.push_back(slot);
    }
  }

  void rebase(Time by) {
    for (Due& due : due_) tulle::rebase(by, due.at);
    std::make_heap(due_.begin(), due_.end(), later);
  }

  const fabric::FaultCounters& counters() const { return faults_.counters(); }
  // Returns the number of copies that were dropped because too many were held.
  std::uint64_t overflows() const { return overflows_; }

 private:
  struct Held {
    wire::IpUdp ip;
    std::size_t size = 0;
    std::array<std::byte, port::udp_payload_bytes_max + seal_bytes> bytes;
  };
  struct Due {
    Time at;
    std::uint64_t order = 0;  // datagrams with equal times leave in order of arrival
    std::uint32_t slot = 0;
  };
  static bool later(const Due& a, const Due& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  std::uint32_t take_first();

  fabric::Faults faults_;
  std::unique_ptr<Held[]> held_;
  std::vector<std::uint32_t> free_;
  std::vector<Due> due_;  // heap; the earliest is at the front
  std::uint64_t next_order_ = 0;
  std::uint64_t overflows_ = 0;
};

}  // namespace tulle::live
