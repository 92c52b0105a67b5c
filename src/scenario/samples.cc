#include "scenario/samples.h"

#include <fmt/format.h>

namespace tulle::scenario {

Sampler::Sampler(const SampleSettings& settings, const fabric::Topology& topology,
                 const fabric::Wiring& wiring) {
  samples_.interval = settings.interval;
  if (settings.interval <= Time::zero()) return;
  next_ = settings.interval;
  for (const std::uint32_t node : settings.nodes) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const auto& peer = wiring.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      nodes_.push_back(node);
      samples_.ports.push_back(
          {topology.name(node), topology.name(peer.node), port, topology.is_host(node)});
    }
  }
  bytes_sent_.resize(nodes_.size());
}

void Sampler::take(const sim::Network& network) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const SampledPort& port = samples_.ports[i];
    const std::uint64_t sent = network.counters(nodes_[i], port.port).bytes;
    Sample sample{sent - bytes_sent_[i]};
    bytes_sent_[i] = sent;
    if (!port.of_host) {
      const fabric::Switch& at = network.switch_at(nodes_[i]);
      for (std::uint32_t c = 0; c < port::classes; ++c) {
        sample.queue_bytes += at.port(port.port).queue_bytes(c);
      }
    }
    samples_.samples.push_back(sample);
  }
  next_ = next_ + samples_.interval;
}

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

}  // namespace tulle::scenario
