#pragma once

// One end of a cable whose other end is a port in a process of another machine. The two ends bring
// the link up together by exchanging reports, which may be lost or arrive twice.
//
// An end numbers its attempts. Whenever it takes the link down it begins a new one, so that the
// other end notices even if it missed all reports in between. A link comes up at an end as soon as
// the other one is willing and has confirmed the end's latest attempt.

#include <cstdint>

#include "rdma/wire/smp.h"

namespace tulle::fabric {

class CableEnd {
 public:
  struct Report {
    std::uint32_t attempt = 0;  // of the end that reports
    std::uint32_t heard = 0;    // the other end's latest attempt that it knows; 0: none
    bool is_willing = false;    // the cable is not cut, and the port is enabled

    bool operator==(const Report&) const = default;
  };

  Report report(bool is_willing) const { return {attempt_, far_.attempt, is_willing}; }
  // The other end's port as it was told last.
  const wire::PortInfo& far_port() const { return far_port_; }
  // Returns the latest attempt of this end.
  std::uint32_t attempt() const { return attempt_; }
  // Counts how often the link has come up at this end. It may go down and up in one step.
  std::uint32_t ups() const { return ups_; }
  void count_up() { ++ups_; }
  // Returns true if the link may be up, as far as the other end is concerned.
  bool is_ready() const { return far_.is_willing && far_.heard == attempt_; }

  // This end takes the link down.
  void restart() { ++attempt_; }
  // Takes what the other end tells. Returns true if this end's link must go down: the other one has
  // begun a new attempt, or is not willing.
  bool take(const Report& report, const wire::PortInfo& port) {
    const bool is_new = report.attempt != far_.attempt || !report.is_willing;
    far_ = report;
    far_port_ = port;
    return is_new;
  }
  // No report arrives from the other end any more.
  void lose() {
    far_ = {};
    restart();
  }

 private:
  std::uint32_t attempt_ = 1;
  std::uint32_t ups_ = 0;
  Report far_;
  wire::PortInfo far_port_;
};

}  // namespace tulle::fabric
