#pragma once

#include <cstdint>

namespace tulle::verbs {

// What may touch what (IBTA 10.2.3): a queue pair, region, window or handle belongs to one, and
// only meets its like.
struct ProtectionDomain {
  std::uint32_t users = 0;  // objects that refer to it
  void* cookie = nullptr;
};

}  // namespace tulle::verbs
