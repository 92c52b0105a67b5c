#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/check.h"

namespace tulle {

// Elements side by side that never move, of a type that cannot be moved. The capacity is fixed at
// construction.
template <typename T>
class FixedArray {
 public:
  explicit FixedArray(std::size_t capacity)
      : elements_(std::allocator<T>().allocate(capacity)), capacity_(capacity) {}
  ~FixedArray() {
    while (size_ > 0) std::destroy_at(&elements_[--size_]);
    std::allocator<T>().deallocate(elements_, capacity_);
  }
  FixedArray(const FixedArray&) = delete;
  FixedArray& operator=(const FixedArray&) = delete;

  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    TULLE_CHECK(size_ < capacity_);
    T* added = std::construct_at(&elements_[size_], std::forward<Arguments>(arguments)...);
    ++size_;
    return *added;
  }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  T& operator[](std::size_t i) { return elements_[i]; }
  const T& operator[](std::size_t i) const { return elements_[i]; }
  T* begin() { return elements_; }
  T* end() { return elements_ + size_; }

 private:
  T* elements_;
  std::size_t capacity_;
  std::size_t size_ = 0;
};

}  // namespace tulle
