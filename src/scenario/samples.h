#pragma once

// Samples over time of the bytes that ports send and of the bytes that wait there. The sampler
// reads the ports' counters at even intervals, when all nodes have come to the same moment, and
// does no work per frame.

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "fabric/topology.h"
#include "sim/network.h"

namespace tulle::scenario {

struct SampleSettings {
  Time interval;                     // zero means no samples
  std::vector<std::uint32_t> nodes;  // nodes whose ports are sampled
};

// One direction of a link over time.
struct SampledPort {
  std::string from, to;
  std::uint16_t port = 0;
  bool of_host = false;  // adapters have no queue
};
struct Sample {
  // Bytes of the frames begun since the sample before, counted as they take time on the link.
  std::uint64_t bytes = 0;
  std::uint64_t queue_bytes = 0;  // bytes waiting in all classes at that moment
};
struct Samples {
  Time interval;
  std::vector<SampledPort> ports;
  std::vector<Sample> samples;  // all ports at the first moment, all at the second …
};

class Sampler {
 public:
  Sampler(const SampleSettings& settings, const fabric::Topology& topology,
          const fabric::Wiring& wiring);

  // Returns the time of the next samples; never if there are none.
  Time next() const { return next_; }
  // Takes the samples, when the network has come to that moment.
  void take(const sim::Network& network);
  const Samples& samples() const { return samples_; }

 private:
  std::vector<std::uint32_t> nodes_;       // by port of samples_
  std::vector<std::uint64_t> bytes_sent_;  // by port: bytes sent until now
  Samples samples_;
  Time next_ = Time::never();
};

// Returns the text of samples.csv.
std::string samples_csv(const Samples& samples);

}  // namespace tulle::scenario
