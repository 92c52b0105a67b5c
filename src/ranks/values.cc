#include "ranks/values.h"

#include <algorithm>

namespace tulle::ranks {
namespace {

using workload::Collective;

constexpr Value nobodys = -1;

// Compares a part of a buffer with what one rank has from an index of its input on.
std::uint64_t differing(std::span<const Value> values, std::uint32_t rank, std::uint64_t index,
                        std::uint32_t iteration) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    wrong += values[i] != input_of(rank, index + i, iteration) ? 1 : 0;
  }
  return wrong;
}

// Compares a part of a buffer, which begins at that index, with the sum of all ranks' inputs.
std::uint64_t differing_from_sum(std::span<const Value> values, std::uint64_t index,
                                 std::uint32_t ranks, std::uint32_t iteration) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    Value sum = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += input_of(rank, index + i, iteration);
    wrong += values[i] != sum ? 1 : 0;
  }
  return wrong;
}

}  // namespace

Value input_of(std::uint32_t rank, std::uint64_t index, std::uint32_t iteration) {
  // The constants are those of xxHash, and of a mixer with little bias (Wellons, "Prospecting for
  // Hash Functions", 2018).
  auto mixed = static_cast<std::uint32_t>(index) * 0x9E37'79B1u + rank * 0x85EB'CA77u +
               iteration * 0xC2B2'AE3Du + 1;
  mixed ^= mixed >> 16;
  mixed *= 0x7FEB'352Du;
  mixed ^= mixed >> 15;
  return static_cast<Value>(mixed >> 16);
}

void fill(std::span<Value> buffer, std::span<Value> second, std::uint32_t rank,
          std::uint32_t iteration) {
  for (std::uint64_t i = 0; i < buffer.size(); ++i) buffer[i] = input_of(rank, i, iteration);
  std::ranges::fill(second, nobodys);
}

void add(Value* into, const Value* values, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) into[i] += values[i];
}

std::uint64_t count_wrong(const Plan& plan, std::span<const Value> buffer,
                          std::span<const Value> second, std::uint32_t rank,
                          std::uint32_t iteration) {
  if (!plan.collective) return 0;
  const std::uint32_t ranks = plan.graph.ranks();
  const std::uint64_t part = plan.buffer_bytes / sizeof(Value) / ranks;
  std::uint64_t wrong = 0;
  switch (*plan.collective) {
    case Collective::all_reduce:
      return differing_from_sum(buffer, 0, ranks, iteration);
    case Collective::reduce_scatter: {
      const std::uint64_t own = plan.pieces.part[rank] * part;
      return differing_from_sum(buffer.subspan(own, part), own, ranks, iteration);
    }
    case Collective::broadcast:
      return differing(buffer, 0, 0, iteration);
    case Collective::all_gather:
      for (std::uint32_t owner = 0; owner < ranks; ++owner) {
        const std::uint64_t at = plan.pieces.part[owner] * part;
        wrong += differing(buffer.subspan(at, part), owner, at, iteration);
      }
      return wrong;
    case Collective::all_to_all:
      for (std::uint32_t sender = 0; sender < ranks; ++sender) {
        if (sender == rank) continue;  // nobody sends to itself
        wrong += differing(second.subspan(sender * part, part), sender, rank * part, iteration);
      }
      return wrong;
  }
  return wrong;
}

}  // namespace tulle::ranks
