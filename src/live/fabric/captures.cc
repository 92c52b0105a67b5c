#include "live/fabric/captures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "port/framing/infiniband.h"

namespace tulle::live {
Result<int> Captures::add(std::uint32_t client, std::uint32_t ring_bytes,
                          std::uint32_t snap_length) {
  if (captures_.size() >= captures_max) {
    return Error{fmt::format("{} captures of the fabric run, which is the most", captures_max),
                 EBUSY};
  }
  auto ring = CaptureRing::create(ring_bytes);
  if (!ring) return ring.error();
  captures_.push_back({client, snap_length, std::move(*ring)});
  return captures_.back().ring.fd();
}

void Captures::remove(std::uint32_t client) {
  std::vector<Capture> left;
  left.reserve(captures_.size());
  for (Capture& capture : captures_) {
    if (capture.client != client) left.push_back(std::move(capture));
  }
  captures_.swap(left);
}

void Captures::record(const fabric::SubnetTraffic::Sent& sent) {
  const CapturedAt at{sent.node, sent.port};
  std::array<std::byte, fabric::SubnetTraffic::packet_bytes_max> packet;
  std::copy(sent.packet.begin(), sent.packet.end(), packet.begin());
  const std::span<std::byte> bytes(packet.data(), sent.packet.size());
  // The lane of this link stands in the upper half of the first byte (IBTA 7.7.1).
  bytes[0] = (bytes[0] & std::byte{0x0F}) | static_cast<std::byte>(sent.lane << 4);
  const auto checks = port::checks_of(bytes);
  const std::array<std::span<const std::byte>, 3> pieces = {std::as_bytes(std::span(&at, 1)), bytes,
                                                            checks};
  CapturedFrame frame;
  frame.unix_nanoseconds = unix_nanoseconds();
  frame.original_bytes = static_cast<std::uint32_t>(bytes.size() + checks.size());
  frame.outbound = true;
  for (Capture& capture : captures_) {
    const std::uint32_t kept =
        capture.snap_length == 0
            ? 0
            : capture.snap_length + static_cast<std::uint32_t>(sizeof(CapturedAt));
    static_cast<void>(capture.ring.write(frame, pieces, kept));
  }
}

}  // namespace tulle::live
