#pragma once

// What two ends of a link say to each other about its flow control.

#include <cstdint>

namespace tulle::fabric {

// IEEE 802.1Qbb, a priority-based flow control frame: the classes named are to stop, or to go on (a
// time of zero); for the others it says nothing.
struct Pause {
  std::uint8_t stop = 0;
  std::uint8_t go = 0;
};

// 64 bytes, preamble and gap.
inline constexpr std::uint32_t pause_link_bytes = 64 + 20;

// IBTA 7.9: a flow control packet of one virtual lane. Totals of 64-byte blocks, in 12 bits.
struct CreditUpdate {
  std::uint8_t lane = 0;
  std::uint16_t limit = 0;  // FCCL: how many blocks the sender may have sent in all
};
inline constexpr std::uint32_t credit_block_bytes = 64;
inline constexpr std::uint32_t credit_mask = 0xFFF;
// 6 bytes with its CRC, and the two symbols that delimit it (IBTA 7.9.4, 5.3).
inline constexpr std::uint32_t credit_update_link_bytes = 8;

constexpr std::uint32_t blocks_of(std::uint32_t bytes) {
  return (bytes + credit_block_bytes - 1) / credit_block_bytes;
}

// A control message in 32 bits, as an event carries it.
struct Control {
  enum class Kind : std::uint8_t { none, pause, credit } kind = Kind::none;
  Pause pause;
  CreditUpdate credit;

  std::uint32_t packed() const {
    if (kind == Kind::pause) return 1u << 24 | std::uint32_t{pause.stop} << 8 | pause.go;
    return 2u << 24 | std::uint32_t{credit.lane} << 16 | credit.limit;
  }
  static Control unpacked(std::uint32_t word) {
    Control control;
    if (word >> 24 == 1) {
      control.kind = Kind::pause;
      control.pause = {static_cast<std::uint8_t>(word >> 8), static_cast<std::uint8_t>(word)};
    } else {
      control.kind = Kind::credit;
      control.credit = {static_cast<std::uint8_t>(word >> 16), static_cast<std::uint16_t>(word)};
    }
    return control;
  }
};

}  // namespace tulle::fabric
