#pragma once

// The BTH opcode table (IBTA 9.2.1, table 38). Bits 7:5 are the transport, bits 4:0 the operation.
// The table is computed from the two, so that RC, UC, UD and XRC cannot disagree about the contents
// of an operation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tulle::wire {

enum class TransportClass : std::uint8_t {
  rc = 0x00,
  uc = 0x20,
  rd = 0x40,  // known, not implemented: docs/spec-exceptions.md
  ud = 0x60,
  cnp = 0x80,
  xrc = 0xA0,
  srd = 0xE0,  // Tulle's own, see below
};

enum class Operation : std::uint8_t {
  send_first = 0x00,
  send_middle = 0x01,
  send_last = 0x02,
  send_last_with_immediate = 0x03,
  send_only = 0x04,
  send_only_with_immediate = 0x05,
  write_first = 0x06,
  write_middle = 0x07,
  write_last = 0x08,
  write_last_with_immediate = 0x09,
  write_only = 0x0A,
  write_only_with_immediate = 0x0B,
  read_request = 0x0C,
  read_response_first = 0x0D,
  read_response_middle = 0x0E,
  read_response_last = 0x0F,
  read_response_only = 0x10,
  acknowledge = 0x11,
  atomic_acknowledge = 0x12,
  compare_swap = 0x13,
  fetch_add = 0x14,
  resync = 0x15,  // RD only
  send_last_with_invalidate = 0x16,
  send_only_with_invalidate = 0x17,
  flush = 0x1C,
  atomic_write = 0x1D,
  // SRD only
  skip = 0x18,
};

// An opcode byte as it is in the BTH.
enum class Opcode : std::uint8_t {};

constexpr Opcode opcode(TransportClass transport, Operation operation) {
  return static_cast<Opcode>(static_cast<unsigned>(transport) | static_cast<unsigned>(operation));
}
constexpr TransportClass transport_of(Opcode code) {
  return static_cast<TransportClass>(static_cast<unsigned>(code) & 0xE0u);
}
constexpr Operation operation_of(Opcode code) {
  return static_cast<Operation>(static_cast<unsigned>(code) & 0x1Fu);
}

// The kind of message that a packet belongs to, and the packet's position in it.
enum class Kind : std::uint8_t {
  none,
  send,
  write,
  read_request,
  read_response,
  acknowledge,
  atomic_acknowledge,
  atomic,
  resync,
  flush,
  atomic_write,
  congestion_notification,
  selective_acknowledge,
  skip,
};
enum class Position : std::uint8_t { only, first, middle, last };

// The two opcodes of class cnp: InfiniBand's own notification, a BTH and nothing else (IBTA
// A10.3.2), and RoCE v2's (IBTA A17.9.3).
inline constexpr Opcode infiniband_congestion_notification{0x80};
inline constexpr Opcode congestion_notification{0x81};

// The NACK of selective repeat is Tulle's own. Its opcode comes from the range that IBTA leaves to
// manufacturers (9.2.1, table 38: 0xC0 to 0xFF), so that a reliable connection that does not know
// it drops it.
inline constexpr Opcode selective_acknowledge{0xD1};

// The scalable reliable datagram is Tulle's own too. Its opcodes come from the same range, 0xE0 and
// up, with operations numbered as IBTA's. Its packets say where their payload belongs, so that none
// is first or last.

// The extension headers of an opcode, for those who handle the usual sets first.
enum class Extensions : std::uint8_t { none, reth, aeth, others };

// A row is within one cache line.
struct alignas(32) OpcodeInfo {
  Kind kind = Kind::none;  // none: not an opcode
  Position position = Position::only;
  bool reth = false;
  bool aeth = false;
  bool atomic_eth = false;
  bool atomic_ack_eth = false;
  bool deth = false;
  bool xrceth = false;
  bool immediate = false;
  bool invalidate = false;
  bool feth = false;          // FLUSH extension header, 4 bytes
  bool saeth = false;         // selective acknowledge extension header, 4 bytes
  bool cnp_reserved = false;  // RoCE v2's notification: 16 bytes
  bool srdeth = false;        // SRD's extension headers: rdma/wire/srd.h
  bool srd_qkey = false;
  bool srd_segment = false;
  bool srd_ack = false;
  bool payload = false;           // may carry payload
  std::uint8_t header_bytes = 0;  // BTH and extension headers
  Extensions extensions = Extensions::none;

  constexpr bool starts_message() const {
    return position == Position::only || position == Position::first;
  }
  constexpr bool ends_message() const {
    return position == Position::only || position == Position::last;
  }
};

// The table is built at compile time.
extern const std::array<OpcodeInfo, 256> opcode_rows;

// Returns the row of an opcode; its kind is none where IBTA reserves the opcode.
inline const OpcodeInfo& info(Opcode code) { return opcode_rows[static_cast<std::size_t>(code)]; }

// Returns a name for people, like "RC SEND Only", or an empty view for a reserved opcode.
std::string_view name(Opcode code);

}  // namespace tulle::wire
