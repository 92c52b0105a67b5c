#include "live/path/memory/region_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/guarded_access.h"
#include "live/path/memory/mappings.h"
#include "live/shared_memory.h"

namespace tulle::live {
namespace {

// No more memory than this is in use twice while pages move.
constexpr std::uint64_t step_bytes = std::uint64_t{4} << 20;

std::byte* at_address(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool is_zero(const std::byte* page) {
  return page[0] == std::byte{} && std::memcmp(page, page + 1, region_page_bytes - 1) == 0;
}

// A handler that runs in this thread could write to a page that has just been copied.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

// Writes the pages to the start of their place in the file. Neither allocates nor locks.
bool write_pages(int fd, std::uint64_t file_at, const std::byte* memory, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes;) {
    std::uint64_t end = at;
    while (end < bytes && !is_zero(memory + end)) end += region_page_bytes;
    while (at < end) {
      const ssize_t written = pwrite(fd, memory + at, end - at, static_cast<off_t>(file_at + at));
      if (written <= 0) return false;
      at += static_cast<std::uint64_t>(written);
    }
    at += region_page_bytes;  // a page of zeros, or behind the last one
  }
  return true;
}

// Neither allocates nor locks while writers are held back.
bool move_step(const RegionFile& file, PageRange step, WriterHold* hold) {
  std::byte* const memory = at_address(step.begin);
  const std::uint64_t file_at = step.begin - file.pages.begin;
  if (hold != nullptr && !hold->begin(memory, step.bytes())) return false;
  const bool moved = write_pages(file.fd.get(), file_at, memory, step.bytes()) &&
                     mmap(memory, step.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          file.fd.get(), static_cast<off_t>(file_at)) != MAP_FAILED;
  if (hold != nullptr) hold->end();
  return moved;
}

bool may_make_file_of(std::uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= bytes;
}

// Makes the kernel copy the page for this process, without losing what another thread writes to it
// at this moment.
void own_page(std::byte* page) {
#if defined(__x86_64__)
  asm volatile("lock orb $0, %0" : "+m"(*page));
#else
  __atomic_fetch_or(reinterpret_cast<unsigned char*>(page), 0, __ATOMIC_SEQ_CST);
#endif
}

// Copies those pages of the file that have memory; the others are zeros. Returns false if some are
// not there.
bool own_pages(int fd, std::byte* memory, std::uint64_t file_at, std::uint64_t bytes) {
  const std::span<const std::byte> where[] = {{memory, bytes}};
  const auto end = static_cast<off_t>(file_at + bytes);
  for (off_t at = lseek(fd, static_cast<off_t>(file_at), SEEK_DATA); at >= 0 && at < end;) {
    const off_t hole = std::min(lseek(fd, at, SEEK_HOLE), end);
    if (hole <= at) return false;
    std::byte* const first = memory + (static_cast<std::uint64_t>(at) - file_at);
    const auto length = static_cast<std::size_t>(hole - at);
    const bool is_owned = attempt(where, [&] {
      for (std::size_t page = 0; page < length; page += region_page_bytes) own_page(first + page);
    });
    if (!is_owned) return false;
    at = lseek(fd, hole, SEEK_DATA);
  }
  return true;
}

struct OwnMapping {
  PageRange pages;
  std::uint64_t file_at = 0;
  int protection = PROT_NONE;

  bool has_all(int wanted) const { return (protection & wanted) == wanted; }
};

int protection_of(std::string_view rights) {
  return (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0);
}

// Returns where the file is still mapped as it was when its pages moved, or nothing if the kernel
// cannot be asked.
std::optional<std::vector<OwnMapping>> mappings_of(const RegionFile& file) {
  std::vector<OwnMapping> found;
  const bool is_known = for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
    const PageRange pages{std::max(mapping.begin, file.pages.begin),
                          std::min(mapping.end, file.pages.end)};
    if (mapping.inode == file.inode && pages.begin < pages.end && mapping.rights.ends_with('s')) {
      const std::uint64_t file_at = mapping.file_at + (pages.begin - mapping.begin);
      const bool is_in_place = file_at == pages.begin - file.pages.begin;
      if (is_in_place) found.push_back({pages, file_at, protection_of(mapping.rights)});
    }
    return mapping.end < file.pages.end;
  });
  if (!is_known) return {};
  return found;
}

// Returns true if each page of the range is mapped.
bool is_mapped(PageRange pages) {
  return msync(at_address(pages.begin), pages.bytes(), MS_ASYNC) == 0;
}

}  // namespace

Result<RegionFile> move_to_file(PageRange pages, WriterHold* hold) {
  if (!may_make_file_of(pages.bytes())) return Error{"files may not be that long", EFBIG};
  auto fd = make_shared_memory(std::string(region_file_name).c_str(), pages.bytes());
  if (!fd) return fd.error();
  struct stat status {};
  fstat(fd->get(), &status);
  RegionFile file{std::move(*fd), status.st_ino, pages};
  const BlockedSignals blocked;
  std::uint64_t moved = pages.begin;
  while (moved < pages.end) {
    const PageRange step{moved, std::min(moved + step_bytes, pages.end)};
    if (!move_step(file, step, hold)) break;
    moved = step.end;
  }
  if (moved == pages.begin) return Error{"the system does not let the pages move", ENOMEM};
  file.pages.end = moved;
  return file;
}

// The mapping becomes private in one system call, so that no thread's write is lost. Pages that the
// process has not copied yet are the file's, which other processes may still write to. So each page
// is copied, and then the file gives its own pages back. From then on the memory is like any other:
// if the program gives pages up (MADV_DONTNEED), it finds zeros there.
bool move_back(const RegionFile& file) {
  const auto mappings = mappings_of(file);
  if (!mappings) return false;
  std::uint64_t owned = 0;
  for (const OwnMapping& own : *mappings) {
    if (!own.has_all(PROT_READ | PROT_WRITE)) continue;  // these pages stay shared
    std::byte* const memory = at_address(own.pages.begin);
    void* const mapped =
        mmap(memory, own.pages.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             file.fd.get(), static_cast<off_t>(own.file_at));
    if (mapped == MAP_FAILED) continue;
    if (own_pages(file.fd.get(), memory, own.file_at, own.pages.bytes())) {
      owned += own.pages.bytes();
    }
  }
  // The program may have moved pages elsewhere, where they still are the file's.
  if (owned == file.pages.bytes()) {
    fallocate(file.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(owned));
  }
  return true;
}

bool is_in_place(const RegionFile& file) {
  const auto mappings = mappings_of(file);
  std::uint64_t bytes = 0;
  for (const OwnMapping& own : mappings.value_or(std::vector<OwnMapping>())) {
    bytes += own.pages.bytes();
  }
  return bytes == file.pages.bytes();
}

void copy_for_child(const RegionFile& file) {
  auto mappings = mappings_of(file);
  if (!mappings) {
    // For want of descriptors, all pages count as they were. A copy of others does no harm.
    if (!is_mapped(file.pages)) return;
    mappings = {{file.pages, 0, PROT_READ | PROT_WRITE}};
  }
  for (const OwnMapping& own : *mappings) {
    std::byte* const memory = at_address(own.pages.begin);
    void* const copy = mmap(nullptr, own.pages.bytes(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED || !own.has_all(PROT_READ)) {
      static_cast<void>(mmap(memory, own.pages.bytes(), own.protection, MAP_PRIVATE | MAP_FIXED,
                             file.fd.get(), static_cast<off_t>(own.file_at)));
      continue;
    }
    for (std::uint64_t at = 0; at < own.pages.bytes(); at += region_page_bytes) {
      const std::byte* const page = memory + at;
      if (!is_zero(page)) std::memcpy(static_cast<std::byte*>(copy) + at, page, region_page_bytes);
    }
    static_cast<void>(mprotect(copy, own.pages.bytes(), own.protection));
    static_cast<void>(
        mremap(copy, own.pages.bytes(), own.pages.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, memory));
  }
}

}  // namespace tulle::live
