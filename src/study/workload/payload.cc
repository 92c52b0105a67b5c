#include "study/workload/payload.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.h"

namespace tulle::workload {
namespace {

// Yields the pattern's next eight bytes, the same on every machine.
class Pattern {
 public:
  Pattern(std::uint64_t seed, std::uint32_t flow)
      : random_(Random(seed ^ std::uint64_t{flow} << 32).next()) {}

  std::array<std::byte, 8> next() {
    const std::uint64_t word = random_.next();
    std::array<std::byte, 8> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(word >> (8 * i));
    }
    return bytes;
  }

 private:
  Random random_;
};

}  // namespace

void fill_payload(std::uint64_t seed, std::uint32_t flow, std::span<std::byte> bytes) {
  Pattern pattern(seed, flow);
  while (!bytes.empty()) {
    const auto word = pattern.next();
    const std::size_t count = std::min(bytes.size(), word.size());
    std::memcpy(bytes.data(), word.data(), count);
    bytes = bytes.subspan(count);
  }
}

std::optional<PayloadDifference> check_payload(std::uint64_t seed, std::uint32_t flow,
                                               std::span<const std::byte> bytes) {
  Pattern pattern(seed, flow);
  for (std::size_t at = 0; at < bytes.size();) {
    const auto word = pattern.next();
    const std::size_t count = std::min(bytes.size() - at, word.size());
    if (std::memcmp(bytes.data() + at, word.data(), count) != 0) {
      std::size_t i = 0;
      while (bytes[at + i] == word[i]) ++i;
      return PayloadDifference{at + i, word[i], bytes[at + i]};
    }
    at += count;
  }
  return std::nullopt;
}

}  // namespace tulle::workload
