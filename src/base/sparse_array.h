#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tulle {

// Elements side by side that never move, of a type that need not be movable. Each has its place
// from the start, and is made later or not at all. The memory of an element that is missing is not
// touched, so that the system gives none for whole pages of them.
template <typename T>
class SparseArray {
 public:
  explicit SparseArray(std::size_t size)
      : elements_(std::allocator<T>().allocate(size)), has_(size) {
    forbid(elements_, size);
  }
  ~SparseArray() {
    for (std::size_t i = size(); i-- > 0;) {
      if (has_[i]) std::destroy_at(&elements_[i]);
    }
    allow(elements_, size());
    std::allocator<T>().deallocate(elements_, size());
  }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  // Makes an element that is missing.
  template <typename... Arguments>
  T& emplace(std::size_t i, Arguments&&... arguments) {
    TULLE_CHECK(i < size() && !has_[i]);
    allow(&elements_[i], 1);
    T* made = std::construct_at(&elements_[i], std::forward<Arguments>(arguments)...);
    has_[i] = true;
    return *made;
  }
  // Returns the number of places, with or without an element.
  std::size_t size() const { return has_.size(); }
  bool has(std::size_t i) const { return i < size() && has_[i]; }
  // The element must be there.
  T& operator[](std::size_t i) {
    TULLE_CHECK(has(i));
    return elements_[i];
  }
  const T& operator[](std::size_t i) const {
    TULLE_CHECK(has(i));
    return elements_[i];
  }
  // Returns all places, for callers that know which elements are there. With AddressSanitizer, an
  // access to another one is reported.
  std::span<T> places() { return {elements_, size()}; }
  // Calls a function with each element that is there, in order.
  template <typename Function>
  void for_each(Function function) const {
    for (std::size_t i = 0; i < size(); ++i) {
      if (has_[i]) function(std::as_const(elements_[i]));
    }
  }
  template <typename Function>
  void for_each(Function function) {
    for (std::size_t i = 0; i < size(); ++i) {
      if (has_[i]) function(elements_[i]);
    }
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static void forbid(T* first, std::size_t count) {
    __asan_poison_memory_region(first, count * sizeof(T));
  }
  static void allow(T* first, std::size_t count) {
    __asan_unpoison_memory_region(first, count * sizeof(T));
  }
#else
  static void forbid(T*, std::size_t) {}
  static void allow(T*, std::size_t) {}
#endif

  T* elements_;
  std::vector<bool> has_;
};

}  // namespace tulle
