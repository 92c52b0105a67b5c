#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"

namespace tulle {

// A first-in first-out queue whose capacity is fixed at construction; it never allocates
// afterwards. Entries keep their place while queued, so a pointer to one stays good until it is
// popped.
template <typename T>
class Ring {
 public:
  Ring() = default;
  explicit Ring(std::uint32_t capacity)
      : entries_(capacity > 0 ? std::make_unique<T[]>(capacity) : nullptr), capacity_(capacity) {}

  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == capacity_; }

  // Returns the i-th oldest entry, i in [0, size).
  T& operator[](std::uint32_t i) {
    TULLE_CHECK(i < size_);
    return entries_[slot(i)];
  }
  const T& operator[](std::uint32_t i) const {
    TULLE_CHECK(i < size_);
    return entries_[slot(i)];
  }
  T& front() { return (*this)[0]; }
  T& back() { return (*this)[size_ - 1]; }

  // Appends an entry and returns it. It holds whatever the slot held before.
  T& push() {
    TULLE_CHECK(!full());
    ++size_;
    return back();
  }
  void push(T value) { push() = std::move(value); }
  void pop() {
    TULLE_CHECK(!empty());
    head_ = head_ + 1 == capacity_ ? 0 : head_ + 1;
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  std::uint32_t slot(std::uint32_t i) const {
    const std::uint32_t at = head_ + i;
    return at < capacity_ ? at : at - capacity_;
  }

  std::unique_ptr<T[]> entries_;
  std::uint32_t capacity_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace tulle
