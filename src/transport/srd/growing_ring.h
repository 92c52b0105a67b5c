#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"

namespace tulle::transport::srd {

// First in, first out; takes memory only when it holds more than ever before.
template <typename T>
class GrowingRing {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  T& front() {
    TULLE_CHECK(size_ > 0);
    return entries_[head_];
  }
  T& back() {
    TULLE_CHECK(size_ > 0);
    return entries_[(head_ + size_ - 1) & (capacity_ - 1)];
  }
  T& operator[](std::uint32_t i) { return entries_[(head_ + i) & (capacity_ - 1)]; }
  void push(const T& value) {
    if (size_ == capacity_) grow();
    entries_[(head_ + size_++) & (capacity_ - 1)] = value;
  }
  void pop() {
    TULLE_CHECK(size_ > 0);
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  void grow() {
    const std::uint32_t capacity = capacity_ == 0 ? 16 : 2 * capacity_;
    auto entries = std::make_unique<T[]>(capacity);
    for (std::uint32_t i = 0; i < size_; ++i) entries[i] = (*this)[i];
    entries_ = std::move(entries);
    capacity_ = capacity;
    head_ = 0;
  }

  std::unique_ptr<T[]> entries_;
  std::uint32_t capacity_ = 0;  // a power of two
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace tulle::transport::srd
