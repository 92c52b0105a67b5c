#include "management/subnet/discovery.h"

#include <algorithm>

namespace tulle::management::subnet {
namespace {

constexpr unsigned switch_ports_max = 254;  // IBTA 18.2.4.2

}  // namespace

void Discovery::begin(Exchange& exchange, bool is_master) {
  *this = Discovery(limits_);
  is_master_ = is_master;
  Question question;
  question.attribute = wire::attribute_node_info;
  exchange.ask(question);
}

void Discovery::ask(Exchange& exchange, std::uint32_t index, std::uint16_t attribute,
                    std::size_t place) const {
  const GraphNode& node = graph_.nodes[index];
  Question question;
  question.route = node.route;
  question.attribute = attribute;
  question.node = index;
  question.place = static_cast<std::uint8_t>(place);
  if (attribute == wire::attribute_port_info) question.modifier = node.number(place);
  exchange.ask(question);
}

void Discovery::ask_ports(Exchange& exchange, std::uint32_t node) const {
  for (std::size_t place = 0; place < graph_.nodes[node].ports.size(); ++place) {
    ask(exchange, node, wire::attribute_port_info, place);
  }
}

void Discovery::receive(const Reply& reply, Exchange& exchange) {
  if (!reply.is_good()) {
    ++unanswered_;
    return;
  }
  switch (reply.question.attribute) {
    case wire::attribute_node_info:
      return receive_node_info(reply, exchange);
    case wire::attribute_node_description: {
      const auto* text = reinterpret_cast<const char*>(reply.data.data());
      graph_.nodes[reply.question.node].description.assign(text, reply.data.size());
      return;
    }
    case wire::attribute_port_info:
      return receive_port_info(reply, exchange);
    case wire::attribute_switch_info:
      return receive_switch_info(reply, exchange);
    case wire::attribute_sm_info:
      managers_.push_back({reply.question.node, reply.as<wire::SmInfo>()});
      return;
    default:
      return;
  }
}

bool Discovery::fits(const wire::NodeInfo& info) const {
  const bool is_switch = info.node_type == wire::NodeInfo::switch_node;
  const unsigned ports = is_switch ? info.ports + 1u : 1u;
  const bool makes_sense = info.node_guid != 0 && info.ports >= 1 &&
                           info.ports <= switch_ports_max && info.local_port <= info.ports &&
                           (is_switch || info.local_port >= 1);
  return makes_sense && graph_.nodes.size() < limits_.nodes &&
         (!is_switch || switches_ < limits_.switches) && ports_ + ports <= limits_.ports;
}

std::uint32_t Discovery::find_or_add(const wire::NodeInfo& info, const Route& route,
                                     Exchange& exchange) {
  const bool is_switch = info.node_type == wire::NodeInfo::switch_node;
  const std::pair<std::uint64_t, std::uint8_t> key(info.node_guid, is_switch ? 0 : info.local_port);
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  if (!fits(info)) return no_node;
  const auto index = static_cast<std::uint32_t>(graph_.nodes.size());
  index_.emplace(key, index);
  GraphNode& node = graph_.nodes.emplace_back();
  node.info = info;
  node.route = route;
  node.ports.resize(is_switch ? info.ports + 1u : 1u);
  switches_ += is_switch;
  ports_ += static_cast<std::uint32_t>(node.ports.size());
  ask(exchange, index, wire::attribute_node_description);
  // A switch's ports are asked when the note of their changes has been read and taken back.
  if (is_switch) {
    ask(exchange, index, wire::attribute_switch_info);
  } else {
    ask_ports(exchange, index);
  }
  return index;
}

void Discovery::receive_node_info(const Reply& reply, Exchange& exchange) {
  const auto info = reply.as<wire::NodeInfo>();
  const std::uint32_t node = find_or_add(info, reply.question.route, exchange);
  if (node == no_node) {
    ++left_out_;
  } else if (reply.question.node != no_node) {
    join(reply.question.node, reply.question.place, node, info.local_port);
  }
}

// A port has one link, so that the first answer about it counts.
void Discovery::join(std::uint32_t from, std::uint8_t place, std::uint32_t to, std::uint8_t port) {
  GraphNode& node = graph_.nodes[to];
  const bool has_port = node.is_switch() ? port >= 1 && port < node.ports.size() : true;
  if (!has_port) {
    ++left_out_;
    return;
  }
  GraphPort& near = graph_.nodes[from].ports[place];
  GraphPort& far = node.ports[node.place(port)];
  const std::uint8_t near_number = graph_.nodes[from].number(place);
  if (near.has_peer() || far.has_peer()) {
    const bool is_same = near.peer == to && near.peer_port == port && far.peer == from &&
                         far.peer_port == near_number;
    left_out_ += !is_same;
    return;
  }
  near.peer = to;
  near.peer_port = port;
  far.peer = from;
  far.peer_port = near_number;
}

void Discovery::receive_port_info(const Reply& reply, Exchange& exchange) {
  const std::uint32_t index = reply.question.node;
  const std::uint8_t place = reply.question.place;
  GraphNode& node = graph_.nodes[index];
  GraphPort& port = node.ports[place];
  port.info = reply.as<wire::PortInfo>();
  port.is_known = true;
  const bool is_manager = (port.info.capability_mask & wire::capability_is_sm) != 0;
  if (place == 0 && is_manager && index != 0) ask(exchange, index, wire::attribute_sm_info);
  // Only switches forward, and the manager's own adapter sends.
  const bool leads_on = place >= node.first_link() && (node.is_switch() || index == 0);
  const bool is_up = port.state() >= wire::PortState::initialise;
  if (!leads_on || !is_up || port.has_peer() || !node.route.can_go_on()) return;
  Question question;
  question.route = node.route.by(node.number(place));
  question.attribute = wire::attribute_node_info;
  question.node = index;
  question.place = place;
  exchange.ask(question);
}

void Discovery::receive_switch_info(const Reply& reply, Exchange& exchange) {
  const std::uint32_t index = reply.question.node;
  GraphNode& node = graph_.nodes[index];
  const bool is_first = !std::exchange(node.has_switch_info, true);
  node.switch_info = reply.as<wire::SwitchInfo>();
  const bool has_changed =
      (node.switch_info.life_and_change & wire::SwitchInfo::port_state_change) != 0;
  if (is_first && has_changed && is_master_) {
    // IBTA 14.2.5.4: a Set that has the bit takes it back.
    Question question = set_question(node.route, wire::attribute_switch_info, 0, node.switch_info);
    question.node = index;
    exchange.ask(question);
  }
  if (is_first) ask_ports(exchange, index);
}

}  // namespace tulle::management::subnet
