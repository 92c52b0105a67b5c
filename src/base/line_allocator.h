#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace tulle {

// Allocates memory that begins at a cache line, for a vector whose elements are written right after
// it has grown: resize() leaves them as they are, in place of clearing them.
template <typename Value>
struct LineAllocator {
  using value_type = Value;
  static constexpr std::align_val_t line{64};

  LineAllocator() = default;
  template <typename Other>
  explicit LineAllocator(const LineAllocator<Other>& /*other*/) {}

  Value* allocate(std::size_t count) {
    return static_cast<Value*>(::operator new(count * sizeof(Value), line));
  }
  void deallocate(Value* values, std::size_t /*count*/) { ::operator delete(values, line); }

  template <typename Other>
  void construct(Other* at) {
    ::new (static_cast<void*>(at)) Other;
  }
  template <typename Other, typename... Arguments>
  void construct(Other* at, Arguments&&... arguments) {
    ::new (static_cast<void*>(at)) Other(std::forward<Arguments>(arguments)...);
  }

  bool operator==(const LineAllocator& /*other*/) const { return true; }
};

}  // namespace tulle
