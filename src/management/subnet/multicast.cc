#include "management/subnet/multicast.h"

#include <algorithm>
#include <bitset>
#include <optional>
#include <set>
#include <utility>

namespace tulle::management::subnet {
namespace {

using PortSet = std::bitset<256>;

// The output ports of each switch, by multicast LID and node.
class Trees {
 public:
  explicit Trees(const Graph& graph) : graph_(graph) {
    for (std::uint32_t node = 0; node < graph.nodes.size(); ++node) {
      by_guid_.emplace(graph.nodes[node].port_guid(), node);
    }
  }

  void add(std::uint16_t lid, const GroupMembers& members) {
    std::uint32_t root = no_node;
    for (const std::uint64_t guid : members.receivers) {
      const auto at = place_of(guid);
      if (!at) continue;
      if (root == no_node) begin_at(root = at->first);
      ports_[{at->first, lid}].set(at->second);
      join(lid, at->first);
    }
    // Without a receiver, nothing that is sent arrives.
    if (root == no_node) return;
    for (const std::uint64_t guid : members.senders) {
      if (const auto at = place_of(guid)) join(lid, at->first);
    }
  }

  const PortSet* ports(std::uint32_t node, std::uint16_t lid) const {
    const auto found = ports_.find({node, lid});
    return found == ports_.end() ? nullptr : &found->second;
  }

 private:
  struct Step {
    std::uint32_t node = no_node;  // towards the root
    std::uint8_t port = 0;
    std::uint8_t nodes_port = 0;
  };

  // Returns the switch of a port, and the port there that leads to it.
  std::optional<std::pair<std::uint32_t, std::uint8_t>> place_of(std::uint64_t guid) const {
    const auto found = by_guid_.find(guid);
    if (found == by_guid_.end()) return std::nullopt;
    const GraphNode& node = graph_.nodes[found->second];
    if (node.is_switch()) return std::pair{found->second, std::uint8_t{0}};
    const GraphPort& port = node.end_port();
    if (!port.has_peer() || !graph_.nodes[port.peer].is_switch()) return std::nullopt;
    return std::pair{port.peer, port.peer_port};
  }

  // Finds the shortest paths to a switch.
  void begin_at(std::uint32_t root) {
    if (root == root_) return;
    root_ = root;
    steps_.assign(graph_.nodes.size(), {});
    std::vector<std::uint32_t> queue = {root};
    for (std::size_t next = 0; next < queue.size(); ++next) {
      const GraphNode& from = graph_.nodes[queue[next]];
      for (std::size_t place = 1; place < from.ports.size(); ++place) {
        const GraphPort& port = from.ports[place];
        const bool leads_on = port.has_peer() && graph_.nodes[port.peer].is_switch() &&
                              port.peer != root && steps_[port.peer].node == no_node;
        if (!leads_on) continue;
        steps_[port.peer] = {queue[next], port.peer_port, static_cast<std::uint8_t>(place)};
        queue.push_back(port.peer);
      }
    }
  }

  // Adds the way from a switch to the root, as far as it is not there yet.
  void join(std::uint16_t lid, std::uint32_t node) {
    while (node != root_ && steps_[node].node != no_node) {
      const Step& step = steps_[node];
      PortSet& own = ports_[{node, lid}];
      if (own.test(step.port)) return;
      own.set(step.port);
      ports_[{step.node, lid}].set(step.nodes_port);
      node = step.node;
    }
  }

  const Graph& graph_;
  std::map<std::uint64_t, std::uint32_t> by_guid_;
  std::map<std::pair<std::uint32_t, std::uint16_t>, PortSet> ports_;
  std::vector<Step> steps_;
  std::uint32_t root_ = no_node;
};

AttributeData block_of(const Trees& trees, std::uint32_t node, std::size_t block,
                       std::size_t position) {
  std::array<be16, wire::multicast_entries_in_block> masks;
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const auto lid = static_cast<std::uint16_t>(first_multicast_lid + block * masks.size() + i);
    const PortSet* ports = trees.ports(node, lid);
    unsigned mask = 0;
    for (std::size_t port = 0; ports != nullptr && port < wire::multicast_ports_in_block; ++port) {
      mask |= unsigned{ports->test(position * wire::multicast_ports_in_block + port)} << port;
    }
    masks[i] = static_cast<std::uint16_t>(mask);
  }
  AttributeData data;
  static_assert(sizeof masks == sizeof data);
  std::memcpy(data.data(), masks.data(), sizeof data);
  return data;
}

}  // namespace

std::vector<Question> KnownGroups::questions(const Graph& graph, const Members& all) {
  Trees trees(graph);
  for (const auto& [lid, members] : all) trees.add(lid, members);
  const std::size_t entries =
      all.empty() ? 0 : all.rbegin()->first - first_multicast_lid + std::size_t{1};
  std::set<std::uint64_t> here;
  std::vector<Question> questions;
  for (std::uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const GraphNode& node = graph.nodes[index];
    if (!node.is_switch() || !node.has_switch_info || node.lid == 0) continue;
    here.insert(node.info.node_guid);
    Blocks& known = switches_[node.info.node_guid];
    // A block that once had entries is emptied when its groups have ended.
    const std::size_t in_block = wire::multicast_entries_in_block;
    std::size_t blocks = (entries + in_block - 1) / in_block;
    for (const auto& [modifier, data] : known) {
      blocks = std::max<std::size_t>(blocks, (modifier & 0x1FF) + 1);
    }
    const std::size_t most = (node.switch_info.multicast_entries_max + in_block - 1) / in_block;
    for (std::size_t block = 0; block < std::min(blocks, most); ++block) {
      for (std::size_t position = 0; position * 16 <= node.info.ports; ++position) {
        const auto modifier = static_cast<std::uint32_t>(position << 28 | block);
        const AttributeData wanted = block_of(trees, index, block, position);
        const auto found = known.find(modifier);
        if (found != known.end() && found->second == wanted) continue;
        Question question =
            set_question(node.route, wire::attribute_multicast_forwarding, modifier, wanted);
        question.node = index;
        questions.push_back(question);
      }
    }
  }
  std::erase_if(switches_, [&](const auto& each) { return !here.contains(each.first); });
  return questions;
}

void KnownGroups::receive(const Graph& graph, const Reply& reply) {
  Blocks& known = switches_[graph.nodes[reply.question.node].info.node_guid];
  if (reply.is_good()) {
    known[reply.question.modifier] = reply.question.data;
  } else {
    known.erase(reply.question.modifier);
  }
}

}  // namespace tulle::management::subnet
