#pragma once

// The program's memory into which the peer of a stream may write where it wants, or from which the
// program only wants to be told: registered, and announced by the protocol.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "shim/rsockets/protocol/stream_maps.h"
#include "shim/rsockets/sockets/device.h"

namespace tulle::rsockets {

class MappedMemory {
 public:
  // Registers memory and notes it in `maps`. An offset of -1 means that the memory's address is its
  // offset. Returns 0 or an errno.
  int map(QueuePair& queue_pair, StreamMaps& maps, std::span<std::byte> memory, bool is_writable,
          std::int64_t& offset);
  // Returns EINVAL if exactly that memory is not mapped.
  int unmap(StreamMaps& maps, std::span<const std::byte> memory);
  void clear() { maps_.clear(); }

 private:
  struct Map {
    std::span<std::byte> memory;
    std::unique_ptr<MemoryRegion> region;
  };
  std::list<Map> maps_;
};

}  // namespace tulle::rsockets
