// Feeds bytes to the reader of the kernel's answer about a route.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "live/agent/source_address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tulle::live::KernelRoute route =
      tulle::live::read_route(std::as_bytes(std::span(data, size)));
  TULLE_CHECK(route.error >= 0);
  TULLE_CHECK(size > sizeof(nlmsghdr) || (!route.source && route.interface_index == 0));
  return 0;
}
