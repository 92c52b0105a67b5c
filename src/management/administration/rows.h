#pragma once

// The records of an answer, one behind the other, each at a multiple of 8 bytes.

#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

namespace tulle::management::administration {

class Rows {
 public:
  static constexpr std::size_t any_count = std::numeric_limits<std::size_t>::max();

  explicit Rows(std::size_t bytes_max, std::size_t count_max = any_count)
      : bytes_max_(bytes_max), count_max_(count_max) {}

  // Returns false if there is no room for more. No more than `count_max` are wanted.
  template <typename Record>
  bool add(const Record& record) {
    if (count_ >= count_max_) return false;
    row_bytes_ = (sizeof record + 7) / 8 * 8;
    if (bytes_.size() + row_bytes_ > bytes_max_) {
      is_full_ = true;
      return false;
    }
    const std::size_t at = bytes_.size();
    bytes_.resize(at + row_bytes_);
    std::memcpy(bytes_.data() + at, &record, sizeof record);
    ++count_;
    return true;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t count() const { return count_; }
  bool is_full() const { return is_full_; }
  bool wants_more() const { return !is_full_ && count_ < count_max_; }

 private:
  std::vector<std::byte> bytes_;
  std::size_t bytes_max_;
  std::size_t count_max_;
  std::size_t row_bytes_ = 0;
  std::size_t count_ = 0;
  bool is_full_ = false;
};

}  // namespace tulle::management::administration
