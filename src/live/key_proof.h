#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tulle::live {

// Shows a process that has a key that another one has it too, and betrays nothing of it
// (Seal::key_proof). All zeros: there is no key.
using KeyProof = std::array<std::uint8_t, 32>;

// Takes equally long whatever the difference.
inline bool is_same_proof(const KeyProof& a, const KeyProof& b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace tulle::live
