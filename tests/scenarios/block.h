#pragma once

// Memory that a scenario registers, between guard bytes, with a copy of the contents that it should
// have by now. If a request failed half-way, the network may or may not have written its bytes. The
// block keeps these as a doubt: each byte is the old or the new one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "rdma/verbs/memory.h"
#include "tests/scenarios/plan.h"

namespace tulle::scenarios {

class Block {
 public:
  // Reserves `bytes`, with a gap before the next reservation, and returns their offset. Must come
  // before `build`.
  std::uint32_t reserve(Random& random, std::uint32_t bytes, std::uint32_t alignment = 1);
  // Reserves `bytes` in at most `pieces` pieces of random sizes.
  std::vector<Piece> reserve_pieces(Random& random, std::uint32_t bytes, std::uint32_t pieces);
  void build(Random& random);

  std::byte* data() { return actual_.data() + guard_bytes; }
  std::uint32_t size() const { return reserved_; }
  std::byte* at(std::uint32_t offset) { return data() + offset; }
  std::uint64_t address(std::uint32_t offset) const { return iova + offset; }

  // The application writes new random bytes.
  void scribble(Random& random, const Piece& piece);
  void scribble(Random& random, std::span<const Piece> pieces);
  // The network must have written these bytes by now.
  void expect(std::uint32_t offset, std::span<const std::byte> bytes);
  void expect(std::span<const Piece> pieces, std::span<const std::byte> bytes);
  // The network may write each of these bytes from now on, or may have written it already.
  void doubt(std::uint32_t offset, std::vector<std::byte> bytes);
  // Accepts the current contents if each byte is the expected one or that of `bytes`; the current
  // contents are then expected. Returns false otherwise.
  [[nodiscard]] bool settle(std::span<const Piece> pieces, std::span<const std::byte> bytes);

  std::vector<std::byte> gather(std::span<const Piece> pieces);
  bool holds(std::uint32_t offset, std::span<const std::byte> bytes);
  bool holds(std::span<const Piece> pieces, std::span<const std::byte> bytes);
  bool as_expected(const Piece& piece) const;
  // Describes the first byte, guards included, that differs from the expected one. Empty if none
  // does.
  std::optional<std::string> difference();

  std::uint64_t iova = 0;
  verbs::MemoryRegion* region = nullptr;

 private:
  static constexpr std::uint32_t guard_bytes = 256;
  struct Doubt {
    std::uint32_t offset;
    std::vector<std::byte> bytes;
  };

  std::uint32_t reserved_ = 0;
  std::vector<std::byte> actual_;
  std::vector<std::byte> expected_;
  std::vector<Doubt> doubts_;
};

void fill(Random& random, std::span<std::byte> bytes);

}  // namespace tulle::scenarios
