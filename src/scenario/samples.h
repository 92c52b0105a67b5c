#pragma once

// What ports send and what waits at them over time: a look at their counters at even intervals,
// when all nodes have come to the same moment. Nothing is done for a frame.

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/topology.h"
#include "sim/network.h"

namespace tulle::scenario {

struct SampleSettings {
  Time interval;                     // zero: no samples
  std::vector<std::uint32_t> nodes;  // of whose ports
};

// One direction of a link over time.
struct SampledPort {
  std::string from, to;
  std::uint16_t port = 0;
  bool of_host = false;  // adapters have no queue
};
struct Sample {
  std::uint64_t bytes =
      0;  // of frames begun since the sample before, as they take time on the link
  std::uint64_t queue_bytes = 0;  // of all classes, at that moment
};
struct Samples {
  Time interval;
  std::vector<SampledPort> ports;
  std::vector<Sample> samples;  // of all ports at the first moment, at the second …
};

class Sampler {
 public:
  Sampler(const SampleSettings& settings, const fabric::Topology& topology,
          const fabric::Wiring& wiring);

  // When the next ones are to be taken; never: there are none.
  Time next() const { return next_; }
  // The network has come to that moment.
  void take(const sim::Network& network);
  const Samples& samples() const { return samples_; }

 private:
  std::vector<std::uint32_t> nodes_;       // by port of samples_
  std::vector<std::uint64_t> bytes_sent_;  // by port, until now
  Samples samples_;
  Time next_ = Time::never();
};

// samples.csv
std::string samples_csv(const Samples& samples);

}  // namespace tulle::scenario
