#include "study/report/samples.h"

#include <fmt/format.h>

namespace tulle::report {

std::string samples_csv(const Samples& samples) {
  std::string text = "time_ns,from,port,to,gbps,queue_bytes\n";
  const double ns = static_cast<double>(samples.interval.ps) * 1e-3;
  for (std::size_t i = 0; i < samples.samples.size(); ++i) {
    const SampledPort& port = samples.ports[i % samples.ports.size()];
    const Sample& sample = samples.samples[i];
    const std::size_t round = i / samples.ports.size() + 1;
    const double moment = ns * static_cast<double>(round);
    text += fmt::format("{:.10g},{},{},{},{:.3f},", moment, port.from, port.port, port.to,
                        static_cast<double>(sample.bytes) * 8 / ns);
    text += port.of_host ? "\n" : fmt::format("{}\n", sample.queue_bytes);
  }
  return text;
}

}  // namespace tulle::report
