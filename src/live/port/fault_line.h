#pragma once

// Datagrams that a fault holds up on their way out: whole copies, in memory that is there from the
// beginning.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "fabric/faults.h"
#include "link/roce_v2.h"
#include "wire/ip_udp.h"

namespace tulle::live {

class FaultLine {
 public:
  explicit FaultLine(const fabric::FaultSettings& settings);

  // A datagram's UDP payload, in pieces, enters: to be dropped, or held as one or two copies.
  void offer(Time now, const wire::IpUdp& ip,
             std::span<const std::span<const std::byte>> udp_payload);
  Time next_deadline() const { return due_.empty() ? Time::never() : due_.front().at; }

  // Hands out what is due, oldest first: send(const wire::IpUdp&, std::span<const std::byte>).
  template <typename Send>
  void release(Time now, Send send) {
    while (!due_.empty() && due_.front().at <= now) {
      const std::uint32_t slot = take_first();
      send(static_cast<const wire::IpUdp&>(held_[slot].ip),
           std::span<const std::byte>(held_[slot].bytes.data(), held_[slot].size));
      free_.push_back(slot);
    }
  }

  const fabric::FaultCounters& counters() const { return faults_.counters(); }
  std::uint64_t overflows() const { return overflows_; }  // dropped since too many were held

 private:
  struct Held {
    wire::IpUdp ip;
    std::size_t size = 0;
    std::array<std::byte, link::udp_payload_bytes_max> bytes;
  };
  struct Due {
    Time at;
    std::uint64_t order = 0;  // equal times leave as they came
    std::uint32_t slot = 0;
  };
  static bool later(const Due& a, const Due& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  std::uint32_t take_first();

  fabric::Faults faults_;
  std::unique_ptr<Held[]> held_;
  std::vector<std::uint32_t> free_;
  std::vector<Due> due_;  // a heap
  std::uint64_t next_order_ = 0;
  std::uint64_t overflows_ = 0;
};

}  // namespace tulle::live
