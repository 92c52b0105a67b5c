#include "rdma/device/adapter_port.h"

#include <algorithm>
#include <utility>

#include "rdma/port/framing/roce_v2.h"

namespace tulle::device {
namespace {

const port::Settings without_flow_control = [] {
  port::Settings settings;
  settings.flow_control = port::FlowControl::none;
  return settings;
}();

}  // namespace

AdapterPort::AdapterPort(const port::Settings* settings)
    : port(settings != nullptr ? *settings : without_flow_control, nullptr) {}

void AdapterPort::set_gids(std::span<const Gid> gids, const OtherFraming& other,
                           const std::bitset<gids_max>& in_use) {
  other_ = other;
  if (other.framing != nullptr) {
    wire::Path path;
    other.framing->set_path({}, path);
    other_path_kind_ = path.index();
  }
  const std::vector<Gid> before = std::exchange(gids_, {});
  gids_.assign(gids.begin(), gids.begin() + std::min(gids.size(), gids_max));
  withdrawn_gids_.reset();
  for (std::size_t i = 0; i < std::min(before.size(), gids_.size()); ++i) {
    if (gids_[i] != Gid{} || before[i] == Gid{} || !in_use[i]) continue;
    gids_[i] = before[i];
    withdrawn_gids_.set(i);
  }
}

void AdapterPort::address_segment(const verbs::AddressVector& to, Datagram& out) const {
  out.flow_entropy = out.tcp.source_port;
  port::roce_v2.set_path(route_to(to, out.flow_entropy), out.path);
  wire::IpUdp& ip = out.ip();
  ip.destination_port = out.tcp.destination_port;
  ip.traffic_class = static_cast<std::uint8_t>((to.traffic_class & ~wire::ecn_mask) |
                                               (out.ecn_capable ? wire::ecn_capable : 0));
}

}  // namespace tulle::device
