#pragma once

// The components of a record: a question has some of them, and asks for the records that are the
// same there (IBTA 15.2.1.1, 15.4.4).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tulle::management::administration {

// The place of a component in its record, in bits.
struct Component {
  std::uint16_t offset = 0;
  std::uint16_t bits = 0;
};

// Returns the components of a kind of record in the order of their bits in the mask. Bits beyond
// these select nothing.
std::span<const Component> components_of(std::uint16_t attribute);

// Returns true if a record has the same value as the question in each component of the mask.
bool matches(std::span<const Component> components, std::uint64_t mask,
             std::span<const std::byte> question, std::span<const std::byte> record);

template <typename Record>
bool matches(std::span<const Component> components, std::uint64_t mask, const Record& question,
             const Record& record) {
  return matches(components, mask, std::as_bytes(std::span(&question, 1)),
                 std::as_bytes(std::span(&record, 1)));
}

}  // namespace tulle::management::administration
