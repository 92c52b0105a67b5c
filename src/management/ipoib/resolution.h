#pragma once

// Messages by which interfaces find each other's addresses: ARP for IPv4 (RFC 826, RFC 4391 §9.1),
// and neighbour discovery for IPv6 (RFC 4861, RFC 4391 §9.3). IPv4 addresses are mapped into IPv6
// here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "rdma/wire/ipoib.h"

namespace tulle::ipoib {

struct ResolutionMessage {
  bool asks = false;  // for the address of the interface that has `target`
  Gid sender;         // ARP: whose address this is; IPv6: the source of the packet
  Gid target;
  // The address of the sender, or of an IPv6 advertisement's target.
  wire::IpoibAddress address;
};

// A message ready to be sent, of the type that the IPoIB header says.
struct WrittenMessage {
  std::uint16_t type = 0;
  std::vector<std::byte> bytes;
};

// Both return nothing if the bytes are no such message with an address. `packet` is an IPv6 packet.
std::optional<ResolutionMessage> read_arp(std::span<const std::byte> bytes);
std::optional<ResolutionMessage> read_neighbour_message(std::span<const std::byte> packet);
// Returns true if an IPv6 packet is a message of neighbour discovery, whether valid or not.
bool is_neighbour_message(std::span<const std::byte> packet);

// Writes a question for `target`, to all that may have it, or to one that is known.
WrittenMessage write_question(const Gid& sender, const wire::IpoibAddress& address,
                              const Gid& target, const std::optional<wire::IpoibAddress>& known);
// Writes the answer to `asker`: `target` is at `address`.
WrittenMessage write_answer(const Gid& target, const wire::IpoibAddress& address, const Gid& asker,
                            const wire::IpoibAddress& askers);

// Returns the IPv6 group whose members may have an IPv6 address (RFC 4291 §2.7.1).
Gid solicited_node_group(const Gid& address);

}  // namespace tulle::ipoib
