#pragma once

#include <cstdint>

namespace tulle::verbs {

// An extended reliable connection domain (IBTA A14). A target queue pair serves the shared receive
// queues in its domain.
struct XrcDomain {
  std::uint32_t users = 0;  // objects that refer to it
};

}  // namespace tulle::verbs
