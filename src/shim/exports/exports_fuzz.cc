// Any bytes at all are taken for a shared library's file, and nothing outside of them is read.

#include <cstddef>
#include <cstdint>

#include "shim/exports/exports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)tulle::shim::exports({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
