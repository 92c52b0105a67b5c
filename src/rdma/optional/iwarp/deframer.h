#pragma once

// Finds the FPDUs in a stream of bytes that may be cut anywhere (RFC 5044 6). An FPDU that has come
// in one part is handed on in place. The parts of others are put together first, since nothing may
// be placed before its CRC is known to be right (RFC 5044 4.4).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "rdma/wire/mpa.h"

namespace tulle::transport::iwarp {

// The next part of a stream: bytes, followed by ghosts, which a simulation does not carry.
struct StreamPart {
  std::span<const std::byte> bytes;
  std::uint32_t ghost_bytes = 0;

  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes.size()) + ghost_bytes; }
};

// A segment as DDP sees it.
struct Ulpdu {
  std::span<const std::byte> bytes;  // the front of the segment, or all of it
  std::uint32_t ghost_bytes = 0;     // ghosts that follow

  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes.size()) + ghost_bytes; }
};

class Deframer {
 public:
  enum class Found : std::uint8_t {
    nothing,    // `part` is used up; more is needed
    ulpdu,      // `out` stays valid until the next call
    bad_crc,    // `out` is the damaged segment; the stream is of no use from here on
    bad_ghost,  // bytes follow ghosts within one FPDU, which no simulation carries
  };

  // Takes an FPDU from the front of `part`. The caller repeats this until nothing is found.
  // `checked` says that the CRC is checked, which is impossible if bytes of the FPDU are ghosts.
  Found next(StreamPart& part, bool checked, Ulpdu& out);

 private:
  static constexpr std::size_t fpdu_bytes_max = wire::mpa::fpdu_bytes(0xFFFF);

  // Returns the length of the FPDU that begins with `bytes`, of which there are at least two.
  static std::uint32_t fpdu_bytes_of(std::span<const std::byte> bytes);
  static Found finish(std::span<const std::byte> bytes, std::uint32_t ghost_bytes, bool checked,
                      Ulpdu& out);
  bool gather(StreamPart& part);

  // The FPDU that has come in part.
  std::unique_ptr<std::byte[]> kept_;  // allocated when the first FPDU comes in parts
  std::uint32_t kept_bytes_ = 0;
  std::uint32_t kept_ghosts_ = 0;  // ghosts behind kept_bytes_
};

}  // namespace tulle::transport::iwarp
