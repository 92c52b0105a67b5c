#pragma once

// Congestion control at the port to a host, where more traffic may arrive for the host than its
// link carries. The switch sees all traffic for the host and its sources, so it need not wait for
// senders to find their rate. When the queue grows, the switch tells each contributor a rate. The
// rate is the same for all contributors, except those that want less (max-min). Traffic to other
// hosts over the same links is never slowed.
//
// Slingshot's hardware does this by keeping account of the traffic in flight between each pair of
// endpoints (De Sensi et al., SC 2020); how it sets rates is not published. Here the rates are
// computed from the bytes that arrived within a window. IEEE P802.1Qdw (source flow control)
// proposes the same kind of message, straight from the switch to the source, but with a time to
// stop for.

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace tulle::fabric {

struct EndpointSettings {
  bool enabled = false;
  std::uint32_t queue_bytes = 65'536;    // congested above this
  Time window = Time::microseconds(10);  // shortest window over which rates are measured
  double target = 0.95;                  // share of the link that is given to sources
};

// A notice to a source: the most that it may send to a host, for a while.
struct EndpointNotice {
  std::uint32_t source = 0;    // host that is told
  std::uint32_t endpoint = 0;  // host that is congested
  std::int64_t bits_per_second = 0;
  Time hold;
};
// The notice is as long as RoCE v2's notification: BTH, 16 bytes and ICRC.
inline constexpr std::uint32_t endpoint_notice_bytes = 32;

class EndpointMonitor {
 public:
  EndpointMonitor(const EndpointSettings& settings, std::int64_t bits_per_second,
                  std::uint32_t longest_frame_bytes);

  struct Advice {
    std::int64_t bits_per_second = 0;  // 0: there is nothing to tell
    Time hold;
  };
  // Records a data frame of `bytes` from a source that now waits for the host's link, in a queue of
  // `queue_bytes`. Returns the notice that the source should get.
  Advice arrived(Time now, std::uint32_t source, std::uint32_t bytes, std::uint64_t queue_bytes);

  void rebase(Time by) {
    tulle::rebase(by, window_began_);
    for (Entry& entry : entries_) tulle::rebase(by, entry.told_at);
  }

  bool is_congested() const { return is_congested_; }
  std::size_t contributors() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint32_t source = 0;
    bool is_fresh = true;        // seen in this window
    bool was_fresh = true;       // seen in the window before
    std::uint64_t bytes = 0;     // received in this window
    double rate = -1;            // smoothed rate in bits a second; below 0: not known yet
    std::int64_t told_rate = 0;  // latest rate that the source was told; 0: none yet
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
  double given_ = 0;        // sum of the rates given out, in bits a second; 0: none
  std::int64_t share_ = 0;  // rate of each source that wants that much, in bits a second
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> place_of_;  // by hash of source: index into entries_ plus one; 0: none
};

}  // namespace tulle::fabric
