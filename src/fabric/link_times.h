#pragma once

// When the links of a subnet are free, if packets take as long on them as these have bits of data
// for. Otherwise, packets take no time, and all links are free.
//
// The time of links may be behind the present: if time was missed, it advances from the end of one
// packet to that of the next, so that programs act in between as they would have done.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/node_port.h"

namespace tulle::fabric {

class LinkTimes {
 public:
  // If advance() is called late, the links make up for so much time.
  static constexpr Time catch_up_max = Time::milliseconds(50);

  explicit LinkTimes(std::uint32_t nodes) : free_at_(nodes) {}
  void set_ports(std::uint32_t node, std::uint16_t ports) { free_at_[node].resize(ports); }
  void keep_rates() { keeps_rates_ = true; }
  bool keeps_rates() const { return keeps_rates_; }

  // Returns false if a port's link carries a packet still.
  bool is_free(NodePort at) const { return !keeps_rates_ || free_at_[at.node][at.port] <= now_; }
  // A packet with so many bytes goes onto a port's link. A link with rate 0 takes no time.
  void carry(NodePort at, std::int64_t bits_per_second, std::int64_t bytes);
  // Notes that a packet waits at a port until its link is free.
  void wait(NodePort at) {
    if (std::ranges::find(waiting_, at) == waiting_.end()) waiting_.push_back(at);
  }

  // Advances the time of links to when the next one is free. If no packet waits, or the next one
  // waits longer, it is the present. Calls `free` for each port that waits no longer.
  template <typename Free>
  void advance(Time now, Free free) {
    if (!keeps_rates_) return;
    advance(now);
    std::erase_if(waiting_, [&](NodePort at) {
      if (free_at_[at.node][at.port] > now_) return false;
      free(at);
      return true;
    });
  }
  // Returns true if the links make up for time that was missed.
  bool is_behind() const { return now_ < advanced_at_; }
  // Returns when the next port waits no longer.
  Time next() const;
  void rebase(Time by) {
    tulle::rebase(by, advanced_at_, now_);
    for (auto& of_node : free_at_) {
      for (Time& free_at : of_node) tulle::rebase(by, free_at);
    }
  }

 private:
  void advance(Time now);

  bool keeps_rates_ = false;
  Time advanced_at_;                        // in the present
  Time now_;                                // the time up to which links have sent
  std::vector<std::vector<Time>> free_at_;  // by node and port
  std::vector<NodePort> waiting_;
};

}  // namespace tulle::fabric
