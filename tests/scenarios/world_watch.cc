// Reports the packets of reliable connections to the checker of the wire, and prints packets.

#include <array>
#include <cstdio>

#include "rdma/wire/opcode.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {

using wire::Kind;

namespace {

bool is_answer(Kind kind) {
  return kind == Kind::acknowledge || kind == Kind::read_response ||
         kind == Kind::atomic_acknowledge;
}
bool is_request(Kind kind) {
  return kind == Kind::send || kind == Kind::write || kind == Kind::read_request ||
         kind == Kind::atomic || kind == Kind::atomic_write;
}

}  // namespace

void World::watch() {
  cluster_.set_tap([this](const sim::Departure& departure) {
    if (tracing_) print(departure);
    packet_left(departure);
  });
  cluster_.set_arrival_tap([this](const sim::Arrival& arrival) { packet_arrived(arrival); });
}

void World::watch_connection(const End& end) {
  const bool goes_back = plan_.recovery.kind == transport::Recovery::go_back_n;
  if (!end.is_rc() || end.is_iwarp() || !goes_back) return;
  wire_.connect(number_of(end),
                {.name = end.name(),
                 .node = end.mine->node,
                 .first = end.psn,
                 .mtu_bytes = bytes(end.channel->mtu),
                 .timeout = end.mine->timeout,
                 .retry_count = end.mine->retry_count,
                 .rnr_retry = end.mine->rnr_retry,
                 .takes_shared_receives = end.peer->is_xrc() || end.peer->mine->shared_receives});
}

void World::packet_left(const sim::Departure& departure) {
  wire_.port_used(departure.from.value, departure.at, departure.port_free_at);
  if (departure.datagram.headers == device::Datagram::Headers::tcp) return;
  wire::Packet packet = departure.datagram.packet;
  const transport::QueuePair* to = adapter(departure.to.value).find_qp(packet.destination_qp);
  if (to == nullptr) return;
  const End& receiver = *static_cast<const End*>(to->init.cookie);
  const Kind kind = wire::info(packet.opcode).kind;
  const std::size_t requester = is_answer(kind) ? number_of(receiver) : number_of(*receiver.peer);
  if (!wire_.watches(requester)) return;
  if (is_request(kind)) wire_.request_left(departure.at, requester, packet);
  if (sabotage_ != Sabotage::none) sabotage_departure(departure.at, requester, packet);
  // A queue pair that has failed has no receives, but its last answers are still to be sent.
  const bool has_failed = receiver.peer->receiver().state() == verbs::QpState::error;
  if (is_answer(kind) && !has_failed) {
    wire_.answer_left(requester, packet, receiver.peer->receives->posts);
  }
}

void World::packet_arrived(const sim::Arrival& arrival) {
  const transport::QueuePair* at = adapter(arrival.to.value).find_qp(arrival.packet.destination_qp);
  if (at == nullptr) return;
  const End& receiver = *static_cast<const End*>(at->init.cookie);
  const Kind kind = wire::info(arrival.packet.opcode).kind;
  if (is_request(kind)) {
    wire_.request_arrived(number_of(*receiver.peer), arrival.packet, receiver.receives->posts);
  }
  if (is_answer(kind)) wire_.answer_arrived(arrival.at, number_of(receiver), arrival.packet);
}

void World::print(const sim::Departure& departure) const {
  const wire::Packet& packet = departure.datagram.packet;
  const std::string_view name = wire::name(packet.opcode);
  std::printf("%12.3f us  %u > %u  qp %06x psn %06x %-28.*s %5u bytes",
              departure.at.to_seconds() * 1e6, departure.from.value, departure.to.value,
              packet.destination_qp.value, packet.psn.value(), static_cast<int>(name.size()),
              name.data(), departure.datagram.payload_bytes);
  if (wire::info(packet.opcode).aeth) {
    std::printf(" syndrome %02x msn %u", packet.syndrome.encoded(), packet.msn);
  }
  if (packet.dma_length > 0) std::printf(" dma %u", packet.dma_length);
  if (departure.copies.count != 1) std::printf(" (%zu copies)", departure.copies.count);
  if (departure.copies.copies[0].damaged) std::printf(" (damaged)");
  if (departure.copies.copies[0].held_up > Time::zero()) std::printf(" (held up)");
  std::putchar('\n');
}

}  // namespace tulle::scenarios
