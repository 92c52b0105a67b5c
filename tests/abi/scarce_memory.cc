#include "scarce_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tulle::scarce_memory {
namespace {

// Atomic, because every thread allocates.
std::atomic<std::int64_t> live = 0;
std::atomic<std::uint64_t> left = 0;  // allocations up to the one that fails; 0: none fails
std::atomic<bool> has_failed = false;
std::atomic<Mode> failing = Mode::one_fails;
std::atomic<Threads> who = Threads::this_one;
thread_local bool is_tested = false;

bool fails() {
  if (left.load() == 0 || (who.load() == Threads::this_one && !is_tested)) return false;
  if (has_failed.load()) return failing.load() == Mode::all_fail;
  if (left.fetch_sub(1) > 1) return false;
  left.store(1);
  has_failed.store(true);
  return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) return nullptr;
  const std::size_t room = (bytes + alignment) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, room);
  if (memory != nullptr) live.fetch_add(1);
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  live.fetch_sub(1);
  std::free(memory);
}

}  // namespace

void fail_at(std::uint64_t n, Mode mode, Threads threads) {
  has_failed = false;
  failing = mode;
  who = threads;
  is_tested = true;
  left = n;
}

bool is_plenty() {
  left = 0;
  is_tested = false;
  return has_failed;
}

std::int64_t allocations() { return live; }

}  // namespace tulle::scarce_memory

namespace {

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = tulle::scarce_memory::allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return tulle::scarce_memory::allocate(bytes, usual);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return tulle::scarce_memory::allocate(bytes, usual);
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return tulle::scarce_memory::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return tulle::scarce_memory::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { tulle::scarce_memory::release(memory); }
void operator delete[](void* memory) noexcept { tulle::scarce_memory::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { tulle::scarce_memory::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  tulle::scarce_memory::release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  tulle::scarce_memory::release(memory);
}
// NOLINTEND(misc-new-delete-overloads)
