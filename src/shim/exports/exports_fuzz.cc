// exports() and linking() take any bytes for a file, and must read nothing outside of them.

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/exports/exports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)tulle::shim::exports(bytes);
  (void)tulle::shim::linking(bytes);
  return 0;
}
