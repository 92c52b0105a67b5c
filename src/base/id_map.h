#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tulle {

// Maps a 32-bit number (a queue pair number, a memory key's index) to a pointer. Open addressing
// with linear probing touches about one cache line per look-up. Only growth allocates memory, so
// that look-ups on the packet path never do.
template <typename T>
class IdMap {
 public:
  T* find(std::uint32_t id) const {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = home(id);; i = next(i)) {
      if (slots_[i].value == nullptr) return nullptr;
      if (slots_[i].id == id) return slots_[i].value;
    }
  }

  // `id` must not be in the map, and `value` must not be null.
  void insert(std::uint32_t id, T* value) {
    TULLE_CHECK(value != nullptr);
    make_room();
    place(id, value);
    ++size_;
  }

  // Makes room for that many more, so that inserting them cannot fail.
  void make_room(std::size_t more = 1) {
    while (slots_.empty() || (size_ + more) * 4 > slots_.size() * 3) grow();
  }

  // Deletes by shifting entries backward. There are no tombstones, so that probes stay short
  // however long objects come and go.
  void erase(std::uint32_t id) {
    std::size_t hole = home(id);
    while (slots_[hole].id != id || slots_[hole].value == nullptr) {
      TULLE_CHECK(slots_[hole].value != nullptr);
      hole = next(hole);
    }
    for (std::size_t i = next(hole); slots_[i].value != nullptr; i = next(i)) {
      const std::size_t distance_to_hole = (i - hole) & (slots_.size() - 1);
      const std::size_t distance_to_home = (i - home(slots_[i].id)) & (slots_.size() - 1);
      if (distance_to_home >= distance_to_hole) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = {};
    --size_;
  }

  std::size_t size() const { return size_; }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.value != nullptr) visit(slot.value);
    }
  }

 private:
  struct Slot {
    std::uint32_t id = 0;
    T* value = nullptr;
  };

  // Fibonacci hashing. Ids are handed out in runs, and runs must not collide.
  std::size_t home(std::uint32_t id) const {
    return static_cast<std::size_t>((id * 0x9E37'79B9'7F4A'7C15ull) >> shift_);
  }
  std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void place(std::uint32_t id, T* value) {
    std::size_t i = home(id);
    while (slots_[i].value != nullptr) {
      TULLE_CHECK(slots_[i].id != id);
      i = next(i);
    }
    slots_[i] = {id, value};
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 8 : slots_.size() * 2);
    old.swap(slots_);
    shift_ = 64;
    for (std::size_t n = slots_.size(); n > 1; n >>= 1) --shift_;
    for (const Slot& slot : old) {
      if (slot.value != nullptr) place(slot.id, slot.value);
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
};

}  // namespace tulle
