#include "live/path/memory/peer_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>

#include "live/shared_memory.h"
#include "live/unique_fd.h"
#include "verbs/memory.h"

namespace tulle::live {
namespace {

// Opens a descriptor's file again. Opening what is no memory file, such as a pipe or a file of a
// program, may take for ever, so that the file is looked at first.
UniqueFd open_of(const PeerFiles::Named& named) {
  std::array<char, 64> path{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/{}/fd/{}", named.pid, named.fd);
  const UniqueFd seen(open(path.data(), O_PATH | O_CLOEXEC));
  struct stat status {};
  struct statfs system {};
  const bool is_it = seen && fstat(seen.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_ino == named.inode && fstatfs(seen.get(), &system) == 0 &&
                     system.f_type == TMPFS_MAGIC;
  if (!is_it) return {};
  path = {};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", seen.get());
  return UniqueFd(open(path.data(), O_RDWR | O_CLOEXEC));
}

}  // namespace

PeerFiles::~PeerFiles() {
  for (const File& file : files_) unmap(file);
}

std::byte* PeerFiles::find(std::uint32_t token, const Named& named, std::uint64_t at,
                           std::uint64_t bytes) {
  File* file = known(token, named.number);
  if (file == nullptr) {
    if (files_.size() >= files_max) return nullptr;
    File mapped{token, named.key, named.number, nullptr, 0};
    files_.reserve(files_.size() + 1);
    map(mapped, named);
    last_ = files_.size();
    file = &files_.emplace_back(mapped);
  }
  file->key = named.key;
  if (file->memory == nullptr || !verbs::range_covers(0, file->bytes, at, bytes)) return nullptr;
  return file->memory + at;
}

PeerFiles::File* PeerFiles::known(std::uint32_t token, std::uint64_t number) {
  const auto is_it = [&](const File& file) { return file.token == token && file.number == number; };
  if (last_ < files_.size() && is_it(files_[last_])) return &files_[last_];
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (is_it(files_[i])) return &files_[last_ = i];
  }
  return nullptr;
}

// A forked child must not find memory of other processes among its own.
void PeerFiles::map(File& file, const Named& named) {
  const UniqueFd fd = open_of(named);
  if (!fd) return;
  auto bytes = size_of_shared_memory(fd.get());
  if (!bytes || *bytes == 0) return;
  auto memory = map_shared_memory(fd.get(), *bytes);
  if (!memory) return;
  if (madvise(*memory, *bytes, MADV_DONTFORK) != 0) {
    munmap(*memory, *bytes);
    return;
  }
  file.memory = static_cast<std::byte*>(*memory);
  file.bytes = *bytes;
}

void PeerFiles::unmap(const File& file) {
  if (file.memory != nullptr) munmap(file.memory, file.bytes);
}

void PeerFiles::sweep(const Keep& keep) {
  std::erase_if(files_, [&](const File& file) {
    const bool goes = !keep(file.token, file.key, file.number);
    if (goes) unmap(file);
    return goes;
  });
}

}  // namespace tulle::live
