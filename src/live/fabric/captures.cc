#include "live/fabric/captures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/flow_control.h"

namespace tulle::live {

Result<int> Captures::add(std::uint32_t client, pid_t process, const Wanted& wanted) {
  if (captures_.size() >= captures_max) {
    return Error{fmt::format("{} captures of the fabric run, which is the most", captures_max),
                 EBUSY};
  }
  const auto own =
      static_cast<std::size_t>(std::ranges::count(captures_, process, &Capture::process));
  if (process <= 0 && own >= captures_of_unknown_max) {
    return Error{fmt::format("programs of other PID namespaces have {} captures of the fabric, "
                             "which is the most for them",
                             own),
                 EBUSY};
  }
  if (process > 0 && own >= captures_of_process_max) {
    return Error{fmt::format("process {} has {} captures of the fabric, which is the most for one "
                             "process",
                             process, own),
                 EBUSY};
  }
  auto ring = CaptureRing::create(wanted.ring_bytes);
  if (!ring) return ring.error();
  captures_.push_back({client, process, wanted, std::move(*ring)});
  traffic_.on_send([this](const auto& sent) { record(sent); });
  if (wanted.has_flow_control) traffic_.on_tell([this](const auto& told) { record(told); });
  return captures_.back().ring.fd();
}

void Captures::remove(std::uint32_t client) {
  std::vector<Capture> left;
  left.reserve(captures_.size());
  for (Capture& capture : captures_) {
    if (capture.client != client) left.push_back(std::move(capture));
  }
  captures_.swap(left);
  if (!captures_.empty()) return;
  traffic_.on_send({});
  traffic_.on_tell({});
}

void Captures::record(const fabric::SubnetTraffic::Sent& sent) {
  const CapturedAt at{sent.node, sent.port};
  std::array<std::byte, fabric::SubnetTraffic::packet_bytes_max> packet;
  const std::span<std::byte> bytes(packet.data(), sent.packet.size());
  TULLE_CHECK(!bytes.empty() && bytes.size() <= packet.size());
  std::memcpy(bytes.data(), sent.packet.data(), bytes.size());
  // The upper half of the first byte is the lane of this link (IBTA 7.7.1).
  bytes[0] = (bytes[0] & std::byte{0x0F}) | static_cast<std::byte>(sent.lane << 4);
  write(false, at, bytes, port::checks_of(bytes));
}

void Captures::record(const fabric::SubnetTraffic::Told& told) {
  const auto packet =
      wire::encode(wire::flow_control_packet(told.update.lane, told.total_sent, told.update.limit));
  write(true, {told.node, told.port}, packet, {});
}

void Captures::write(bool is_flow_control, const CapturedAt& at, std::span<const std::byte> packet,
                     std::span<const std::byte> checks) {
  const std::array<std::span<const std::byte>, 3> pieces = {std::as_bytes(std::span(&at, 1)),
                                                            packet, checks};
  CapturedFrame frame;
  frame.unix_nanoseconds = unix_nanoseconds();
  frame.original_bytes = static_cast<std::uint32_t>(packet.size() + checks.size());
  frame.outbound = true;
  for (Capture& capture : captures_) {
    if (is_flow_control && !capture.wanted.has_flow_control) continue;
    const std::uint32_t snap_length = capture.wanted.snap_length;
    const std::uint32_t kept =
        snap_length == 0 ? 0 : snap_length + static_cast<std::uint32_t>(sizeof(CapturedAt));
    static_cast<void>(capture.ring.write(frame, pieces, kept));
  }
}

}  // namespace tulle::live
