#pragma once

// InfiniBand's framing of a transport packet: LRH, BTH … payload, pad, ICRC, VCRC (IBTA 7.7, 7.8).
// It has no GRH, since packets stay in their subnet.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "port/framing/framing.h"
#include "wire/lrh.h"
#include "wire/packet.h"
#include "wire/vcrc.h"

namespace tulle::port {

// Frames a packet whose payload lies in `pieces`, in order. The LRH's next header and length are
// computed, and their values in `route` are ignored.
void encode(const wire::LocalRoute& route, const wire::Packet& packet, Pieces pieces,
            FrameBytes& frame);

// Decodes a packet from LRH to VCRC. On ok, `payload` is a part of `bytes`.
[[nodiscard]] Verdict decode(std::span<const std::byte> bytes, wire::LocalRoute& route,
                             wire::Packet& packet, std::span<const std::byte>& payload);

// The path is a LocalPath without a GRH.
extern const Framing infiniband;

}  // namespace tulle::port
