#pragma once

// Packet captures in the pcapng format (IETF draft-ietf-opsawg-pcapng), which Wireshark and tshark
// read. The class does no I/O: every call appends one whole block to a buffer, and the owner of the
// file or pipe writes it. A buffer that is cleared, not freed, between blocks allocates nothing per
// packet.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace tulle::pcapng {

// The header that a packet begins with (IANA's and tcpdump.org's link types).
enum class LinkType : std::uint16_t {
  ethernet = 1,
  ip = 101,   // an IPv4 or IPv6 header, told apart by its version
  erf = 197,  // the header of rdma/pcapng/erf.h
};

// Direction of a packet as the interface saw it.
enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

struct CaptureInterface {
  std::string_view name{};
  std::string_view description{};  // may be empty
  LinkType link_type = LinkType::ip;
  std::uint32_t snap_length = 0;      // most bytes kept of a packet; 0 means all
  std::uint64_t bits_per_second = 0;  // 0 means not given
};

// One capture: a section and its interfaces. Timestamps are in nanoseconds. The format could hold
// picoseconds, but Wireshark 4.0 misreads them. Packets of the same nanosecond stay in their order.
class Writer {
 public:
  using Buffer = std::vector<std::byte>;

  // `epoch_nanoseconds` runs from 1970 to Time::zero(), since Time spans only 106 days. A
  // simulation, whose clock starts at 0, leaves it 0.
  explicit Writer(std::int64_t epoch_nanoseconds = 0) : epoch_nanoseconds_(epoch_nanoseconds) {}

  // Appends a Section Header Block, which comes first and names the application that writes the
  // file.
  void section_header(Buffer& out, std::string_view application);

  // Appends an Interface Description Block, which must come before the first packet of the
  // interface. Returns the interface's number, from 0 on.
  std::uint32_t interface(Buffer& out, const CaptureInterface& interface);

  // Appends an Enhanced Packet Block for a packet whose bytes are in `pieces`, in order.
  // `original_bytes` is its length on the wire, which exceeds the sum of the pieces if the payload
  // is not kept (or is a ghost). `damaged` says that the packet failed the link layer's check.
  void packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
              std::span<const std::span<const std::byte>> pieces, std::uint32_t original_bytes,
              bool damaged = false);
  // Does the same for an undamaged packet in one piece.
  void packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
              std::span<const std::byte> bytes);

  // Appends an Interface Statistics Block, at the end or whenever the counts are of interest: the
  // packets that the interface received, and those that it dropped.
  void statistics(Buffer& out, Time when, std::uint32_t interface, std::uint64_t received,
                  std::uint64_t dropped);

 private:
  std::int64_t epoch_nanoseconds_;
  std::uint32_t interfaces_ = 0;
};

}  // namespace tulle::pcapng
