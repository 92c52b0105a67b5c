#pragma once

// Finds the FPDUs in a stream of bytes that may be cut anywhere (RFC 5044 6). One that lies whole
// in what has come is handed on where it lies; of others the parts are put together first, since
// nothing may be placed before its CRC is known to be right (RFC 5044 4.4).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/mpa.h"

namespace tulle::transport::iwarp {

// Some of a stream, in order: bytes, and then such as a simulation does not carry.
struct StreamPart {
  std::span<const std::byte> bytes;
  std::uint32_t ghost_bytes = 0;

  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes.size()) + ghost_bytes; }
};

// A segment as DDP sees it.
struct Ulpdu {
  std::span<const std::byte> bytes;  // its front, or all of it
  std::uint32_t ghost_bytes = 0;     // that follow

  std::uint32_t size() const { return static_cast<std::uint32_t>(bytes.size()) + ghost_bytes; }
};

class Deframer {
 public:
  enum class Found : std::uint8_t {
    nothing,    // `part` is used up; more is needed
    ulpdu,      // `out` is good until the next call
    bad_crc,    // `out` is what should have been; the stream is of no use from here on
    bad_ghost,  // bytes behind ghosts within one FPDU: not a stream that a simulation carries
  };

  // Takes from the front of `part`, to be called again until it finds nothing. `checked`: the
  // FPDU's CRC is looked at; it cannot be where bytes of it are ghosts.
  Found next(StreamPart& part, bool checked, Ulpdu& out);

 private:
  static constexpr std::size_t fpdu_bytes_max = wire::mpa::fpdu_bytes(0xFFFF);

  // Of the FPDU that begins with `bytes`, of which there are at least two.
  static std::uint32_t fpdu_bytes_of(std::span<const std::byte> bytes);
  static Found finish(std::span<const std::byte> bytes, std::uint32_t ghost_bytes, bool checked,
                      Ulpdu& out);
  bool gather(StreamPart& part);

  // The FPDU that has come in part.
  std::unique_ptr<std::byte[]> kept_;  // taken when the first comes in parts
  std::uint32_t kept_bytes_ = 0;
  std::uint32_t kept_ghosts_ = 0;  // behind kept_bytes_
};

}  // namespace tulle::transport::iwarp
