#pragma once

// InfiniBand's framing of a transport packet: LRH, GRH if the path has one, BTH … payload, pad,
// ICRC, VCRC (IBTA 7.7, 7.8, 8.3).

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rdma/port/framing/framing.h"
#include "rdma/wire/lrh.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"
#include "rdma/wire/vcrc.h"

namespace tulle::port {

// Returns the bytes of the headers in front of BTH.
constexpr std::size_t link_header_bytes(const wire::LocalPath& path) {
  return wire::lrh_bytes + (path.has_global ? wire::grh_bytes : 0);
}

// Writes the headers in front of BTH and returns their bytes. `transport_bytes` counts BTH … pad,
// and is a multiple of four. The LRH's next header and length are computed, and their values in
// `path` are ignored.
std::size_t encode_link_headers(const wire::LocalPath& path, std::size_t transport_bytes,
                                std::span<std::byte> out);

struct DecodedLinkHeaders {
  Verdict verdict = Verdict::truncated;
  std::size_t bytes = 0;  // of the headers, on ok
};
// Decodes the headers in front of BTH, from the beginning of a packet that has `bytes` bytes from
// the LRH to the ICRC. On ok, the lengths in the headers agree with that.
[[nodiscard]] DecodedLinkHeaders decode_link_headers(std::span<const std::byte> head,
                                                     std::size_t bytes, wire::LocalPath& path);

// Computes the ICRC and the VCRC of a packet from its LRH to its pad, whose headers are valid.
std::array<std::byte, wire::icrc_bytes + wire::vcrc_bytes> checks_of(
    std::span<const std::byte> packet);

// Frames a packet whose payload is in `pieces`, in order.
void encode(const wire::LocalPath& path, const wire::Packet& packet, Pieces pieces,
            FrameBytes& frame);

// Decodes a packet from LRH to VCRC. On ok, `payload` is a part of `bytes`.
[[nodiscard]] Verdict decode(std::span<const std::byte> bytes, wire::LocalPath& path,
                             wire::Packet& packet, std::span<const std::byte>& payload);

// The path is a LocalPath.
extern const Framing infiniband;

}  // namespace tulle::port
