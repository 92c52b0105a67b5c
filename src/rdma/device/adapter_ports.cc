#include "rdma/device/adapter_ports.h"

namespace tulle::device {

using transport::QueuePair;
using verbs::QpAttribute;
using verbs::VerbsStatus;

AdapterPorts::AdapterPorts(const Configuration& configuration)
    : first_(configuration.port), usual_(configuration.framing) {
  for (unsigned port = 2; port <= configuration.ports; ++port) {
    others_.emplace_back(configuration.port);
  }
}

// A path begins at the queue pair's port.
VerbsStatus AdapterPorts::check(const QueuePair& qp,
                                const transport::QueuePairAttributes& attributes,
                                verbs::QpAttributeMask mask) const {
  if (mask.has(QpAttribute::port) && !has(attributes.port)) {
    return VerbsStatus::invalid_argument;
  }
  const std::uint8_t port = mask.has(QpAttribute::port) ? attributes.port : qp.attributes().port;
  const verbs::AddressVector& to = attributes.address;
  if (mask.has(QpAttribute::address_vector) && (to.port != port || !is_path(to))) {
    return VerbsStatus::invalid_argument;
  }
  if (mask.has(QpAttribute::alternate_path)) {
    const verbs::AddressVector& other = attributes.alternate->address;
    // Without LIDs there is one path: only InfiniBand lets a port have several.
    if (other.destination.lid == Lid(0)) return VerbsStatus::not_supported;
    if (!is_path(other)) return VerbsStatus::invalid_argument;
  }
  return VerbsStatus::ok;
}

void AdapterPorts::rebase(Time by) {
  first_.port.rebase(by);
  for (AdapterPort& other : others_) other.port.rebase(by);
}

}  // namespace tulle::device
