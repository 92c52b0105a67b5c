#pragma once

// Packet captures in the pcapng format (IETF draft-ietf-opsawg-pcapng), which Wireshark and tshark
// read. Sans-IO: every call appends one whole block to a buffer, and who owns the file or the pipe
// writes it. A buffer that is cleared, not freed, between blocks allocates nothing per packet.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace tulle::report {

// What a packet begins with (IANA's and tcpdump.org's link types).
enum class LinkType : std::uint16_t {
  ethernet = 1,
  ip = 101,   // an IPv4 or IPv6 header, told apart by its version
  erf = 197,  // the header of report/erf.h
};

// As the interface saw the packet.
enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

struct CaptureInterface {
  std::string_view name{};
  std::string_view description{};  // none if empty
  LinkType link_type = LinkType::ip;
  std::uint32_t snap_length = 0;      // bytes kept of a packet at most; 0: all
  std::uint64_t bits_per_second = 0;  // 0: not said
};

// One capture: a section and its interfaces. Timestamps are in nanoseconds: the format could hold
// picoseconds, but Wireshark 4.0 misreads them. Packets of one nanosecond stay in their order.
class Pcapng {
 public:
  using Buffer = std::vector<std::byte>;

  // Nanoseconds from 1970 to Time::zero(), since Time spans only 106 days. A simulation, whose
  // clock starts at nothing, leaves it 0.
  explicit Pcapng(std::int64_t epoch_nanoseconds = 0) : epoch_nanoseconds_(epoch_nanoseconds) {}

  // First of all: who wrote this. Section Header Block.
  void section_header(Buffer& out, std::string_view application);

  // Before the first packet of an interface. Returns its number, from 0 on.
  // Interface Description Block.
  std::uint32_t interface(Buffer& out, const CaptureInterface& interface);

  // A packet whose bytes lie in `pieces`, in order. `original_bytes` is its length on the wire,
  // which is more than the sum of the pieces where the payload is not kept (or is a ghost).
  // `damaged`: it failed the link layer's check. Enhanced Packet Block.
  void packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
              std::span<const std::span<const std::byte>> pieces, std::uint32_t original_bytes,
              bool damaged = false);
  // The same for a packet that is in one piece and whole.
  void packet(Buffer& out, Time when, Direction direction, std::uint32_t interface,
              std::span<const std::byte> bytes);

  // At the end, or whenever the counts are of interest: packets that the interface received, and
  // those that it dropped. Interface Statistics Block.
  void statistics(Buffer& out, Time when, std::uint32_t interface, std::uint64_t received,
                  std::uint64_t dropped);

 private:
  std::int64_t epoch_nanoseconds_;
  std::uint32_t interfaces_ = 0;
};

}  // namespace tulle::report
