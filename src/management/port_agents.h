#pragma once

// All agents of a RoCE port, behind one door: what a management datagram that reaches the port is
// answered with.

#include "management/answer.h"
#include "management/performance/agent.h"
#include "management/subnet/agent.h"

namespace tulle::management {

// Whether the answer will tell of counters; if not, `answer` may be given none.
bool needs_counters(Request request);

// False: nobody answers it.
[[nodiscard]] bool answer(Request request, const subnet::Identity& identity,
                          const performance::Counters& counters, Answer answer);

// How it finds its way: by the address beside it, or hop by hop, as it says itself; then whether
// the way ends here.
enum class Way : std::uint8_t { addressed, directed_here, directed_on };
Way way_of(Request request);

}  // namespace tulle::management
