#pragma once

// A fuzzer's input as a script: the fuzzer takes from it what it needs next, and zeros behind its
// end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tulle::base {

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool is_over() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::uint16_t half() { return static_cast<std::uint16_t>(byte() | byte() << 8); }
  std::uint32_t word() { return half() | std::uint32_t{half()} << 16; }
  std::uint64_t number() { return word() | std::uint64_t{word()} << 32; }
  // Returns a number below `count`, which is at most 256.
  std::uint32_t below(std::uint32_t count) { return byte() % count; }
  bool one_in(std::uint32_t count) { return below(count) == count - 1; }
  // Takes up to `most` bytes. There are fewer if the script ends.
  std::vector<std::byte> bytes(std::size_t most) {
    const auto taken = std::as_bytes(rest_.first(std::min(most, rest_.size())));
    rest_ = rest_.subspan(taken.size());
    return {taken.begin(), taken.end()};
  }
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace tulle::base
