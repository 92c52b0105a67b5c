#include "rdma/optional/iwarp/deframer.h"

#include <algorithm>
#include <cstring>

namespace tulle::transport::iwarp {

namespace mpa = wire::mpa;

std::uint32_t Deframer::fpdu_bytes_of(std::span<const std::byte> bytes) {
  return mpa::fpdu_bytes(std::to_integer<std::uint32_t>(bytes[0]) << 8 |
                         std::to_integer<std::uint32_t>(bytes[1]));
}

Deframer::Found Deframer::next(StreamPart& part, bool checked, Ulpdu& out) {
  if (kept_bytes_ == 0 && part.bytes.size() >= mpa::length_bytes) {
    const std::uint32_t whole = fpdu_bytes_of(part.bytes);
    if (part.bytes.size() >= whole) {
      const auto fpdu = part.bytes.first(whole);
      part.bytes = part.bytes.subspan(whole);
      return finish(fpdu, 0, checked, out);
    }
    if (part.size() >= whole) {
      const auto fpdu = part.bytes;
      part.bytes = {};
      const auto ghosts = static_cast<std::uint32_t>(whole - fpdu.size());
      part.ghost_bytes -= ghosts;
      return finish(fpdu, ghosts, checked, out);
    }
  }
  if (part.size() == 0) return Found::nothing;
  if (!gather(part)) return Found::bad_ghost;
  if (kept_bytes_ < mpa::length_bytes) return Found::nothing;
  const std::span<const std::byte> bytes(kept_.get(), kept_bytes_);
  if (kept_bytes_ + kept_ghosts_ < fpdu_bytes_of(bytes)) return Found::nothing;
  const std::uint32_t ghosts = kept_ghosts_;
  kept_bytes_ = kept_ghosts_ = 0;
  return finish(bytes, ghosts, checked, out);
}

// Adds to the FPDU that has come in part, up to its end. Returns false if bytes follow ghosts, or
// if ghosts are in the place of the length.
bool Deframer::gather(StreamPart& part) {
  if (kept_ == nullptr) kept_ = std::make_unique<std::byte[]>(fpdu_bytes_max);
  while (part.size() > 0) {
    const std::uint32_t wanted =
        kept_bytes_ < mpa::length_bytes
            ? mpa::length_bytes
            : fpdu_bytes_of(std::span<const std::byte>(kept_.get(), kept_bytes_));
    const std::uint32_t missing = wanted - kept_bytes_ - kept_ghosts_;
    if (missing == 0) return true;
    if (part.bytes.empty()) {
      if (kept_bytes_ < mpa::length_bytes) return false;
      const std::uint32_t ghosts = std::min(missing, part.ghost_bytes);
      kept_ghosts_ += ghosts;
      part.ghost_bytes -= ghosts;
      continue;
    }
    if (kept_ghosts_ > 0) return false;
    const std::size_t count = std::min<std::size_t>(missing, part.bytes.size());
    std::memcpy(kept_.get() + kept_bytes_, part.bytes.data(), count);
    kept_bytes_ += static_cast<std::uint32_t>(count);
    part.bytes = part.bytes.subspan(count);
  }
  return true;
}

Deframer::Found Deframer::finish(std::span<const std::byte> bytes, std::uint32_t ghost_bytes,
                                 bool checked, Ulpdu& out) {
  const std::uint32_t whole = fpdu_bytes_of(bytes);
  const std::uint32_t length =
      std::to_integer<std::uint32_t>(bytes[0]) << 8 | std::to_integer<std::uint32_t>(bytes[1]);
  const auto there =
      std::min<std::uint32_t>(length, static_cast<std::uint32_t>(bytes.size()) - mpa::length_bytes);
  out = {bytes.subspan(mpa::length_bytes, there), length - there};
  if (!checked || ghost_bytes > 0) return Found::ulpdu;
  mpa::Crc crc;
  crc.update(bytes.first(whole - mpa::crc_bytes));
  const auto told = mpa::take_crc(bytes.last<mpa::crc_bytes>());
  return crc.value() == told ? Found::ulpdu : Found::bad_crc;
}

}  // namespace tulle::transport::iwarp
