#include "tests/scenarios/block.h"

#include <algorithm>
#include <cstring>

namespace tulle::scenarios {

void fill(Random& random, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t word = random.next();
    const std::size_t count = std::min(bytes.size(), sizeof word);
    std::memcpy(bytes.data(), &word, count);
    bytes = bytes.subspan(count);
  }
}

std::uint32_t Block::reserve(Random& random, std::uint32_t bytes, std::uint32_t alignment) {
  const std::uint32_t offset = (reserved_ + alignment - 1) / alignment * alignment;
  reserved_ = offset + bytes + 1 + static_cast<std::uint32_t>(random.below(32));
  return offset;
}

std::vector<Piece> Block::reserve_pieces(Random& random, std::uint32_t bytes,
                                         std::uint32_t pieces) {
  std::vector<Piece> out;
  const std::uint64_t count = 1 + random.below(pieces);
  std::uint32_t left = bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const auto part = last ? left : static_cast<std::uint32_t>(random.below(left + 1));
    out.push_back({reserve(random, part), part});
    left -= part;
  }
  return out;
}

void Block::build(Random& random) {
  reserved_ = std::max(reserved_, 1u);
  actual_.resize(reserved_ + 2 * guard_bytes);
  fill(random, actual_);
  expected_ = actual_;
  // The iova is not the memory's real address, which differs from run to run.
  iova = (random.next() >> 20) << 12;
}

void Block::scribble(Random& random, const Piece& piece) {
  fill(random, {at(piece.offset), piece.bytes});
  std::memcpy(expected_.data() + guard_bytes + piece.offset, at(piece.offset), piece.bytes);
}

void Block::scribble(Random& random, std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) scribble(random, piece);
}

void Block::expect(std::uint32_t offset, std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), expected_.begin() + guard_bytes + offset);
}

void Block::expect(std::span<const Piece> pieces, std::span<const std::byte> bytes) {
  for (const Piece& piece : pieces) {
    const std::size_t count = std::min<std::size_t>(piece.bytes, bytes.size());
    expect(piece.offset, bytes.first(count));
    bytes = bytes.subspan(count);
  }
}

void Block::doubt(std::uint32_t offset, std::vector<std::byte> bytes) {
  doubts_.push_back({offset, std::move(bytes)});
}

bool Block::settle(std::span<const Piece> pieces, std::span<const std::byte> bytes) {
  auto rest = bytes;
  for (const Piece& piece : pieces) {
    const std::size_t count = std::min<std::size_t>(piece.bytes, rest.size());
    for (std::uint32_t i = 0; i < piece.bytes; ++i) {
      const std::byte actual = *at(piece.offset + i);
      const std::byte expected = expected_[guard_bytes + piece.offset + i];
      if (actual != expected && (i >= count || actual != rest[i])) return false;
    }
    rest = rest.subspan(count);
  }
  for (const Piece& piece : pieces) expect(piece.offset, {at(piece.offset), piece.bytes});
  return true;
}

std::vector<std::byte> Block::gather(std::span<const Piece> pieces) {
  std::vector<std::byte> out;
  for (const Piece& piece : pieces) {
    out.insert(out.end(), at(piece.offset), at(piece.offset) + piece.bytes);
  }
  return out;
}

bool Block::holds(std::uint32_t offset, std::span<const std::byte> bytes) {
  return bytes.empty() || std::memcmp(at(offset), bytes.data(), bytes.size()) == 0;
}

bool Block::holds(std::span<const Piece> pieces, std::span<const std::byte> bytes) {
  for (const Piece& piece : pieces) {
    const std::size_t count = std::min<std::size_t>(piece.bytes, bytes.size());
    if (!holds(piece.offset, bytes.first(count))) return false;
    bytes = bytes.subspan(count);
  }
  return bytes.empty();
}

bool Block::as_expected(const Piece& piece) const {
  const auto from = guard_bytes + piece.offset;
  return std::equal(actual_.begin() + from, actual_.begin() + from + piece.bytes,
                    expected_.begin() + from);
}

std::optional<std::string> Block::difference() {
  for (const Doubt& doubt : doubts_) {
    const Piece piece{doubt.offset, static_cast<std::uint32_t>(doubt.bytes.size())};
    // Bytes that two requests may write can be doubted twice. The later doubt then decides.
    (void)settle({&piece, 1}, doubt.bytes);
  }
  doubts_.clear();
  const auto at = std::mismatch(actual_.begin(), actual_.end(), expected_.begin()).first;
  if (at == actual_.end()) return std::nullopt;
  const auto offset = at - actual_.begin() - static_cast<std::ptrdiff_t>(guard_bytes);
  return "byte " + std::to_string(offset) + " of " + std::to_string(reserved_) + " is " +
         std::to_string(std::to_integer<int>(*at)) + " and should be " +
         std::to_string(std::to_integer<int>(expected_[offset + guard_bytes]));
}

}  // namespace tulle::scenarios
