// exports() takes any bytes for a shared library's file, and must read nothing outside of them.

#include <cstddef>
#include <cstdint>

#include "shim/exports/exports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)tulle::shim::exports({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
