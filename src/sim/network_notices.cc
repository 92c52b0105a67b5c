// Congestion control by the ports to hosts: the notices that their switches send (fabric/switch.h),
// and the way of a notice to its host. A notice is short and goes before frames, hop by
// hop, by the first of the routes. Nothing holds it back, as on InfiniBand's management lane (IBTA
// 7.9: no flow control on VL15). Its memory in switches is not counted.

#include "sim/network.h"

namespace tulle::sim {

void Network::set_up_notices() {
  if (!settings_.endpoints.enabled) return;
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    const LinkEnd& end = ends_[end_index(host, 0)];
    if (is_host(end.peer)) continue;
    const fabric::EndpointMonitor monitor(settings_.endpoints, end.bits_per_second,
                                          longest_frame_bytes(settings_));
    switches_[end.peer - hosts()].set_monitor(end.peer_port, monitor);
  }
  for (fabric::Switch& at : switches_) at.set_notices(notices_);
}

std::uint64_t Network::notices() const {
  std::uint64_t sent = 0;
  for (const fabric::Switch& at : switches_) sent += at.notices();
  return sent;
}

void Network::handle_notice(std::uint32_t node, std::uint32_t place) {
  if (!is_host(node)) {
    const std::uint16_t way = switches_[node - hosts()].forward_notice(place);
    if (way != fabric::Switch::no_port) kick(node, way);
    return;
  }
  const fabric::EndpointNotice notice = notices_[place];
  notices_.give(place);
  hosts_[node].adapter.limit(now_, address_of(notice.endpoint), notice.bits_per_second,
                             notice.hold);
}

// Sends a notice that waits at this port. Returns false if there is none.
bool Network::send_notice(LinkEnd& end) {
  const std::uint32_t place = notices_.pop(end.port->management);
  if (place == port::ManagementLane::none) return false;
  const port::Overhead& around = overhead(settings_);
  const std::uint32_t bytes = around.stored_bytes(fabric::endpoint_notice_bytes) + around.gap_bytes;
  end.busy_until = now_.ps + time_on_link(end, bytes);
  const std::int64_t arrives = end.busy_until + end.delay;
  if (!port_faults_.empty() && goes_down_by(end, arrives)) {
    notices_.give(place);
  } else {
    plan(arrives, end.peer, end.peer_port, Kind::notice, place);
  }
  return true;
}

}  // namespace tulle::sim
