#include "management/subnet/polled_manager.h"

#include "management/subnet/ways.h"

namespace tulle::management::subnet {

void PolledManager::choose(const Graph& graph, const OtherManager& other, bool is_master) {
  route_ = graph.nodes[other.node].route;
  guid_ = other.info.guid;
  node_ = other.node;
  is_master_ = is_master;
  polls_in_vain_ = 0;
}

Question PolledManager::poll() const {
  Question question;
  question.route = route_;
  question.attribute = wire::attribute_sm_info;
  return question;
}

bool PolledManager::has_sent(const Graph& graph, const Packet& packet) const {
  if (!is_master_ || node_ >= graph.nodes.size()) return false;
  if (goes_by_directed_route(packet)) return end_of(graph, way_back(packet)) == node_;
  return packet.source.value == graph.nodes[node_].end_port().info.lid;
}

}  // namespace tulle::management::subnet
