#include "management/subnet/plan.h"

#include <algorithm>
#include <set>

namespace tulle::management::subnet {

using wire::halves;
using wire::lower_half;
using wire::upper_half;

namespace {

constexpr std::uint8_t client_reregister = 0x80;  // in PortInfo's subnet_timeout
constexpr std::size_t in_block = wire::linear_entries_in_block;

// Zero means no change in what is a link's own affair (IBTA 14.2.5.6).
wire::PortInfo without_changes(wire::PortInfo info) {
  info.link_width_enabled = 0;
  info.speed_active_and_enabled = halves(upper_half(info.speed_active_and_enabled), 0);
  info.extended_speed_enabled = 0;
  info.speed_supported_and_state = halves(upper_half(info.speed_supported_and_state), 0);
  info.physical_state_and_down_default = 0;
  return info;
}

void set_addresses(const GraphNode& node, std::uint16_t master, const PortSettings& settings,
                   wire::PortInfo& info) {
  info.lid = node.lid;
  info.master_sm_lid = master;
  const unsigned protection = settings.key == 0 ? 0u : settings.key_protection;
  info.key_protection_and_lid_mask_control = static_cast<std::uint8_t>(protection << 6 | node.lmc);
  info.management_key = settings.key;
  info.key_lease_period = settings.key == 0 ? std::uint16_t{0} : settings.key_lease_seconds;
  info.neighbor_mtu_and_master_sm_sl = halves(upper_half(info.neighbor_mtu_and_master_sm_sl), 0);
  info.subnet_timeout = settings.subnet_timeout;
  const bool knows_it = (info.capability_mask & wire::capability_client_reregistration) != 0;
  if (settings.reregisters && knows_it && !node.is_switch()) {
    info.subnet_timeout |= client_reregister;
  }
}

// Both ends of a link take the smaller of their limits.
void set_limits(const GraphPort& peer, wire::PortInfo& info) {
  const auto mtu = std::min(lower_half(info.init_type_reply_and_mtu),
                            lower_half(peer.info.init_type_reply_and_mtu));
  const auto lanes = std::min(upper_half(info.virtual_lanes_and_init_type),
                              upper_half(peer.info.virtual_lanes_and_init_type));
  info.neighbor_mtu_and_master_sm_sl = halves(mtu, lower_half(info.neighbor_mtu_and_master_sm_sl));
  info.operational_lanes_and_enforcement =
      halves(lanes, lower_half(info.operational_lanes_and_enforcement));
}

bool is_as_wanted(const wire::PortInfo& now, const wire::PortInfo& wanted) {
  return now.lid == wanted.lid && now.master_sm_lid == wanted.master_sm_lid &&
         now.key_protection_and_lid_mask_control == wanted.key_protection_and_lid_mask_control &&
         now.management_key == wanted.management_key &&
         now.key_lease_period == wanted.key_lease_period &&
         now.neighbor_mtu_and_master_sm_sl == wanted.neighbor_mtu_and_master_sm_sl &&
         now.operational_lanes_and_enforcement == wanted.operational_lanes_and_enforcement &&
         (now.subnet_timeout & 0x1F) == (wanted.subnet_timeout & 0x1F) &&
         (wanted.subnet_timeout & client_reregister) == 0;
}

Question port_question(const Graph& graph, std::uint32_t index, std::size_t place,
                       const wire::PortInfo& info) {
  const GraphNode& node = graph.nodes[index];
  Question question = set_question(node.route, wire::attribute_port_info, node.number(place), info);
  // A port that shows another manager's key protects nothing: that one has let its lease end.
  const std::uint64_t shown = node.end_port().info.management_key;
  if (shown != 0) question.key = shown;
  question.node = index;
  question.place = static_cast<std::uint8_t>(place);
  return question;
}

// True if a link joins two ports that have been read, so that it can become active.
bool has_known_link(const Graph& graph, const GraphNode& node, std::size_t place) {
  const GraphPort& port = node.ports[place];
  return place >= node.first_link() && port.is_known && port.has_peer() &&
         graph.peer_of(port).is_known;
}

}  // namespace

std::vector<Question> port_questions(const Graph& graph, const PortSettings& settings) {
  std::vector<Question> questions;
  const std::uint16_t master = graph.nodes[0].lid;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const GraphNode& node = graph.nodes[index];
    if (node.lid == 0) continue;
    for (std::size_t place = 0; place < node.ports.size(); ++place) {
      const GraphPort& port = node.ports[place];
      if (!port.is_known) continue;
      wire::PortInfo wanted = port.info;
      if (place == 0) set_addresses(node, master, settings, wanted);
      if (has_known_link(graph, node, place)) set_limits(graph.peer_of(port), wanted);
      if (is_as_wanted(port.info, wanted)) continue;
      questions.push_back(port_question(graph, index, place, without_changes(wanted)));
    }
  }
  return questions;
}

std::vector<Question> release_questions(const Graph& graph, std::uint64_t key) {
  std::vector<Question> questions;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const GraphPort& port = graph.nodes[index].end_port();
    if (!port.is_known || port.info.management_key != key) continue;
    wire::PortInfo wanted = without_changes(port.info);
    wanted.management_key = 0;
    wanted.key_protection_and_lid_mask_control &= 0x3F;
    wanted.key_lease_period = 0;
    wanted.subnet_timeout &= static_cast<std::uint8_t>(~client_reregister);
    questions.push_back(port_question(graph, index, 0, wanted));
  }
  return questions;
}

std::vector<Question> state_questions(const Graph& graph, wire::PortState from,
                                      wire::PortState to) {
  std::vector<Question> questions;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const GraphNode& node = graph.nodes[index];
    if (node.lid == 0) continue;
    for (std::size_t place = node.first_link(); place < node.ports.size(); ++place) {
      const GraphPort& port = node.ports[place];
      if (!has_known_link(graph, node, place) || port.state() != from) continue;
      wire::PortInfo wanted = without_changes(port.info);
      wanted.subnet_timeout &= static_cast<std::uint8_t>(~client_reregister);
      wanted.speed_supported_and_state =
          halves(upper_half(wanted.speed_supported_and_state), static_cast<unsigned>(to));
      questions.push_back(port_question(graph, index, place, wanted));
    }
  }
  return questions;
}

void KnownTables::forget_gone(const Graph& graph) {
  std::set<std::uint64_t> here;
  for (const GraphNode& node : graph.nodes) {
    // A switch without LIDs has restarted.
    const bool is_new = node.switch_info.linear_top == 0 || node.end_port().info.lid == 0;
    if (node.is_switch() && !is_new) here.insert(node.info.node_guid);
  }
  std::erase_if(tables_, [&](const auto& each) { return !here.contains(each.first); });
}

void KnownTables::ask_blocks(const GraphNode& node, std::uint32_t index,
                             std::vector<Question>& questions) {
  Table& table = tables_[node.info.node_guid];
  const std::size_t blocks = (node.linear.size() + in_block - 1) / in_block;
  table.ports.resize(blocks * in_block, no_port);
  table.is_known.resize(blocks, false);
  for (std::size_t block = 0; block < blocks; ++block) {
    AttributeData wanted;
    wanted.fill(std::byte{no_port});
    const std::size_t first = block * in_block;
    const std::size_t count = std::min(in_block, node.linear.size() - first);
    std::memcpy(wanted.data(), &node.linear[first], count);
    const bool is_same = std::memcmp(wanted.data(), &table.ports[first], in_block) == 0;
    if (table.is_known[block] && is_same) continue;
    table.is_known[block] = false;
    Question question = set_question(node.route, wire::attribute_linear_forwarding,
                                     static_cast<std::uint32_t>(block), wanted);
    question.node = index;
    questions.push_back(question);
  }
}

std::vector<Question> KnownTables::questions(const Graph& graph) {
  std::vector<Question> questions;
  forget_gone(graph);
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const GraphNode& node = graph.nodes[index];
    if (!node.is_switch() || !node.has_switch_info || node.linear.empty()) continue;
    ask_blocks(node, index, questions);
    const auto top = static_cast<std::uint16_t>(node.linear.size() - 1);
    if (node.switch_info.linear_top == top) continue;
    wire::SwitchInfo info = node.switch_info;
    info.linear_top = top;
    info.life_and_change &= static_cast<std::uint8_t>(~wire::SwitchInfo::port_state_change);
    Question question = set_question(node.route, wire::attribute_switch_info, 0, info);
    question.node = index;
    questions.push_back(question);
  }
  return questions;
}

void KnownTables::receive(const Graph& graph, const Reply& reply) {
  if (!reply.is_good() || reply.question.attribute != wire::attribute_linear_forwarding) return;
  Table& table = tables_[graph.nodes[reply.question.node].info.node_guid];
  const std::size_t block = reply.question.modifier;
  if (block >= table.is_known.size()) return;
  std::memcpy(&table.ports[block * in_block], reply.question.data.data(), in_block);
  table.is_known[block] = true;
}

}  // namespace tulle::management::subnet
