#include "fabric/link_states.h"

#include <utility>

namespace tulle::fabric {

void LinkStates::follow(const Subnet& subnet, const std::function<void(const Change&)>& changed) {
  if (changes_seen_ == subnet.link_changes()) return;
  changes_seen_ = subnet.link_changes();
  const auto& links = subnet.topology().links;
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const NodePort end =
        subnet.is_elsewhere(link.a) ? NodePort{link.b, link.b_port} : NodePort{link.a, link.a_port};
    if (subnet.is_elsewhere(end.node)) continue;
    const auto state =
        subnet.node(end.node).physical_state(static_cast<std::uint8_t>(end.port + 1));
    const bool is_up = state == wire::PhysicalState::link_up;
    const std::uint32_t ups = subnet.ups(i);
    const bool has_come_up = std::exchange(ups_seen_[i], ups) != ups;
    if (is_up == is_up_[i] && !(is_up && has_come_up)) continue;
    const bool restarts = is_up && is_up_[i];
    is_up_[i] = is_up;
    changed({i, end, restarts, is_up});
  }
}

}  // namespace tulle::fabric
