#pragma once

// Adapters whose limits a device can have (`tulle run --like`), so that a program meets them before
// it meets the adapter. A limit is never above the device's own.

#include <cstdint>
#include <string_view>
#include <vector>

#include "rdma/device/limits.h"

namespace tulle::live {

struct Likeness {
  const char* name;         // as people say it: "e810"
  const char* device_name;  // as the adapter's driver names the first device
  std::uint32_t vendor_id;  // IEEE OUI or PCI vendor, as the driver reports it
  std::uint32_t vendor_part_id;
  bool has_atomics;
  // Largest values that the adapter takes.
  std::uint32_t queue_pairs;
  std::uint32_t work_requests;
  std::uint32_t sges;
  std::uint32_t inline_bytes;
  std::uint32_t completion_entries;
  std::uint32_t shared_receive_queues;

  // Returns limits that are at most these.
  device::Limits limit(device::Limits limits) const;
};

// Returns null if there is none of that name.
const Likeness* find_likeness(std::string_view name);
std::vector<std::string_view> likeness_names();

}  // namespace tulle::live
