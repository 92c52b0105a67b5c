#include "fabric/written_arbitration.h"

#include <cstddef>
#include <optional>
#include <span>

namespace tulle::fabric {
namespace {

// Returns nothing if a manager has written none.
std::optional<port::VlArbitration> arbitration_of(const management::subnet::Node& node,
                                                  std::uint8_t port) {
  const auto written = node.arbitration(port);
  const auto table_of = [](std::span<const std::byte> bytes) {
    std::vector<port::VlWeight> table;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const auto lane = std::to_integer<std::uint8_t>(bytes[i] & std::byte{0xF});
      const auto weight = std::to_integer<std::uint8_t>(bytes[i + 1]);
      if (lane < port::classes && weight != 0) table.push_back({lane, weight});
    }
    return table;
  };
  const auto high = table_of(written.high), low = table_of(written.low);
  if (high.empty() && low.empty()) return std::nullopt;
  return port::VlArbitration(high, low, written.high_limit);
}

}  // namespace

void WrittenArbitration::apply(std::uint32_t node, const management::subnet::Node& agent,
                               const port::Settings& usual, Switch& of) {
  auto& own = settings_[node];
  own.resize(agent.ports());
  for (std::uint16_t port = 0; port < agent.ports(); ++port) {
    std::unique_ptr<port::Settings> made;
    const auto written = arbitration_of(agent, static_cast<std::uint8_t>(port + 1));
    if (written) {
      made = std::make_unique<port::Settings>(usual);
      made->arbitration = *written;
    }
    port::PortControl::replace_arbitration(of.port(port), made != nullptr ? *made : usual);
    own[port] = std::move(made);
  }
}

}  // namespace tulle::fabric
