#pragma once

// A subnet as subnet administration tells of it: the manager's graph, with look-ups by address, and
// the paths that its tables make.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "management/subnet/graph.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

wire::GidBytes gid_bytes(std::uint64_t prefix, std::uint64_t guid);

// Codes of a rate (IBTA 15.2.5.16), which do not grow with the rate.
std::uint8_t rate_code_of(const wire::PortInfo& info);
// Returns the rate of a code in units of 100 Mb/s, and 0 for a code that there is not.
unsigned rate_of_code(std::uint8_t code);

class View {
 public:
  // The graph must outlive this object, or be replaced before the next use.
  void show(const subnet::Graph& graph);

  const subnet::Graph& graph() const { return *graph_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(graph_->nodes.size()); }
  const subnet::GraphNode& node(std::uint32_t index) const { return graph_->nodes[index]; }
  std::optional<std::uint32_t> find_lid(std::uint16_t lid) const;
  std::optional<std::uint32_t> find_guid(std::uint64_t port_guid) const;
  // Returns the node with a GID of the subnet's prefix or the default one.
  std::optional<std::uint32_t> find_gid(const wire::GidBytes& gid) const;
  wire::GidBytes gid(std::uint32_t node) const;

  // The MTU and the rate that all links of a path have.
  struct Reach {
    std::uint8_t mtu = 0;   // a code
    std::uint8_t rate = 0;  // a code
  };
  // Follows the tables from a node to a LID.
  std::optional<Reach> follow(std::uint32_t from, std::uint16_t to) const;

 private:
  static constexpr int hops_max = 64;

  const subnet::Graph* graph_ = nullptr;
  std::vector<std::uint32_t> by_lid_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_guid_;
};

}  // namespace tulle::management::administration
