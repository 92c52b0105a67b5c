#include "rdma/port/vl_arbiter.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "rdma/port/flow_control/control.h"

namespace tulle::port {
namespace {

constexpr std::array<VlWeight, 1> opensm_high = {{{0, 4}}};
constexpr std::array<VlWeight, 7> opensm_low = {
    {{1, 4}, {2, 4}, {3, 4}, {4, 4}, {5, 4}, {6, 4}, {7, 4}}};

}  // namespace

VlArbitration::VlArbitration() : VlArbitration(opensm_high, opensm_low, 0) {}

VlArbitration::VlArbitration(std::span<const VlWeight> high, std::span<const VlWeight> low,
                             std::uint8_t high_limit)
    : high_(high), low_(low), high_limit_(high_limit) {}

VlArbitration::Table::Table(std::span<const VlWeight> from) {
  TULLE_CHECK(from.size() <= entries_max);
  for (const VlWeight& entry : from) {
    if (entry.weight == 0) continue;
    entries.push_back(entry);
    lanes |= 1u << entry.lane;
  }
}

// Moves on to the next entry with an open lane. An entry whose lane has nothing to send loses the
// rest of its turn.
std::uint8_t VlArbiter::Turn::advance(const VlArbitration::Table& table, std::uint32_t open) {
  do {
    at = at + 1u < table.entries.size() ? static_cast<std::uint8_t>(at + 1) : std::uint8_t{0};
  } while ((open >> table.entries[at].lane & 1) == 0);
  left = table.entries[at].weight;
  return table.entries[at].lane;
}

// Packets count in whole units of 64 bytes, as they do for credits.
void VlArbiter::sent(std::uint32_t bytes) {
  const std::uint32_t blocks = blocks_of(bytes);
  Turn& turn = from_high_ ? high_ : low_;
  turn.left = static_cast<std::int16_t>(turn.left - static_cast<std::int16_t>(blocks));
  constexpr std::uint32_t most = 0x7FFF;  // above every limit
  high_blocks_ = from_high_ ? static_cast<std::uint16_t>(std::min(high_blocks_ + blocks, most)) : 0;
}

}  // namespace tulle::port
