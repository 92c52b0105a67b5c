#include "os/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tulle {
namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif

Error cannot_make(const char* name, int error) {
  return {fmt::format("cannot make shared memory ({}): {}", name, std::strerror(error)), error};
}

Result<void*> map(int fd, std::size_t bytes, int protection, std::size_t at = 0) {
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED, fd, static_cast<off_t>(at));
  if (memory == MAP_FAILED) {
    return Error{fmt::format("cannot map shared memory: {}", std::strerror(errno)), errno};
  }
  return memory;
}

// A process that makes a file longer than it may gets SIGXFSZ, which ends it.
bool set_size(int fd, std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    return false;
  }
  return ftruncate(fd, static_cast<off_t>(bytes)) == 0;
}

}  // namespace

Result<UniqueFd> make_shared_memory(const char* name, std::size_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !set_size(fd.get(), bytes) || fcntl(fd.get(), F_ADD_SEALS, size_seals) != 0) {
    return cannot_make(name, errno);
  }
  return fd;
}

Result<ShownMemory> make_shown_memory(const char* name, std::size_t bytes) {
  ShownMemory shown{UniqueFd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)), nullptr};
  if (!shown.fd || !set_size(shown.fd.get(), bytes)) {
    return cannot_make(name, errno);
  }
  auto memory = map(shown.fd.get(), bytes, PROT_READ | PROT_WRITE);
  if (!memory) return memory.error();
  shown.memory = *memory;
  // The seal leaves the mapping that is there writable, and allows no other.
  if (fcntl(shown.fd.get(), F_ADD_SEALS, size_seals | F_SEAL_FUTURE_WRITE) != 0) {
    const Error error = cannot_make(name, errno);
    munmap(shown.memory, bytes);
    return error;
  }
  return shown;
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

namespace {

Result<void> check_size(int fd, std::size_t bytes) {
  auto size = size_of_shared_memory(fd);
  if (!size) return size.error();
  if (*size == bytes) return {};
  return Error{fmt::format("shared memory has {} bytes and not {}", *size, bytes), EINVAL};
}

}  // namespace

Result<void*> map_shared_memory(int fd, std::size_t bytes, MapFor purpose) {
  if (auto is_right = check_size(fd, bytes); !is_right) return is_right.error();
  return map(fd, bytes, purpose == MapFor::reading ? PROT_READ : PROT_READ | PROT_WRITE);
}

Result<void*> map_part_of_shared_memory(int fd, std::size_t bytes, PartOfMemory part) {
  if (auto is_right = check_size(fd, bytes); !is_right) return is_right.error();
  return map(fd, part.bytes, PROT_READ, part.at);
}

}  // namespace tulle
