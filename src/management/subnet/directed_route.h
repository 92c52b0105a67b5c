#pragma once

// Directed routes (IBTA 14.2.2): a subnet management packet that is routed so carries the output
// port of each hop, and needs no forwarding tables. Each node takes one step of the route.

#include <cstdint>

#include "management/answer.h"

namespace tulle::management::subnet {

// The next step of a packet. `port` is the output port of `on`.
struct RouteStep {
  enum class Kind : std::uint8_t {
    discard,  // the route is broken, and no node answers (IBTA 14.2.2.2, 14.2.2.4)
    here,     // the route ends at this node
    on,       // the packet leaves by `port`
    by_lid,   // the directed part is over, and the packet continues to its LID
  };
  Kind kind = Kind::discard;
  std::uint8_t port = 0;

  bool operator==(const RouteStep&) const = default;
};

// Takes the step of a packet that came in at `in_port`, or that this node itself sends (in_port 0).
// Writes the hop pointer and the path of the way back. `ports` is the number of the node's ports; a
// node that is no switch forwards nothing. The packet must be of class 0x81.
RouteStep take_step(Answer packet, bool is_switch, std::uint8_t in_port, std::uint8_t ports);

// Returns the LID to which a packet continues after the directed part of its route.
std::uint16_t lid_after_route(Request packet);

// Returns true if a packet goes by LID before the directed part of its route.
bool begins_by_lid(Request packet);
// Returns true if a packet of class 0x81 is on its way back.
bool is_returning(Request packet);

}  // namespace tulle::management::subnet
