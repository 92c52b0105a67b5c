// Congestion control by the ports to hosts: the notices that their switches send (fabric/switch.h),
// and the way of a notice to its host. A notice is short and goes before frames, hop by
// hop, by the first of the routes. Nothing holds it back, as on InfiniBand's management lane (IBTA
// 7.9: no flow control on VL15). Its memory in switches is not counted.

#include "sim/addresses.h"
#include "sim/part.h"

namespace tulle::sim {

void Part::handle_notice(std::uint32_t node, std::uint32_t place) {
  if (!is_host(node)) {
    const std::uint16_t way = switches_[node - hosts()].forward_notice(place);
    if (way != fabric::Switch::no_port) kick(end_of(node, way));
    return;
  }
  const fabric::EndpointNotice notice = notices_[place];
  notices_.give(place);
  hosts_[node].adapter.limit(now_, address_of(settings_, notice.endpoint), notice.bits_per_second,
                             notice.hold);
}

// Sends a notice that waits at this port. Returns false if there is none.
bool Part::send_notice(LinkEnd& end) {
  const std::uint32_t place = notices_.pop(end.port->management);
  if (place == port::ManagementLane::none) return false;
  const port::Overhead& around = overhead(settings_);
  const std::uint32_t bytes = around.stored_bytes(fabric::endpoint_notice_bytes) + around.gap_bytes;
  end.busy_until = now_.ps + time_on_link(end, bytes);
  const std::int64_t arrives = end.busy_until + end.delay;
  if (!nodes_.port_faults.empty() && goes_down_by(end, arrives)) {
    notices_.give(place);
  } else {
    plan_at_peer(arrives, end, Kind::notice, place);
  }
  return true;
}

}  // namespace tulle::sim
