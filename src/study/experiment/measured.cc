#include "study/experiment/measured.h"

#include <algorithm>

namespace tulle::experiment {
namespace {

void add(const NetworkTotals& more, NetworkTotals& totals) {
  totals.now = std::max(totals.now, more.now);
  totals.last_loss = std::max(totals.last_loss, more.last_loss);
  totals.events += more.events;
  totals.data_packet_hops += more.data_packet_hops;
  totals.frames_sent += more.frames_sent;
  totals.notices += more.notices;
}

}  // namespace

const port::Counters& Measured::port(std::uint32_t node, std::uint16_t port) const {
  return network_.owns(node) ? network_.counters(node, port) : ports_[first_port_[node] + port];
}

SwitchCounters Measured::at_switch(std::uint32_t node) const {
  if (!network_.owns(node)) return switches_[node - topology_.hosts];
  const fabric::Switch& at = network_.switch_at(node);
  return {at.lossless_drops(), at.bytes_held_max()};
}

const device::Counters& Measured::host(std::uint32_t host) const {
  return network_.owns(host) ? network_.adapter(host).counters() : hosts_[host];
}

device::HostStack::Counters Measured::stack(std::uint32_t host) const {
  return network_.owns(host) ? network_.stack(host)->counters() : stacks_[host];
}

NetworkTotals Measured::own_totals() const {
  return {network_.now(),         network_.fault_totals().last_loss,
          network_.events(),      network_.data_packet_hops(),
          network_.frames_sent(), network_.notices()};
}

NetworkTotals Measured::totals() const {
  NetworkTotals totals = own_totals();
  add(elsewhere_, totals);
  return totals;
}

// Nodes go in their order, each with its ports first.
void Measured::pack(Packer& packer) const {
  packer.add(own_totals());
  for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
    if (!network_.owns(node)) continue;
    for (std::uint16_t port = 0; port < topology_.ports[node]; ++port) {
      packer.add(network_.counters(node, port));
    }
    if (!topology_.is_host(node)) {
      packer.add(at_switch(node));
      continue;
    }
    packer.add(host(node));
    if (has_stacks()) packer.add(stack(node));
  }
}

bool Measured::take(std::uint32_t process, Unpacker& unpacker) {
  make_room();
  NetworkTotals totals;
  if (!unpacker.take(totals)) return false;
  add(totals, elsewhere_);
  for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
    if (network_.process_of(node) != process) continue;
    for (std::uint16_t port = 0; port < topology_.ports[node]; ++port) {
      if (!unpacker.take(ports_[first_port_[node] + port])) return false;
    }
    if (!topology_.is_host(node)) {
      if (!unpacker.take(switches_[node - topology_.hosts])) return false;
      continue;
    }
    if (!unpacker.take(hosts_[node])) return false;
    if (has_stacks() && !unpacker.take(stacks_[node])) return false;
  }
  return true;
}

void Measured::make_room() {
  if (!first_port_.empty()) return;
  std::size_t ports = 0;
  for (const std::uint32_t of_node : topology_.ports) {
    first_port_.push_back(ports);
    ports += of_node;
  }
  ports_.resize(ports);
  switches_.resize(topology_.switches);
  hosts_.resize(topology_.hosts);
  if (has_stacks()) stacks_.resize(topology_.hosts);
}

}  // namespace tulle::experiment
