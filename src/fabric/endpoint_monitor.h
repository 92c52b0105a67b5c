#pragma once

// Congestion control by the port to a host, where more may come for the host than its link carries.
// The switch sees all that is for it, and from whom, so that it need not wait for a sender to feel
// its way: when the queue grows, those who contribute are told the rate that is theirs, the same
// for all but those who want less (max-min). What others send over the same links is never slowed.
//
// Slingshot's hardware does so by keeping account of what is on its way between each pair of
// endpoints (De Sensi et al., SC 2020); how it sets rates is not published. Here it is arithmetic
// on what came within a window. A message straight from the switch to the source is what IEEE
// P802.1Qdw (source flow control) proposes, there with a time to stop for.

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace tulle::fabric {

struct EndpointSettings {
  bool enabled = false;
  std::uint32_t queue_bytes = 65'536;    // congested above this
  Time window = Time::microseconds(10);  // over which rates are measured, at least
  double target = 0.95;                  // share of the link that is given out
};

// What a source is told: the most that it may send to a host, for a while.
struct EndpointNotice {
  std::uint32_t source = 0;    // hosts: who is told
  std::uint32_t endpoint = 0;  // what is congested
  std::int64_t bits_per_second = 0;
  Time hold;
};
// As long as RoCE v2's notification: BTH, 16 bytes and ICRC.
inline constexpr std::uint32_t endpoint_notice_bytes = 32;

class EndpointMonitor {
 public:
  EndpointMonitor(const EndpointSettings& settings, std::int64_t bits_per_second,
                  std::uint32_t longest_frame_bytes);

  struct Advice {
    std::int64_t bits_per_second = 0;  // 0: nothing to tell
    Time hold;
  };
  // A data frame of a source waits for the host's link now, behind and with so many bytes.
  Advice arrived(Time now, std::uint32_t source, std::uint32_t bytes, std::uint64_t queue_bytes);

  bool is_congested() const { return is_congested_; }
  std::size_t contributors() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint32_t source = 0;
    bool is_fresh = true;        // seen in this window
    bool was_fresh = true;       // in the one before
    std::uint64_t bytes = 0;     // in this window
    double rate = -1;            // of late, in bits a second; less than 0: not known yet
    std::int64_t told_rate = 0;  // 0: nothing yet
    Time told_at;
  };
  Entry& entry(std::uint32_t source);
  Time window() const;
  void end_window(Time now, std::uint64_t queue_bytes);
  void forget_silent();
  void share_out(double capacity);
  double measure(Time taken);
  void index_entries();
  std::size_t slot_of(std::uint32_t source) const;
  Advice tell(Time now, Entry& to) const;

  const EndpointSettings* settings_;
  std::int64_t link_bits_per_second_;
  std::uint32_t longest_frame_bytes_;
  bool is_congested_ = false;
  Time window_began_;
  double given_ = 0;        // bits a second that all were given together; 0: nothing
  std::int64_t share_ = 0;  // bits a second of each that wants as much
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> place_of_;  // by hash of source: into entries_, and one more; 0: none
};

}  // namespace tulle::fabric
