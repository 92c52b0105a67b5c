#pragma once

// Values in a row as bytes, for what processes of one program on one kind of machine tell each
// other. The bytes are those of memory, so that neither files nor strangers may have them.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/line_allocator.h"

namespace tulle {

using Bytes = std::vector<std::byte, LineAllocator<std::byte>>;

template <typename Value>
concept Packable = std::is_trivially_copyable_v<Value>;

class Packer {
 public:
  explicit Packer(Bytes& bytes) : bytes_(bytes) {}

  template <Packable Value>
  void add(const Value& value) {
    add_all(std::span(&value, 1));
  }
  // Adds values without their number.
  template <Packable Value>
  void add_all(std::span<const Value> values) {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + before, values.data(), values.size_bytes());
  }
  // Adds values behind their number.
  template <Packable Value>
  void add_list(const std::vector<Value>& values) {
    add(std::uint64_t{values.size()});
    add_all(std::span(values));
  }

 private:
  Bytes& bytes_;
};

// Takes what a Packer has added, in the same order. Each function returns false, and takes nothing,
// if there are not so many bytes left.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : left_(bytes) {}

  template <Packable Value>
  [[nodiscard]] bool take(Value& value) {
    return take_raw(&value, sizeof value);
  }
  // Appends so many values.
  template <Packable Value>
  [[nodiscard]] bool take_all(std::uint64_t count, std::vector<Value>& values) {
    if (count > left_.size() / sizeof(Value)) return false;
    const std::size_t before = values.size();
    values.resize(before + count);
    return take_raw(values.data() + before, count * sizeof(Value));
  }
  template <Packable Value>
  [[nodiscard]] bool take_list(std::vector<Value>& values) {
    const std::span<const std::byte> before = left_;
    std::uint64_t count = 0;
    values.clear();
    if (take(count) && take_all(count, values)) return true;
    left_ = before;
    return false;
  }
  bool is_empty() const { return left_.empty(); }

 private:
  bool take_raw(void* to, std::size_t bytes) {
    if (bytes > left_.size()) return false;
    if (bytes > 0) std::memcpy(to, left_.data(), bytes);
    left_ = left_.subspan(bytes);
    return true;
  }

  std::span<const std::byte> left_;
};

}  // namespace tulle
