// Feeds bytes to the reader of messages about neighbours.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "live/path/packets/neighbours.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<tulle::live::Neighbour> found;
  tulle::live::read_neighbours(std::as_bytes(std::span(data, size)), found);
  TULLE_CHECK(found.size() <= size / 32);  // a message, an address and a MAC address
  return 0;
}
