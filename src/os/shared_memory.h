#pragma once

// Memory that processes share by a descriptor. Its size is sealed, because a process that maps
// memory whose file another process shortens is killed by SIGBUS.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle {

// Makes memory of zeros whose size nobody can change. Fails with EFBIG if that is more than the
// process may give a file (RLIMIT_FSIZE), and so does the next one.
Result<UniqueFd> make_shared_memory(const char* name, std::size_t bytes);
// Makes memory of zeros that the caller alone can write to, by the address; others can only read
// it, whatever they do with the descriptor.
struct ShownMemory {
  UniqueFd fd;
  void* memory = nullptr;
};
Result<ShownMemory> make_shown_memory(const char* name, std::size_t bytes);
// Maps shared memory. Fails with EINVAL if its size may change, or is not `bytes`.
enum class MapFor : std::uint8_t { reading, reading_and_writing };
Result<void*> map_shared_memory(int fd, std::size_t bytes,
                                MapFor purpose = MapFor::reading_and_writing);
// Maps a part of it for reading, which begins on a page.
struct PartOfMemory {
  std::size_t at = 0;
  std::size_t bytes = 0;
};
Result<void*> map_part_of_shared_memory(int fd, std::size_t bytes, PartOfMemory part);
// Returns the size of shared memory, or an error (EINVAL) if the size may change.
Result<std::size_t> size_of_shared_memory(int fd);

}  // namespace tulle
