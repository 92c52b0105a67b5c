// The packets of a subnet that cross cables to other machines.

#include "fabric/link_counters.h"
#include "fabric/subnet_traffic.h"
#include "rdma/wire/path.h"

namespace tulle::fabric {

using port::FrameRef;
using port::no_frame;

void SubnetTraffic::set_carrier(Carrier& carrier, std::uint32_t first) {
  carrier_ = &carrier;
  multicast_numbers_.begin_at(first);
}

SubnetTraffic::At SubnetTraffic::end_here(std::uint32_t index) const {
  const Link& link = subnet_.topology().links[index];
  return subnet_.is_elsewhere(link.a) ? At{link.b, link.b_port} : At{link.a, link.a_port};
}

void SubnetTraffic::send_elsewhere(Time now, At at, std::uint32_t link) {
  Switch& from = *nodes_[at.node];
  port::Port& port = from.port(at.port);
  while (port.has_control()) {
    const port::CreditUpdate update = port.pull_control().credit;
    carrier_->tell(link, update, told(at, update));
  }
  while (is_link_free(at)) {
    if (!carrier_->has_room(link)) {
      if (port.has_frame()) held_back_.push_back(at);
      break;
    }
    const FrameRef ref = from.pull(now, at.port);
    if (ref == no_frame) break;
    leave(at, ref);
    const port::Frame& frame = packets_[ref];
    carrier_->carry({link, static_cast<std::uint8_t>(frame.service_class),
                     static_cast<std::uint8_t>(frame.via), MulticastNumbers::number_of(frame),
                     packets_.bytes_of(ref)});
    packets_.give(ref);
  }
  if (port.queue_bytes() > 0) waiting_.add(now, at);
}

void SubnetTraffic::arrive(Time now, const Crossing& crossing) {
  const At at = end_here(crossing.link);
  const bool is_bad = nodes_[at.node] == nullptr || !carries(at) || crossing.hops > hops_max ||
                      crossing.lane >= port::classes || crossing.packet.size() > packet_bytes_max ||
                      !packets_.has_place(packets_.elsewhere());
  if (is_bad) {
    ++counters_.lost;
    return;
  }
  const FrameRef ref = packets_.take_in(crossing.packet, packets_.elsewhere());
  port::Frame& frame = packets_[ref];
  wire::LocalPath path;
  const auto& room = nodes_[at.node]->port(at.port).credits().receivers[crossing.lane];
  const bool has_credits = room.free_blocks() >= port::blocks_of(frame.buffer_bytes);
  if (!has_credits || !packets_.read_headers(ref, path)) {
    ++(has_credits ? counters_.invalid : counters_.uncredited);
    packets_.give(ref);
    return;
  }
  frame.service_class = crossing.lane & 0xF;
  frame.via = crossing.hops;
  MulticastNumbers::set_number(frame, crossing.number);
  count_received(counters_of(at), frame);
  arrive(now, at, ref);
}

void SubnetTraffic::take_credits(Time now, std::uint32_t link, port::CreditUpdate update,
                                 std::uint32_t total_sent) {
  const At at = end_here(link);
  if (nodes_[at.node] == nullptr || update.lane >= port::classes) return;
  port::Port& port = nodes_[at.node]->port(at.port);
  if (port.is_down()) return;
  port::PortControl::take_credits(port, now, update, total_sent);
  kick(at);
}

void SubnetTraffic::tell_again(std::uint32_t link) {
  const At at = end_here(link);
  if (nodes_[at.node] == nullptr) return;
  port::Port& port = nodes_[at.node]->port(at.port);
  if (port.is_down()) return;
  for (std::uint8_t lane = 0; lane < port::classes; ++lane) {
    const port::CreditUpdate update = port::PortControl::tell(port, lane);
    carrier_->tell(link, update, told(at, update));
  }
}

}  // namespace tulle::fabric
