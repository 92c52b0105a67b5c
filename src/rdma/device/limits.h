#pragma once

#include <cstdint>

#include "rdma/verbs/tag_list.h"

namespace tulle::device {

// The limits that the device offers. The shim reports exactly these.
struct Limits {
  std::uint32_t queue_pairs = 16'384;
  std::uint32_t work_requests = 32'768;  // per queue
  std::uint32_t sges = 16;
  std::uint32_t inline_bytes = 1'024;
  std::uint32_t protection_domains = 1u << 20;
  std::uint32_t address_handles = 1u << 20;
  std::uint32_t completion_queues = 65'536;
  std::uint32_t completion_entries = 1u << 20;
  std::uint32_t memory_regions = 1u << 20;
  std::uint32_t memory_windows = 1u << 20;
  std::uint32_t shared_receive_queues = 16'384;
  std::uint32_t read_atomic_depth = 16;
  std::uint64_t region_bytes = 1ull << 46;
  // Limits of a shared receive queue with tag matching. Operations are done at once, so that none
  // is ever outstanding. The number of operations is what programs may request.
  std::uint32_t tags = verbs::TagList::entries_max;
  std::uint32_t tag_sges = verbs::TagList::sges_per_entry;
  std::uint32_t tag_operations = 1'024;
};

}  // namespace tulle::device
