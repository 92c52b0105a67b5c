// An administrator of a host's network can send any bytes in the kernel's name. What is read of
// them keeps within its bounds.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "live/fabric/interface_addresses.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  constexpr unsigned bits_max = 128;
  constexpr std::size_t addresses_max = 256;
  live::InterfaceAddresses addresses(1);
  static_cast<void>(addresses.take(std::as_bytes(std::span(data, size))));
  TULLE_CHECK(addresses.addresses().size() <= addresses_max);
  for (const auto& address : addresses.addresses()) {
    TULLE_CHECK(address.prefix_bits <= bits_max);
  }
  return 0;
}
