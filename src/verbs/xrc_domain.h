#pragma once

#include <cstdint>

namespace tulle::verbs {

// What may receive for whom (IBTA A14): the shared receive queues that a target queue pair serves
// are those of its domain.
struct XrcDomain {
  std::uint32_t users = 0;  // objects that refer to it
};

}  // namespace tulle::verbs
