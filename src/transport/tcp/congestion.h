#pragma once

// How much a connection may have under way: slow start and congestion avoidance (RFC 5681), the
// latter by CUBIC (RFC 9438) or with DCTCP's answer to marks (RFC 8257). In bytes throughout.

#include <cstdint>
#include <variant>

#include "base/time.h"
#include "transport/tcp/settings.h"

namespace tulle::transport::tcp {

// RFC 9438. Windows in segments, time in seconds, as the formulas have them.
class Cubic {
 public:
  // The window's growth on an acknowledgement of `bytes`, in bytes.
  double increase(Time now, Time round_trip, std::uint64_t window_bytes, std::uint32_t mss_bytes,
                  std::uint64_t bytes);
  // The threshold after a loss or a mark, in bytes.
  std::uint64_t reduce(std::uint64_t window_bytes, std::uint32_t mss_bytes);
  void restart() { epoch_ = Time::never(); }
  void timed_out() { window_max_ = 0; }

 private:
  Time epoch_ = Time::never();  // when the present stage of congestion avoidance began
  double window_max_ = 0;
  double time_to_max_ = 0;  // K
  double reno_window_ = 0;  // W_est
};

// RFC 8257 §3.3, on Reno's congestion avoidance.
class Dctcp {
 public:
  explicit Dctcp(double gain = 1.0 / 16) : gain_(gain) {}
  // Of what was acknowledged, what its receiver said was marked; `end`: up to where; `sent_end`:
  // what is sent so far, the next observation's end.
  void acknowledged(std::uint64_t bytes, bool marked, std::uint64_t end, std::uint64_t sent_end);
  double share_marked() const { return alpha_; }

 private:
  double gain_;
  double alpha_ = 1;  // RFC 8257 §4.2: as if all had been marked
  std::uint64_t acknowledged_ = 0;
  std::uint64_t marked_ = 0;
  std::uint64_t window_end_ = 0;
};

class Congestion {
 public:
  explicit Congestion(const Settings& settings);

  std::uint64_t window_bytes() const { return window_; }
  bool in_slow_start() const { return window_ < threshold_; }

  // New bytes were delivered, outside of recovery; `limited`: the window was what held the sender
  // back.
  void acknowledged(Time now, Time round_trip, std::uint64_t bytes, bool limited);
  // CUBIC alone: of every acknowledgement, whether slow start has found the path's width. `end`:
  // what is acknowledged, `sent_end`: what is sent; `least`: the shortest round trip.
  void watch_slow_start(Time now, Time least, std::uint64_t end, std::uint64_t sent_end);
  // DCTCP alone: of every acknowledgement.
  void observe(std::uint64_t bytes, bool marked, std::uint64_t end, std::uint64_t sent_end);
  // A loss: once a window. A mark: the same.
  void lost();
  void marked();
  void timed_out(bool again);  // again: for the second time in a row, or more
  // RFC 5681 §4.1.
  void restarted();

 private:
  std::uint64_t reduced();

  const Settings& settings_;
  std::uint64_t window_;
  std::uint64_t threshold_ = UINT64_MAX;
  double fraction_ = 0;  // of a byte, of growth
  // HyStart's round: what ends it, when it began and when its last acknowledgement came.
  std::uint64_t round_end_ = 0;
  Time round_start_;
  Time round_last_;
  std::variant<Cubic, Dctcp> control_;
};

// Deterministic everywhere, unlike the library's.
double cube_root(double x);

}  // namespace tulle::transport::tcp
