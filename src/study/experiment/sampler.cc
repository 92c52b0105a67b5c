#include "study/experiment/sampler.h"

namespace tulle::experiment {

Sampler::Sampler(const scenario::SampleSettings& settings, const fabric::Topology& topology,
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
    const report::SampledPort& port = samples_.ports[i];
    if (!network.owns(nodes_[i])) {
      samples_.samples.emplace_back();
      continue;
    }
    const std::uint64_t sent = network.counters(nodes_[i], port.port).bytes;
    report::Sample sample{sent - bytes_sent_[i]};
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

// The samples of other processes' ports are zeros.
bool Sampler::add(const std::vector<report::Sample>& others) {
  if (others.size() != samples_.samples.size()) return false;
  for (std::size_t i = 0; i < others.size(); ++i) {
    samples_.samples[i].bytes += others[i].bytes;
    samples_.samples[i].queue_bytes += others[i].queue_bytes;
  }
  return true;
}

}  // namespace tulle::experiment
