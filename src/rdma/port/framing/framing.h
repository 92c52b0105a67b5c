#pragma once

// A framing is what a port puts around a transport packet: headers in front of BTH, and checks
// behind the payload. It is a row of functions. An adapter has the framing that its configuration
// names, and knows nothing else of what is on the wire. A new framing is a new row.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/port/link_layer.h"
#include "rdma/wire/ethernet.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"
#include "rdma/wire/vcrc.h"

namespace tulle::port {

// The longest headers in front of BTH: Ethernet's with a tag, and a GRH.
inline constexpr std::size_t outer_bytes_max =
    sizeof(wire::Ethernet) + sizeof(wire::VlanTag) + wire::grh_bytes;

// The bytes around the payload that the port writes: `head` before it, and `tail` (pad and checks)
// after it.
struct FrameBytes {
  std::uint8_t head_bytes = 0;
  std::uint8_t tail_bytes = 0;
  std::array<std::byte, 3 + wire::icrc_bytes + wire::vcrc_bytes> tail;
  std::array<std::byte, outer_bytes_max + wire::header_bytes_max> head;
};

// The outcome of decoding a frame.
enum class Verdict : std::uint8_t {
  ok,
  truncated,       // shorter than its headers, pad and checks
  unknown_opcode,  // reserved by IBTA
  bad_version,     // BTH transport version is not 0
  bad_icrc,
  bad_vcrc,         // InfiniBand: damaged on the link
  bad_link_header,  // of another version or kind
  bad_length,       // a header's length differs from the bytes received
  no_transport,     // not a packet that this framing carries
};
inline constexpr std::size_t verdicts = 9;

// This is known about a packet that comes in besides its bytes. RoCE v2 is told the path by the
// kernel, which took the headers off. Other framings read it from the bytes and set it.
struct Arrival {
  wire::Path path;
  // IPv4: says whether identification and dont_fragment were read from the header itself. If they
  // are a guess, a difference that some identification explains is accepted.
  bool is_identification_known = true;
  // Shared memory: a packet that another process of the host left there has no outer headers and no
  // checks, and its bytes may change at any time. This is a copy of the first header_bytes_max of
  // them. Empty: the bytes are a frame, and nobody else's.
  std::span<const std::byte> head = {};
  // Shared memory: the headers of a packet whose payload is stored elsewhere. The bytes are the
  // payload, which may already be where it will be written. Null: the bytes begin with the headers.
  const wire::Packet* packet = nullptr;
  // The framing of the frame, if it is not that of the adapter's configuration.
  const struct Framing* framing = nullptr;
};

// The way of a packet as the verbs name it, from which a framing makes its headers.
struct Route {
  Gid source_gid;
  Lid source_lid;
  PortAddress destination;
  std::uint16_t flow_entropy = 0;  // one value for each flow (IBTA A17.9.2)
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;  // DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // 20 bits
};

using Pieces = std::span<const std::span<const std::byte>>;  // a payload's bytes, in order

struct Framing {
  std::string_view name;
  LinkLayer link_layer{};
  Overhead overhead;

  // Says whether packets can go from a port with one GID to a port or a group with the other. RoCE
  // v2 refuses two unicast addresses of different families, because no IP header can carry both.
  bool (*is_pair)(const Gid& source, const Gid& destination) = [](const Gid&, const Gid&) {
    return true;
  };
  void (*set_path)(const Route& route, wire::Path& path) = nullptr;
  // Frames a packet. packet.pad_count gives the pad.
  void (*encode)(const wire::Path& path, const wire::Packet& packet, Pieces pieces,
                 FrameBytes& frame) = nullptr;
  // Decodes the bytes of a frame as `encode` and the payload make them. On ok, `payload` is a part
  // of `bytes`.
  Verdict (*decode)(std::span<const std::byte> bytes, Arrival& arrival, wire::Packet& packet,
                    std::span<const std::byte>& payload) = nullptr;
};

// Returns the bytes of a payload.
std::size_t bytes_of(Pieces pieces);
// Decodes BTH … pad, whose checks are correct.
[[nodiscard]] Verdict decode_transport(std::span<const std::byte> bytes, wire::Packet& packet,
                                       std::span<const std::byte>& payload);
// The same for bytes that another process may change at any time: `head` is a copy of their first
// header_bytes_max, or of all if there are fewer. No header is read from `bytes`.
[[nodiscard]] Verdict decode_transport(std::span<const std::byte> head,
                                       std::span<const std::byte> bytes, wire::Packet& packet,
                                       std::span<const std::byte>& payload);

}  // namespace tulle::port
