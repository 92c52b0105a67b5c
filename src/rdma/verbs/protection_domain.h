#pragma once

#include <cstdint>

namespace tulle::verbs {

// A domain within which objects work together (IBTA 10.2.3). A queue pair, region, window or
// address handle belongs to one domain, and only meets objects of the same domain.
struct ProtectionDomain {
  std::uint32_t users = 0;  // objects that refer to it
  void* cookie = nullptr;
};

}  // namespace tulle::verbs
