#pragma once

// Takes samples of the bytes that ports send and of the bytes that wait there. The sampler reads
// the ports' counters at even intervals, when all nodes have come to the same moment, and does no
// work per frame.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/topology.h"
#include "sim/network.h"
#include "study/report/samples.h"
#include "study/scenario/setup.h"

namespace tulle::experiment {

class Sampler {
 public:
  Sampler(const scenario::SampleSettings& settings, const fabric::Topology& topology,
          const fabric::Wiring& wiring);

  // Returns the time of the next samples; never if there are none.
  Time next() const { return next_; }
  // Takes the samples, when the network has come to that moment.
  void take(const sim::Network& network);
  // Adds the samples that another process has taken. Returns false if they are not as many.
  [[nodiscard]] bool add(const std::vector<report::Sample>& others);
  const report::Samples& samples() const { return samples_; }

 private:
  std::vector<std::uint32_t> nodes_;       // by port of samples_
  std::vector<std::uint64_t> bytes_sent_;  // by port: bytes sent until now
  report::Samples samples_;
  Time next_ = Time::never();
};

}  // namespace tulle::experiment
