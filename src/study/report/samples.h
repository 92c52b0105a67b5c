#pragma once

// Samples over time of the bytes that ports sent and of the bytes that waited there.

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace tulle::report {

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

// Returns the text of samples.csv.
std::string samples_csv(const Samples& samples);

}  // namespace tulle::report
