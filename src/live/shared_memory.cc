#include "live/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tulle::live {
namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Result<UniqueFd> make_shared_memory(const char* name, std::size_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, size_seals) != 0) {
    return Error{fmt::format("cannot make shared memory ({}): {}", name, std::strerror(errno)),
                 errno};
  }
  return fd;
}

Result<std::size_t> size_of_shared_memory(int fd) {
  struct stat status {};
  // Only memory files have seals, and nobody takes a seal off.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & size_seals) != size_seals || fstat(fd, &status) != 0) {
    return Error{"shared memory must be a memory file whose size is sealed", EINVAL};
  }
  return static_cast<std::size_t>(status.st_size);
}

Result<void*> map_shared_memory(int fd, std::size_t bytes) {
  auto size = size_of_shared_memory(fd);
  if (!size) return size.error();
  if (*size != bytes) {
    return Error{fmt::format("shared memory has {} bytes and not {}", *size, bytes), EINVAL};
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Error{fmt::format("cannot map shared memory: {}", std::strerror(errno)), errno};
  }
  return memory;
}

}  // namespace tulle::live
