// A table of links either reads as a topology for which routes can be computed, or is refused in
// one line that begins with the file's name. Whatever choice the switches make among the ports of a
// route, a frame that a host sends reaches its destination.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "fabric/routing.h"

namespace tulle::fabric {
namespace {

class Walk {
 public:
  Walk(const Topology& topology, const Routes& routes) : topology_(topology), routes_(routes) {
    for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
      neighbours_.emplace_back(topology.ports[node]);
    }
    for (const Link& link : topology.links) {
      neighbours_[link.a][link.a_port] = link.b;
      neighbours_[link.b][link.b_port] = link.a;
    }
  }

  void to(std::uint32_t host) {
    seen_.assign(topology_.nodes(), State::unseen);
    seen_[host] = State::arrives;
    for (std::uint32_t leaf = 0; leaf < routes_.leaves(); ++leaf) {
      visit(routes_.leaf_node(leaf), host);
    }
  }

 private:
  enum class State : std::uint8_t { unseen, on_the_way, arrives };

  // All ways on must arrive, and none may come back to a node where it was.
  void visit(std::uint32_t node, std::uint32_t host) {
    TULLE_CHECK(seen_[node] != State::on_the_way);
    if (seen_[node] == State::arrives) return;
    TULLE_CHECK(!topology_.is_host(node));
    seen_[node] = State::on_the_way;
    TULLE_CHECK(!routes_.candidates(node, host).empty());
    bool has_port = false;
    for (const std::uint16_t port : routes_.candidates(node, host)) {
      TULLE_CHECK(port < topology_.ports[node]);
      has_port |= port == routes_.port(node, host);
      visit(neighbours_[node][port], host);
    }
    TULLE_CHECK(has_port);
    seen_[node] = State::arrives;
  }

  const Topology& topology_;
  const Routes& routes_;
  std::vector<std::vector<std::uint32_t>> neighbours_;
  std::vector<State> seen_;
};

}  // namespace
}  // namespace tulle::fabric

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle::fabric;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto topology = from_csv(text, "fuzz.csv");
  if (!topology) {
    const std::string& message = topology.error().message;
    TULLE_CHECK(message.starts_with("fuzz.csv:"));
    for (const char c : message) TULLE_CHECK(c < 0 || c >= ' ');
    return 0;
  }
  TULLE_CHECK(topology->hosts >= 1 && topology->nodes() >= 2);
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down}) {
    auto routes = compute_routes(*topology, {.kind = kind});
    TULLE_CHECK(routes);
    Walk walk(*topology, *routes);
    for (std::uint32_t host = 0; host < topology->hosts && topology->switches > 0; ++host) {
      walk.to(host);
    }
  }
  return 0;
}
