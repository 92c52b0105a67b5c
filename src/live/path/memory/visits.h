#pragma once

// The visits of other processes to a process's memory. A visitor notes the owner in its own table
// (live/path/memory/peer_table.h), reads the owner's table, writes to the owner's memory and notes
// that it has left. Before memory goes away, the owner changes its table and then waits until every
// visit that began earlier cannot write any more. A visitor's note is in memory that only the
// visitor can write to, so that no other process can hide a visit.
//
// The owner waits for nobody's good will. A visitor writes by a restartable call
// (live/path/memory/restartable_call.h), so one that is stopped, frozen, asleep or dead, as the
// kernel reports, is no longer to be waited for: if it ever resumes, it checks the table again. The
// owner waits only while the visitor may be inside of its system call, and for the timeout
// (`patience`) at most.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

// A visit as a visitor notes it: its thread ID, the owner's slot, and a number that differs from
// one visit to the next. The word of a process that visits nobody is 0. A hostile visitor may note
// anything. That costs the owner `patience`, and harms nobody else.
struct Visit {
  static constexpr std::uint64_t none = 0;

  static std::uint64_t word(std::uint32_t thread_id, std::uint32_t owner_slot,
                            std::uint32_t number) {
    return std::uint64_t{thread_id} << 32 | owner_slot % 256 << 24 | number % (1u << 24);
  }
  static std::uint32_t thread_id(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
  }
  static std::uint32_t owner_slot(std::uint64_t word) { return word >> 24 & 0xFF; }
};

// Returns the calling thread's ID. The kernel is asked once for each thread, and again in a forked
// child.
std::uint32_t own_thread_id();

// One wait of an owner for visits to its slot, of all visitors together.
class VisitWait {
 public:
  static constexpr Time patience = Time::milliseconds(50);

  explicit VisitWait(std::uint32_t own_slot);
  // Waits until the visit that this word notes is over. Returns false if it may still write.
  [[nodiscard]] bool is_over(const std::atomic<std::uint64_t>& visit) const;
  // Returns true if a thread of this number cannot be inside of a visit now.
  static bool cannot_write(std::uint32_t thread_id);

 private:
  std::uint32_t own_slot_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace tulle::live
