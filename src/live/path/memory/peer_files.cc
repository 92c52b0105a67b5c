#include "live/path/memory/peer_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <new>

#include "live/path/memory/region_file.h"
#include "os/cancellation.h"
#include "os/shared_memory.h"
#include "os/unique_fd.h"
#include "rdma/verbs/memory.h"

namespace tulle::live {
namespace {

// All memory files of the system are on one device, which no program can mount.
struct MemoryFiles {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t user = 0;
};
bool look_at(int fd, struct statx& out) {
  // The file system is not asked. One in user space could keep the caller waiting for ever.
  constexpr int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return statx(fd, "", flags, STATX_TYPE | STATX_INO | STATX_UID, &out) == 0;
}
const MemoryFiles& memory_files() {
  static const MemoryFiles known = [] {
    const UniqueFd own(memfd_create("tulle-probe", MFD_CLOEXEC));
    struct statx status {};
    if (!own || !look_at(own.get(), status)) return MemoryFiles{};
    return MemoryFiles{status.stx_dev_major, status.stx_dev_minor, status.stx_uid};
  }();
  return known;
}

// Opens a descriptor's file again. Opening what is no memory file, such as a pipe or a file of a
// file system in user space, may take for ever, so that the file is looked at first. A lease on the
// file (F_SETLEASE) would make a call wait that may.
UniqueFd open_again(int pid, int fd, std::uint64_t inode) {
  std::array<char, 64> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/fd/{}", pid, fd);
  const UniqueFd seen(open(path.data(), O_PATH | O_CLOEXEC));
  struct statx status {};
  if (!seen || !look_at(seen.get(), status)) return {};
  const MemoryFiles& memory = memory_files();
  const bool is_memory = S_ISREG(status.stx_mode) && status.stx_dev_major == memory.major &&
                         status.stx_dev_minor == memory.minor && status.stx_uid == memory.user;
  if (!is_memory || status.stx_ino != inode) return {};
  path = {};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", seen.get());
  return UniqueFd(open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

// Returns false if this process has a limit on its address space, or locks all memory that it maps
// (mlockall(2)): a peer's files would then take up what is the program's.
bool may_map_much() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return false;
  void* const probe =
      mmap(nullptr, region_page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe == MAP_FAILED) return false;
  unsigned char is_there = 1;
  const bool is_known = mincore(probe, region_page_bytes, &is_there) == 0;
  munmap(probe, region_page_bytes);
  return is_known && (is_there & 1) == 0;
}

}  // namespace

bool PeerFiles::has_bytes(const File& file, std::uint64_t address, std::uint64_t bytes) {
  return verbs::range_covers(file.address, file.bytes, address, bytes);
}

bool PeerFiles::is_listed(const File& file, const PeerTable& table) {
  return table.files[file.place].number.load(std::memory_order_seq_cst) == file.number;
}

std::byte* PeerFiles::find(const PeerTable& table, int pid, std::uint64_t number,
                           std::uint64_t address, std::uint64_t bytes) {
  if (number == 0) return nullptr;
  return find_file(table, pid, address, [&](const File& file) {
    return file.number == number && has_bytes(file, address, bytes);
  });
}

std::byte* PeerFiles::find_now(const PeerTable& table, int pid, std::uint64_t address,
                               std::uint64_t bytes) {
  return find_file(table, pid, address, [&](const File& file) {
    return has_bytes(file, address, bytes) && table.files[file.place].is_displaced.load() == 0;
  });
}

template <typename IsIt>
std::byte* PeerFiles::find_file(const PeerTable& table, int pid, std::uint64_t address,
                                IsIt&& is_it) {
  const auto is_found = [&](const File& file) { return is_it(file) && is_listed(file, table); };
  const File* file = nullptr;
  if (last_ < files_.size() && is_found(files_[last_])) {
    file = &files_[last_];
  } else {
    const auto found = std::ranges::find_if(files_, is_found);
    file = found != files_.end() ? &*found : add(table, pid, is_it);
    if (file == nullptr) return nullptr;
    last_ = static_cast<std::size_t>(file - files_.data());
  }
  return file->memory == nullptr ? nullptr : file->memory + (address - file->address);
}

// Maps the first file that is_it() accepts. Returns null if the table lists none.
template <typename IsIt>
const PeerFiles::File* PeerFiles::add(const PeerTable& table, int pid, IsIt&& is_it) {
  const std::size_t count = std::min<std::size_t>(table.file_places.load(), table.files.size());
  for (std::size_t place = 0; place < count; ++place) {
    const PeerTable::FileEntry& entry = table.files[place];
    // The peer may change the entry at any time, and what is looked at must be what is used.
    File file{place, entry.number.load(std::memory_order_seq_cst), entry.address, entry.bytes,
              nullptr};
    if (file.number == 0 || !is_it(file)) continue;
    sweep(table);
    if (!has_room(file)) return nullptr;
    map(file, pid, entry.fd, entry.inode);
    return &files_.emplace_back(file);
  }
  return nullptr;
}

// Returns false if the peer has enough files here, or if there is no memory for the list.
bool PeerFiles::has_room(const File& file) try {
  files_.reserve(files_max);
  std::uint64_t bytes = 0;  // each file has bytes_max at most
  for (const File& other : files_) bytes += other.memory != nullptr ? other.bytes : 0;
  return files_.size() < files_max && file.bytes <= bytes_max - bytes;
} catch (const std::bad_alloc&) {
  return false;
}

// A forked child must not find memory of other processes among its own, and a core dump need not
// hold it.
void PeerFiles::map(File& file, int pid, int fd, std::uint64_t inode) {
  if (!may_map_much()) return;
  const CancellationOff cancellation_off;
  const UniqueFd own = open_again(pid, fd, inode);
  if (!own) return;
  auto size = size_of_shared_memory(own.get());
  if (!size || *size < file.bytes) return;
  void* const memory =
      mmap(nullptr, file.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own.get(), 0);
  if (memory == MAP_FAILED) return;
  if (madvise(memory, file.bytes, MADV_DONTFORK) != 0) {
    munmap(memory, file.bytes);
    return;
  }
  madvise(memory, file.bytes, MADV_DONTDUMP);
  file.memory = static_cast<std::byte*>(memory);
}

void PeerFiles::unmap(const File& file) {
  if (file.memory != nullptr) munmap(file.memory, file.bytes);
}

void PeerFiles::sweep(const PeerTable& table) {
  std::erase_if(files_, [&](const File& file) {
    if (is_listed(file, table)) return false;
    unmap(file);
    return true;
  });
}

void PeerFiles::clear() {
  for (const File& file : files_) unmap(file);
  files_.clear();
}

}  // namespace tulle::live
