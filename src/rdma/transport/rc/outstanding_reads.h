#pragma once

// The READ and atomic requests of a requester that were sent and are not answered yet, oldest
// first. Each is kept as the PSN behind its last response. The first ones are in flight; the others
// wait to be sent again. A READ that is sent again ends where it ended before: the responder may
// not have executed what is behind that end, and it cannot answer a request that is only partly a
// duplicate.

#include <array>
#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace tulle::transport::rc {

class OutstandingReads {
 public:
  // The most requests outstanding. IBTA bounds them by max_rd_atomic.
  static constexpr std::uint32_t most = 16;

  std::uint32_t in_flight() const { return in_flight_; }
  // A request was sent, whose last response has the PSN before `end`. There must be room.
  void sent(Psn end) {
    if (in_flight_ == known_) ends_[(first_ + known_++) % most] = end;
    ++in_flight_;
  }
  // Returns where the next request to be sent ended before, if it was sent before.
  std::optional<Psn> next_end() const {
    if (in_flight_ == known_) return std::nullopt;
    return ends_[(first_ + in_flight_) % most];
  }
  // All responses before that PSN have come.
  void answered_until(Psn psn) {
    while (known_ > 0 && !ends_[first_].after(psn)) {
      first_ = (first_ + 1) % most;
      --known_;
      if (in_flight_ > 0) --in_flight_;
    }
  }
  // All are to be sent again.
  void go_back() { in_flight_ = 0; }
  // The request whose responses include that PSN is the next one to be sent, or all are in flight.
  void move_to(Psn psn) { in_flight_ = index_of(psn); }
  // Makes so many be in flight again.
  void restore(std::uint32_t in_flight) { in_flight_ = in_flight; }
  // Returns the end of the request whose responses include that PSN.
  std::optional<Psn> end_of(Psn psn) const {
    const std::uint32_t index = index_of(psn);
    if (index == known_) return std::nullopt;
    return ends_[(first_ + index) % most];
  }

 private:
  std::uint32_t index_of(Psn psn) const {
    std::uint32_t index = 0;
    while (index != known_ && !ends_[(first_ + index) % most].after(psn)) ++index;
    return index;
  }

  std::array<Psn, most> ends_{};
  std::uint32_t first_ = 0;
  std::uint32_t known_ = 0;
  std::uint32_t in_flight_ = 0;
};

}  // namespace tulle::transport::rc
