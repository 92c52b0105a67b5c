// A table of links either reads as a topology for which routes can be computed, or is refused in
// one line that begins with the file's name.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "fabric/routing.h"

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
    for (std::uint32_t node = topology->hosts; node < topology->nodes(); ++node) {
      for (std::uint32_t host = 0; host < topology->hosts; ++host) {
        TULLE_CHECK(!routes->candidates(node, host).empty());
        TULLE_CHECK(routes->port(node, host) < topology->ports[node]);
      }
    }
  }
  return 0;
}
