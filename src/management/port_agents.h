#pragma once

// The one entry to all management agents of a RoCE port. It answers the management datagrams that
// reach the port.

#include "management/answer.h"
#include "management/performance/agent.h"
#include "management/subnet/agent.h"

namespace tulle::management {

// Returns true if the answer will contain counters. Otherwise answer() may be given empty ones.
bool needs_counters(Request request);

// Writes the answer. Returns false if no management agent answers the request.
[[nodiscard]] bool answer(Request request, const subnet::Identity& identity,
                          const performance::Counters& counters, Answer answer);

// The route of a request: to an address that travels with it, or directed hop by hop, as the
// request itself says. A directed route ends at this port or leads on.
enum class Way : std::uint8_t { addressed, directed_here, directed_on };
Way way_of(Request request);

}  // namespace tulle::management
