#pragma once

// The forwarding tables of a switch, as they are on the wire, and its SwitchInfo (IBTA 14.2.5.4,
// 14.2.5.10, 14.2.5.11). An adapter has none.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "management/answer.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {

class ForwardingTables {
 public:
  static constexpr std::uint8_t no_port = 0xFF;

  ForwardingTables() = default;
  // `ports` are those besides port 0.
  ForwardingTables(std::uint8_t ports, std::uint16_t linear_entries,
                   std::uint16_t multicast_entries);

  // Returns the output port of a unicast LID, and no_port if the table has none.
  std::uint8_t output_port(Lid lid) const;
  // Returns true if packets of a multicast LID leave by the port.
  bool forwards_multicast(Lid lid, std::uint8_t port) const;

  const wire::SwitchInfo& info() const { return info_; }
  Status set_info(const wire::SwitchInfo& wanted);
  // Notes in SwitchInfo that the state of a port has changed.
  void note_port_change() { info_.life_and_change |= wire::SwitchInfo::port_state_change; }

  // Return a block of a table, by the modifier of its attribute, or nothing if there is none.
  std::span<std::byte> linear_block(std::uint32_t modifier);
  std::span<std::byte> multicast_block(std::uint32_t modifier);

 private:
  std::uint8_t ports_ = 0;
  wire::SwitchInfo info_;
  std::vector<std::uint8_t> linear_;             // by LID
  std::array<std::vector<be16>, 16> multicast_;  // by 16 ports, then by LID: a bit for each port
};

}  // namespace tulle::management::subnet
