// Congestion control by the ports to hosts: the traffic that their switches see, the notices that
// they send, and the way of a notice to its host. A notice is short and goes before frames, hop by
// hop, by the first of the routes. Nothing holds it back, as on InfiniBand's management lane (IBTA
// 7.9: no flow control on VL15). Its memory in switches is not counted.

#include "sim/network.h"

namespace tulle::sim {

void Network::set_up_notices() {
  if (!settings_.endpoints.enabled) return;
  notices_ = std::make_unique<Notices>(ports_.size());
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    notices_->monitors.emplace_back(settings_.endpoints,
                                    ports_[port_index(host, 0)].bits_per_second,
                                    longest_frame_bytes(settings_));
  }
}

// Records that a frame waits for a port, and sends a notice if the monitor asks for one.
void Network::watch_endpoint(std::uint32_t node, std::uint16_t out_port,
                             const fabric::Frame& frame) {
  const std::uint32_t host = ports_[port_index(node, out_port)].peer;
  if (!is_host(host) || frame.payload_bytes == 0) return;
  const std::uint64_t queue_bytes = switches_[node - hosts()].queue_bytes(out_port);
  const auto advice =
      notices_->monitors[host].arrived(now_, frame.source, frame.link_bytes(), queue_bytes);
  if (advice.bits_per_second == 0) return;
  ++notices_->told;
  forward_notice(node, notices_->take({frame.source, host, advice.bits_per_second, advice.hold}));
}

void Network::forward_notice(std::uint32_t node, std::uint32_t place) {
  const auto ways = routes_.candidates(node, (*notices_)[place].source);
  if (ways.empty()) return notices_->give(place);
  notices_->push(port_index(node, ways.front()), place);
  kick(node, ways.front());
}

void Network::handle_notice(std::uint32_t node, std::uint32_t place) {
  if (!is_host(node)) return forward_notice(node, place);
  const fabric::EndpointNotice notice = (*notices_)[place];
  notices_->give(place);
  hosts_[node].adapter.limit(now_, address_of(notice.endpoint), notice.bits_per_second,
                             notice.hold);
}

// Sends a notice that waits at this port. Returns false if there is none.
bool Network::send_notice(std::uint32_t node, std::uint16_t port_number) {
  const std::uint32_t place = notices_->pop(port_index(node, port_number));
  if (place == Notices::none) return false;
  Port& port = ports_[port_index(node, port_number)];
  const link::Overhead& around = overhead(settings_.link_layer);
  const std::uint32_t bytes = around.stored_bytes(fabric::endpoint_notice_bytes) + around.gap_bytes;
  port.busy_until = now_.ps + time_on_link(port, bytes);
  const std::int64_t arrives = port.busy_until + port.delay;
  if (!port_faults_.empty() && goes_down_by(node, port_number, arrives)) {
    notices_->give(place);
  } else {
    plan(arrives, port.peer, port.peer_port, Kind::notice, place);
  }
  return true;
}

}  // namespace tulle::sim
