#include "live/path/memory/region_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/guarded_access.h"
#include "live/path/memory/mappings.h"
#include "os/shared_memory.h"

namespace tulle::live {
namespace {

// No more memory than this is in use twice while pages move.
constexpr std::uint64_t step_bytes = std::uint64_t{4} << 20;
// A mapping of a file may grow by so much. It takes no memory.
constexpr std::uint64_t growth_bytes = std::uint64_t{1} << 40;

std::byte* at_address(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Libraries that replace mmap and mremap, to follow what a program does with its memory, need no
// notice of pages that stay where they are. Returns null if the system refuses.
std::byte* map(void* at, std::uint64_t bytes, int protection, int flags, int fd = -1,
               std::uint64_t file_at = 0) {
  const long mapped = syscall(SYS_mmap, at, bytes, protection, flags, fd, file_at);
  return mapped == -1 ? nullptr : at_address(static_cast<std::uint64_t>(mapped));
}
// The kernel joins mappings only if their flags agree, so that this asks for nothing special.
std::byte* map_private(void* at, std::uint64_t bytes, int protection) {
  const int fixed = at != nullptr ? MAP_FIXED : 0;
  return map(at, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed);
}
bool move_mapping(std::byte* from, std::byte* to, std::uint64_t bytes) {
  return syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1;
}

// The page must be there.
bool is_zero(const std::byte* page) {
  return page[0] == std::byte{} && std::memcmp(page, page + 1, region_page_bytes - 1) == 0;
}

// A handler that runs in this thread could write to a page that has just been copied.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t others;
    sigfillset(&others);
    // Faults are found out where they happen (base/guarded_access.h).
    sigdelset(&others, SIGSEGV);
    sigdelset(&others, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

// Calls move(step) for steps of the pages until that returns false. Returns where it stopped.
template <typename Move>
std::uint64_t in_steps(PageRange pages, Move&& move) {
  std::uint64_t at = pages.begin;
  while (at < pages.end) {
    const PageRange step{at, std::min(at + step_bytes, pages.end)};
    if (!move(step)) break;
    at = step.end;
  }
  return at;
}

// A cancelled thread would leave others suspended, so that calls which are cancellation points are
// made without the C library.
ssize_t write_at(int fd, const std::byte* memory, std::uint64_t bytes, std::uint64_t at) {
  return syscall(SYS_pwrite64, fd, memory, bytes, at);
}
ssize_t read_at(int fd, std::byte* memory, std::uint64_t bytes, std::uint64_t at) {
  return syscall(SYS_pread64, fd, memory, bytes, at);
}

// Writes the pages to the start of their place in the file.
bool write_pages(int fd, std::uint64_t file_at, const std::byte* memory, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes;) {
    std::uint64_t end = at;
    while (end < bytes && !is_zero(memory + end)) end += region_page_bytes;
    while (at < end) {
      const ssize_t written = write_at(fd, memory + at, end - at, file_at + at);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      at += static_cast<std::uint64_t>(written);
    }
    at += region_page_bytes;  // a page of zeros, or behind the last one
  }
  return true;
}

// Calls see(at, bytes) for each part of the file that has data, with its place behind `file_at`,
// until that returns false. Returns false then, or if the kernel cannot be asked.
template <typename See>
bool for_each_part(int fd, std::uint64_t file_at, std::uint64_t bytes, See&& see) {
  const auto end = static_cast<off_t>(file_at + bytes);
  auto at = static_cast<off_t>(file_at);
  while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && at < end) {
    const off_t hole = std::min(lseek(fd, at, SEEK_HOLE), end);
    if (hole <= at) return false;
    if (!see(static_cast<std::uint64_t>(at) - file_at, static_cast<std::uint64_t>(hole - at))) {
      return false;
    }
    at = hole;
  }
  return at >= 0 || errno == ENXIO;  // the latter: no data from here on
}

// Copies what the file has from `file_at` on to memory of zeros.
bool read_pages(int fd, std::uint64_t file_at, std::byte* memory, std::uint64_t bytes) {
  return for_each_part(fd, file_at, bytes, [&](std::uint64_t at, std::uint64_t length) {
    for (std::uint64_t done = 0; done < length;) {
      const ssize_t got = read_at(fd, memory + at + done, length - done, file_at + at + done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<std::uint64_t>(got);
    }
    return true;
  });
}

// Copies pages that are mapped to memory of zeros.
bool copy_pages(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  const std::span<const std::byte> where[] = {{from, bytes}, {to, bytes}};
  return attempt(where, [&] {
    for (std::uint64_t at = 0; at < bytes; at += region_page_bytes) {
      if (!is_zero(from + at)) std::memcpy(to + at, from + at, region_page_bytes);
    }
  });
}

bool move_step(const RegionFile& file, PageRange step, WriterHold* hold) {
  std::byte* const memory = at_address(step.begin);
  const std::uint64_t file_at = step.begin - file.pages.begin;
  const auto move = [&] {
    // A thread may have begun to read directly since the caller looked, which one thread cannot.
    if (hold != nullptr && descriptors_hold_pages(true)) return false;
    bool is_written = false;
    const std::span<const std::byte> where[] = {{memory, step.bytes()}};
    const bool is_there = attempt(
        where, [&] { is_written = write_pages(file.fd.get(), file_at, memory, step.bytes()); });
    return is_there && is_written &&
           map(memory, step.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
               file.fd.get(), file_at) != nullptr;
  };
  if (hold == nullptr) return move();
  if (!hold->begin(memory, step.bytes(), WriterHold::Pages::of_no_file)) return false;
  const bool moved = move();
  hold->end();
  return moved;
}

// Returns how long a file for the pages may be, or 0 if it may not be long enough.
std::uint64_t file_bytes_for(std::uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < bytes) return 0;
  return std::min(bytes + growth_bytes, limit.rlim_cur) & ~std::uint64_t{region_page_bytes - 1};
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

int protection_of(std::string_view rights) {
  return (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
         (rights[2] == 'x' ? PROT_EXEC : 0);
}

// A part of a mapping, and the file.
struct SharedPart {
  const RegionFile& file;
  PageRange pages;
  std::uint64_t file_at = 0;
  int protection = PROT_NONE;

  std::byte* memory() const { return at_address(pages.begin); }
  std::uint64_t bytes() const { return pages.bytes(); }
};

// Puts private memory with the same content in the place of the pages. Nobody writes to them
// meanwhile.
bool replace_by_copy(const SharedPart& part) {
  std::byte* const copy = map_private(nullptr, part.bytes(), PROT_READ | PROT_WRITE);
  if (copy == nullptr) return false;
  const bool is_copied =
      part.file.fd.is_intact()
          ? read_pages(part.file.fd.get(), part.file_at, copy, part.bytes())
          : (part.protection & PROT_READ) != 0 && copy_pages(part.memory(), copy, part.bytes());
  const bool is_ready = is_copied && mprotect(copy, part.bytes(), part.protection) == 0 &&
                        move_mapping(copy, part.memory(), part.bytes());
  if (!is_ready) munmap(copy, part.bytes());
  return is_ready;
}

// Does the same for the only thread of a process. The kernel can join the new mapping with its
// neighbours, which it cannot if pages were moved there.
bool refill(const SharedPart& part) {
  if (!part.file.fd.is_intact()) return replace_by_copy(part);
  std::byte* const memory = part.memory();
  if (map_private(memory, part.bytes(), PROT_READ | PROT_WRITE) == nullptr) return false;
  const bool is_filled = read_pages(part.file.fd.get(), part.file_at, memory, part.bytes()) &&
                         mprotect(memory, part.bytes(), part.protection) == 0;
  if (is_filled) return true;
  // The file still has everything.
  static_cast<void>(map(memory, part.bytes(), part.protection,
                        MAP_SHARED | MAP_FIXED | MAP_NORESERVE, part.file.fd.get(), part.file_at));
  return false;
}

// Does what can be done while other threads write. The mapping becomes private in one system call,
// so that no thread's write is lost. Pages that the process has not copied yet are the file's,
// which other processes may still write to, so each page with data is copied.
bool make_private(const SharedPart& part) {
  if (!part.file.fd.is_intact()) return false;
  const int fd = part.file.fd.get();
  if (map(part.memory(), part.bytes(), part.protection, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
          part.file_at) == nullptr) {
    return false;
  }
  const std::span<const std::byte> where[] = {{part.memory(), part.bytes()}};
  return for_each_part(fd, part.file_at, part.bytes(), [&](std::uint64_t at, std::uint64_t bytes) {
    return attempt(where, [&] {
      for (std::uint64_t page = 0; page < bytes; page += region_page_bytes) {
        own_page(part.memory() + at + page);
      }
    });
  });
}

bool make_own(const SharedPart& part, OtherThreads others) {
  if (!others.exist) return refill(part);
  if ((part.protection & PROT_WRITE) == 0) return replace_by_copy(part);
  if (others.hold == nullptr) return make_private(part);
  if (!others.hold->begin(part.memory(), part.bytes(), WriterHold::Pages::of_a_file)) return false;
  const bool is_own = !descriptors_hold_pages(true) && replace_by_copy(part);
  others.hold->end();
  return is_own;
}

void free_memory(const RegionFile& file, std::uint64_t at, std::uint64_t bytes) {
  if (bytes == 0 || !file.fd.is_intact()) return;
  fallocate(file.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
            static_cast<off_t>(bytes));
}

// Returns true if each page of the range is mapped.
bool is_mapped(PageRange pages) {
  return msync(at_address(pages.begin), pages.bytes(), MS_ASYNC) == 0;
}

}  // namespace

std::vector<FileMapping> FileMappings::of(const RegionFile& file) const {
  std::vector<FileMapping> found;
  for (const FileMapping& mapping : all) {
    if (mapping.inode == file.fd.inode()) found.push_back(mapping);
  }
  return found;
}

std::vector<FileMapping> FileMappings::in_place(const RegionFile& file) const {
  std::vector<FileMapping> found = of(file);
  std::erase_if(found, [&](const FileMapping& mapping) {
    return mapping.pages.begin - mapping.file_at != file.pages.begin;
  });
  return found;
}

bool FileMappings::has_in_place(const RegionFile& file) const {
  std::uint64_t bytes = 0;
  for (const FileMapping& mapping : in_place(file)) {
    bytes +=
        std::min(mapping.pages.end, file.pages.end) - std::min(mapping.pages.begin, file.pages.end);
  }
  return bytes == file.pages.bytes();
}

std::optional<FileMappings> find_file_mappings() {
  FileMappings found;
  const bool is_known = for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
    if (may_hold_pages(mapping)) found.devices_may_write = true;
    if (mapping.rights.ends_with('s') && is_of_region_file(mapping)) {
      found.all.push_back({{mapping.begin, mapping.end},
                           mapping.file_at,
                           mapping.inode,
                           protection_of(mapping.rights)});
    }
    return true;
  });
  if (!is_known) return {};
  return found;
}

Result<RegionFile> make_region_file(PageRange pages) {
  const std::uint64_t bytes = file_bytes_for(pages.bytes());
  if (bytes == 0) return Error{"files may not be that long", EFBIG};
  auto fd = make_shared_memory(std::string(region_file_name).c_str(), bytes);
  if (!fd) return fd.error();
  RegionFile file{KeptDescriptor(std::move(*fd)), pages};
  if (!file.fd.is_intact()) return Error{"there is no descriptor for a file", EMFILE};
  return file;
}

bool move_to_file(RegionFile& file, OtherThreads others) {
  const BlockedSignals blocked;
  file.pages.end =
      in_steps(file.pages, [&](PageRange step) { return move_step(file, step, others.hold); });
  return file.pages.end != file.pages.begin;
}

bool move_back(const RegionFile& file, std::span<const FileMapping> mappings, OtherThreads others) {
  const BlockedSignals blocked;
  bool is_complete = true;
  for (const FileMapping& mapping : mappings) {
    const std::uint64_t stopped = in_steps(mapping.pages, [&](PageRange step) {
      const SharedPart part{file, step, mapping.file_at + (step.begin - mapping.pages.begin),
                            mapping.protection};
      if (!make_own(part, others)) return false;
      free_memory(file, part.file_at, part.bytes());
      return true;
    });
    is_complete = is_complete && stopped == mapping.pages.end;
  }
  return is_complete;
}

void free_unmapped(const RegionFile& file, std::span<const FileMapping> mappings) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> mapped;  // offsets in the file
  for (const FileMapping& mapping : mappings) {
    mapped.emplace_back(mapping.file_at, mapping.file_at + mapping.pages.bytes());
  }
  std::ranges::sort(mapped);
  std::uint64_t at = 0;
  for (const auto& [begin, end] : mapped) {
    if (begin > at) free_memory(file, at, begin - at);
    at = std::max(at, end);
  }
  if (file.pages.bytes() > at) free_memory(file, at, file.pages.bytes() - at);
}

void copy_for_child(const RegionFile& file, const std::function<void()>& progress) {
  std::vector<FileMapping> mappings;
  try {
    const auto found = find_file_mappings();
    if (found) {
      mappings = found->in_place(file);
    } else if (is_mapped(file.pages)) {
      // No descriptor is left, so all pages count as they were. Copying others does no harm.
      mappings = {{file.pages, 0, file.fd.inode(), PROT_READ | PROT_WRITE}};
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  for (const FileMapping& mapping : mappings) {
    in_steps(mapping.pages, [&](PageRange step) {
      const SharedPart part{file, step, mapping.file_at + (step.begin - mapping.pages.begin),
                            mapping.protection};
      if (!refill(part) && file.fd.is_intact()) {
        static_cast<void>(map(part.memory(), part.bytes(), part.protection,
                              MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file.fd.get(),
                              part.file_at));
      }
      progress();
      return true;
    });
  }
}

}  // namespace tulle::live
