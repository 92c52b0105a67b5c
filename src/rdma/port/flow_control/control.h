#pragma once

// Messages of flow control between the two ends of a link.

#include <cstdint>

namespace tulle::port {

// A priority-based flow control frame (IEEE 802.1Qbb). The classes in `stop` must stop, and those
// in `go` may continue (a pause time of zero). The frame changes nothing for the other classes.
struct Pause {
  std::uint8_t stop = 0;
  std::uint8_t go = 0;
};

// Bytes of a pause frame on the link: 64 bytes, plus preamble and gap.
inline constexpr std::uint32_t pause_link_bytes = 64 + 20;

// A flow control packet for one virtual lane (IBTA 7.9). Totals count blocks of 64 bytes and have
// 12 bits.
struct CreditUpdate {
  std::uint8_t lane = 0;
  std::uint16_t limit = 0;  // FCCL: the total number of blocks that the sender may have sent
};
inline constexpr std::uint32_t credit_block_bytes = 64;
inline constexpr std::uint32_t credit_mask = 0xFFF;
// Bytes of a flow control packet on the link: 6 bytes with its CRC, and the two symbols that
// delimit it (IBTA 7.9.4, 5.3).
inline constexpr std::uint32_t credit_update_link_bytes = 8;

constexpr std::uint32_t blocks_of(std::uint32_t bytes) {
  return (bytes + credit_block_bytes - 1) / credit_block_bytes;
}

// A control message. An event carries it packed into 32 bits.
struct Control {
  enum class Kind : std::uint8_t { none, pause, credit } kind = Kind::none;
  Pause pause;
  CreditUpdate credit;

  static Control of(Pause pause) { return {Kind::pause, pause, {}}; }
  static Control of(CreditUpdate credit) { return {Kind::credit, {}, credit}; }

  std::uint32_t packed() const {
    if (kind == Kind::pause) return 1u << 24 | std::uint32_t{pause.stop} << 8 | pause.go;
    return 2u << 24 | std::uint32_t{credit.lane} << 16 | credit.limit;
  }
  static Control unpacked(std::uint32_t word) {
    if (word >> 24 == 1) {
      return of(Pause{static_cast<std::uint8_t>(word >> 8), static_cast<std::uint8_t>(word)});
    }
    return of(
        CreditUpdate{static_cast<std::uint8_t>(word >> 16), static_cast<std::uint16_t>(word)});
  }
};

}  // namespace tulle::port
