#pragma once

// A first-in first-out queue that doubles its memory when it is full. Its capacity settles at the
// most that it has ever held, so that packets stop costing allocations.

#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"

namespace tulle {

template <typename T>
class GrowingRing {
 public:
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  // Returns the i-th oldest entry.
  T& operator[](std::uint32_t i) {
    TULLE_CHECK(i < size_);
    return entries_[(head_ + i) & (capacity_ - 1)];
  }
  const T& operator[](std::uint32_t i) const {
    TULLE_CHECK(i < size_);
    return entries_[(head_ + i) & (capacity_ - 1)];
  }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }
  T& push(T value) {
    if (size_ == capacity_) grow(size_ + 1);
    ++size_;
    return back() = std::move(value);
  }
  void pop() {
    TULLE_CHECK(!empty());
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }
  void clear() { head_ = size_ = 0; }
  // Makes room for that many entries, so that pushing them cannot fail.
  void reserve(std::uint32_t entries) {
    if (entries > capacity_) grow(entries);
  }
  template <typename Predicate>
  void erase_if(Predicate predicate) {
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < size_; ++i) {
      if (predicate((*this)[i])) continue;
      if (kept != i) (*this)[kept] = std::move((*this)[i]);
      ++kept;
    }
    size_ = kept;
  }

 private:
  void grow(std::uint32_t wanted) {
    std::uint32_t capacity = capacity_ == 0 ? 16 : 2 * capacity_;
    while (capacity < wanted) capacity *= 2;
    auto entries = std::make_unique<T[]>(capacity);
    for (std::uint32_t i = 0; i < size_; ++i) entries[i] = std::move((*this)[i]);
    entries_ = std::move(entries);
    capacity_ = capacity;
    head_ = 0;
  }

  std::unique_ptr<T[]> entries_;
  std::uint32_t capacity_ = 0;  // a power of two
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace tulle
