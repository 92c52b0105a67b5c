#pragma once

// The congestion window of a connection: slow start and congestion avoidance (RFC 5681). Congestion
// avoidance is CUBIC's (RFC 9438), or Reno's with DCTCP's response to marks (RFC 8257). Windows are
// in bytes.

#include <cstdint>
#include <variant>

#include "base/time.h"
#include "rdma/transport/tcp_settings.h"

namespace tulle::transport::tcp {

// CUBIC (RFC 9438). Inside, windows are in segments and times in seconds, as in the formulas.
class Cubic {
 public:
  // Returns the growth of the window on an acknowledgement of `bytes`, in bytes.
  double increase(Time now, Time round_trip, std::uint64_t window_bytes, std::uint32_t mss_bytes,
                  std::uint64_t bytes);
  // Returns the slow-start threshold after a loss or a mark, in bytes.
  std::uint64_t reduce(std::uint64_t window_bytes, std::uint32_t mss_bytes);
  void restart() { epoch_ = Time::never(); }
  void timed_out() { window_max_ = 0; }
  void rebase(Time by) { tulle::rebase(by, epoch_); }

 private:
  Time epoch_ = Time::never();  // beginning of the present stage of congestion avoidance
  double window_max_ = 0;
  double time_to_max_ = 0;  // K
  double reno_window_ = 0;  // W_est
};

// DCTCP (RFC 8257 §3.3), on top of Reno's congestion avoidance.
class Dctcp {
 public:
  explicit Dctcp(double gain = 1.0 / 16) : gain_(gain) {}
  // `bytes` were acknowledged, up to `end`; `marked` is what the receiver said of them. `sent_end`
  // is the end of what was sent so far, where the next observation ends.
  void acknowledged(std::uint64_t bytes, bool marked, std::uint64_t end, std::uint64_t sent_end);
  double share_marked() const { return alpha_; }

 private:
  double gain_;
  double alpha_ = 1;  // RFC 8257 §4.2: begins as if everything had been marked
  std::uint64_t acknowledged_ = 0;
  std::uint64_t marked_ = 0;
  std::uint64_t window_end_ = 0;
};

class Congestion {
 public:
  explicit Congestion(const Settings& settings);

  std::uint64_t window_bytes() const { return window_; }
  bool in_slow_start() const { return window_ < threshold_; }

  // New bytes were delivered outside of fast recovery. `limited` is true if the window held the
  // sender back.
  void acknowledged(Time now, Time round_trip, std::uint64_t bytes, bool limited);
  // CUBIC only: ends slow start if the acknowledgements show that it has found the path's capacity.
  // `end` is the end of what is acknowledged, `sent_end` of what is sent; `least` is the shortest
  // round trip.
  void watch_slow_start(Time now, Time least, std::uint64_t end, std::uint64_t sent_end);
  // DCTCP only: observes the mark of every acknowledgement.
  void observe(std::uint64_t bytes, bool marked, std::uint64_t end, std::uint64_t sent_end);
  // A loss or a mark. The caller reports at most one of them a window.
  void lost();
  void marked();
  void timed_out(bool again);  // again: not the first time-out in a row
  // RFC 5681 §4.1.
  void restarted();
  void rebase(Time by) {
    tulle::rebase(by, round_start_, round_last_);
    if (Cubic* cubic = std::get_if<Cubic>(&control_)) cubic->rebase(by);
  }

 private:
  std::uint64_t reduced();

  const Settings& settings_;
  std::uint64_t window_;
  std::uint64_t threshold_ = UINT64_MAX;
  double fraction_ = 0;  // growth of less than a byte
  // HyStart's round: the offset that ends it, when it began, and when its last acknowledgement
  // came.
  std::uint64_t round_end_ = 0;
  Time round_start_;
  Time round_last_;
  std::variant<Cubic, Dctcp> control_;
};

// Returns the same result on every machine, unlike the library's function.
double cube_root(double x);

}  // namespace tulle::transport::tcp
