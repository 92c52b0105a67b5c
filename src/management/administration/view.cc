#include "management/administration/view.h"

#include <algorithm>

#include "rdma/wire/lrh.h"

namespace tulle::management::administration {
namespace {

using subnet::GraphNode;
using subnet::GraphPort;
using subnet::no_node;

constexpr std::uint64_t default_prefix = 0xFE80'0000'0000'0000;  // IBTA 4.1.1

struct Rate {
  std::uint8_t code = 0;
  unsigned units = 0;  // of 100 Mb/s
};
constexpr std::array<Rate, 23> rates = {
    {{2, 25},    {5, 50},    {3, 100},   {11, 140},  {6, 200},   {15, 250},  {19, 280},  {4, 300},
     {7, 400},   {20, 500},  {12, 560},  {8, 600},   {9, 800},   {16, 1000}, {13, 1120}, {10, 1200},
     {14, 1680}, {17, 2000}, {18, 3000}, {21, 4000}, {22, 6000}, {23, 8000}, {24, 12000}}};

std::uint64_t half_of(const wire::GidBytes& gid, std::size_t from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value = value << 8 | gid[from + i];
  return value;
}

}  // namespace

wire::GidBytes gid_bytes(std::uint64_t prefix, std::uint64_t guid) {
  wire::GidBytes gid;
  for (std::size_t i = 0; i < 8; ++i) {
    gid[7 - i] = static_cast<std::uint8_t>(prefix >> (8 * i));
    gid[15 - i] = static_cast<std::uint8_t>(guid >> (8 * i));
  }
  return gid;
}

std::uint8_t rate_code_of(const wire::PortInfo& info) {
  const unsigned units = wire::link_rate_of(info);
  std::uint8_t code = rates[0].code;
  for (const Rate& each : rates) {
    if (each.units <= units) code = each.code;
  }
  return code;
}

unsigned rate_of_code(std::uint8_t code) {
  const auto found = std::find_if(rates.begin(), rates.end(),
                                  [code](const Rate& each) { return each.code == code; });
  return found == rates.end() ? 0 : found->units;
}

void View::show(const subnet::Graph& graph) {
  graph_ = &graph;
  by_lid_.assign(std::size_t{wire::unicast_lid_max} + 1, no_node);
  by_guid_.clear();
  for (std::uint32_t index = 0; index < size(); ++index) {
    const GraphNode& each = node(index);
    by_guid_.emplace(each.port_guid(), index);
    for (std::uint32_t path = 0; each.lid != 0 && path < 1u << each.lmc; ++path) {
      by_lid_[each.lid + path] = index;
    }
  }
}

std::optional<std::uint32_t> View::find_lid(std::uint16_t lid) const {
  if (lid >= by_lid_.size() || by_lid_[lid] == no_node) return std::nullopt;
  return by_lid_[lid];
}

std::optional<std::uint32_t> View::find_guid(std::uint64_t port_guid) const {
  const auto found = by_guid_.find(port_guid);
  if (found == by_guid_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::uint32_t> View::find_gid(const wire::GidBytes& gid) const {
  const auto found = find_guid(half_of(gid, 8));
  if (!found) return found;
  const std::uint64_t prefix = half_of(gid, 0);
  const bool is_here =
      prefix == default_prefix || prefix == node(*found).end_port().info.gid_prefix;
  return is_here ? found : std::nullopt;
}

wire::GidBytes View::gid(std::uint32_t index) const {
  return gid_bytes(node(index).end_port().info.gid_prefix, node(index).port_guid());
}

std::optional<View::Reach> View::follow(std::uint32_t from, std::uint16_t to) const {
  const wire::PortInfo& own = node(from).end_port().info;
  Reach reach{wire::lower_half(own.init_type_reply_and_mtu), 0};
  if (node(from).has_lid(Lid(to))) {
    reach.rate = rate_code_of(own);
    return reach;
  }
  std::uint32_t at = from;
  for (int hops = 0; hops < hops_max; ++hops) {
    const GraphNode& here = node(at);
    if (here.is_switch() && to >= here.linear.size()) return std::nullopt;
    const std::size_t place = here.is_switch() ? here.linear[to] : 0;
    if (place >= here.ports.size() || place < here.first_link()) return std::nullopt;
    const GraphPort& port = here.ports[place];
    if (!port.has_peer() || port.state() != wire::PortState::active) return std::nullopt;
    const std::uint8_t rate = rate_code_of(port.info);
    const bool is_slower = reach.rate == 0 || rate_of_code(rate) < rate_of_code(reach.rate);
    if (is_slower) reach.rate = rate;
    reach.mtu = std::min(reach.mtu, wire::upper_half(port.info.neighbor_mtu_and_master_sm_sl));
    at = port.peer;
    if (node(at).has_lid(Lid(to))) return reach;
    if (!node(at).is_switch()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tulle::management::administration
