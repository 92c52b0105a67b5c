#pragma once

// The visits of other processes to a process's memory. A visitor notes that it comes, looks at the
// owner's table, writes to the owner's memory and notes that it has left. Before memory goes away,
// the owner changes its table and then waits until every visit that began earlier cannot write any
// more.
//
// The owner waits for nobody's good will. A visitor writes by a restartable call
// (live/path/memory/restartable_call.h), so one that is stopped, frozen, asleep or dead, as the
// kernel reports, is no longer to be waited for: if it ever goes on, it looks at the table again.
// The owner waits only while the visitor may be inside of its system call, and for patience at
// most.

#include <array>
#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

// Shared memory that every process of the same user may write to. Nobody trusts a word of it beyond
// what visits need: a wrong word costs the owner `patience`, and the visitor nothing.
struct VisitPage {
  static constexpr std::size_t slots = 256;  // at least one for each slot of the host
  // The visitor of each slot: its thread ID in the upper half and a number in the lower half that
  // differs for each visit; 0 outside of visits.
  std::array<std::atomic<std::uint64_t>, slots> visitors{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Visits {
 public:
  static constexpr Time patience = Time::milliseconds(50);

  explicit Visits(VisitPage& page) : page_(page) {}

  // Called when the table has changed. Returns false if a visit that began earlier may still write.
  [[nodiscard]] bool wait_until_over();

 private:
  VisitPage& page_;
};

}  // namespace tulle::live
