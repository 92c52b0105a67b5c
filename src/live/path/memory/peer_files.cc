#include "live/path/memory/peer_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <new>

#include "live/shared_memory.h"
#include "live/unique_fd.h"
#include "verbs/memory.h"

namespace tulle::live {
namespace {

// Opens a descriptor's file again. Opening what is no memory file, such as a pipe or a file of a
// file system in user space, may take for ever, so that the file is looked at first.
UniqueFd open_again(int pid, int fd, std::uint64_t inode) {
  std::array<char, 64> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/fd/{}", pid, fd);
  const UniqueFd seen(open(path.data(), O_PATH | O_CLOEXEC));
  struct stat status {};
  struct statfs system {};
  const bool is_it = seen && fstat(seen.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_ino == inode && fstatfs(seen.get(), &system) == 0 &&
                     system.f_type == TMPFS_MAGIC;
  if (!is_it) return {};
  path = {};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", seen.get());
  return UniqueFd(open(path.data(), O_RDWR | O_CLOEXEC));
}

}  // namespace

bool PeerFiles::has_bytes(const File& file, std::uint64_t address, std::uint64_t bytes) {
  return verbs::range_covers(file.address, file.bytes, address, bytes);
}

bool PeerFiles::is_listed(const File& file, const PeerTable& table) {
  return table.files[file.place].number.load(std::memory_order_seq_cst) == file.number;
}

std::byte* PeerFiles::find(const PeerTable& table, int pid, std::uint64_t address,
                           std::uint64_t bytes) {
  const auto is_it = [&](const File& file) {
    return has_bytes(file, address, bytes) && is_listed(file, table);
  };
  const File* file = nullptr;
  if (last_ < files_.size() && is_it(files_[last_])) {
    file = &files_[last_];
  } else {
    const auto found = std::ranges::find_if(files_, is_it);
    file = found != files_.end() ? &*found : add(table, pid, address, bytes);
    if (file == nullptr) return nullptr;
    last_ = static_cast<std::size_t>(file - files_.data());
  }
  return file->memory == nullptr ? nullptr : file->memory + (address - file->address);
}

// Maps the file that has the bytes. Returns null if the table lists none.
PeerFiles::File* PeerFiles::add(const PeerTable& table, int pid, std::uint64_t address,
                                std::uint64_t bytes) {
  const std::size_t count = std::min<std::size_t>(table.file_places.load(), table.files.size());
  for (std::size_t place = 0; place < count; ++place) {
    const PeerTable::FileEntry& entry = table.files[place];
    // The peer may change the entry at any time, and what is looked at must be what is used.
    File file{place,         entry.number.load(std::memory_order_seq_cst),
              entry.address, entry.bytes,
              nullptr,       0};
    if (file.number == 0 || !has_bytes(file, address, bytes)) continue;
    sweep(table);
    if (!has_room()) return nullptr;
    map(file, pid, entry.fd, entry.inode);
    if (files_.size() < files_max) return &files_.emplace_back(file);
    File& replaced = files_[next_++ % files_max];
    unmap(replaced);
    replaced = file;
    return &replaced;
  }
  return nullptr;
}

// Returns false if there is no memory for the list.
bool PeerFiles::has_room() try {
  files_.reserve(files_max);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// A forked child must not find memory of other processes among its own.
void PeerFiles::map(File& file, int pid, int fd, std::uint64_t inode) {
  const UniqueFd own = open_again(pid, fd, inode);
  if (!own) return;
  auto size = size_of_shared_memory(own.get());
  if (!size || *size < file.bytes) return;
  auto memory = map_shared_memory(own.get(), *size);
  if (!memory) return;
  if (madvise(*memory, *size, MADV_DONTFORK) != 0) {
    munmap(*memory, *size);
    return;
  }
  file.memory = static_cast<std::byte*>(*memory);
  file.mapped_bytes = *size;
}

void PeerFiles::unmap(const File& file) {
  if (file.memory != nullptr) munmap(file.memory, file.mapped_bytes);
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
