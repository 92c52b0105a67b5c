#include "rdma/device/stream_table.h"

#include <cstddef>

namespace tulle::device {

using transport::QueuePair;

namespace {

// Returns the key that tells the connections of one host apart: the peer's address and both ports.
std::uint64_t key_of(std::uint16_t local_port, std::uint16_t peer_port, const Gid& peer) {
  std::uint32_t address = 0;
  for (std::size_t i = 0; i < peer.bytes.size(); ++i) {
    address ^= std::uint32_t{peer.bytes[i]} << (8 * (3 - i % 4));
  }
  return std::uint64_t{address} << 32 | std::uint32_t{local_port} << 16 | peer_port;
}

std::uint64_t key_of(const QueuePair& qp, QpNumber peer, const Gid& address) {
  const transport::StreamPorts ports = qp.transport.ports(qp.number, peer);
  return key_of(ports.local, ports.peer, address);
}

}  // namespace

QueuePair* StreamTable::find(const wire::Tcp& header, const Gid& source) const {
  const auto found = by_key_.find(key_of(header.destination_port, header.source_port, source));
  if (found == by_key_.end() || found->second->attributes().address.destination != source) {
    return nullptr;
  }
  return found->second;
}

bool StreamTable::connect(QueuePair& qp, QpNumber peer, const Gid& address) {
  return by_key_.try_emplace(key_of(qp, peer, address), &qp).second;
}

void StreamTable::undo(const QueuePair& qp, QpNumber peer, const Gid& address) {
  by_key_.erase(key_of(qp, peer, address));
}

void StreamTable::disconnect(const QueuePair& qp) {
  const transport::QueuePairAttributes& attributes = qp.attributes();
  const auto found =
      by_key_.find(key_of(qp, attributes.destination_qp, attributes.address.destination.gid));
  if (found != by_key_.end() && found->second == &qp) by_key_.erase(found);
}

}  // namespace tulle::device
