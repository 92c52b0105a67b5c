#include "live/path/memory/mappings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "os/unique_fd.h"

namespace tulle::live {
namespace {

std::string_view next_word(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(word.size());
  return word;
}

bool parse(std::string_view text, std::uint64_t& value, int base) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && rest == text.data() + text.size();
}

// A name ends at the line's end, and the kernel writes an end of line in a name as "\012".
std::string_view without_end_of_line(std::string_view line) {
  return line.substr(0, line.find('\n'));
}

constexpr std::string_view flags_label = "VmFlags:";

bool is_private_memory(const Mapping& mapping) {
  if (mapping.rights != "rw-p") return false;
  if (mapping.inode == 0) {
    return mapping.name.empty() || mapping.name == "[heap]" || mapping.name.starts_with("[anon:");
  }
  return is_of_region_file(mapping);
}

// Returns true if the calling thread needs some of the memory while that moves: its stack, or what
// is local to it. (The main thread's stack is no memory that may move.)
bool is_in_use(std::uint64_t begin, std::uint64_t end) {
  // The C library's record of the thread, its data and ours are each shorter than a page.
  static thread_local char own_data = 0;
  for (const void* const local :
       {static_cast<const void*>(__builtin_thread_pointer()), static_cast<const void*>(&errno),
        static_cast<const void*>(&own_data)}) {
    const auto address = reinterpret_cast<std::uintptr_t>(local);
    constexpr std::uint64_t page_bytes = 4'096;
    if (begin < address + page_bytes && address - page_bytes < end) return true;
  }
  pthread_attr_t attributes;
  if (gettid() == getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
  void* stack = nullptr;
  std::size_t bytes = 0;
  const bool is_known = pthread_attr_getstack(&attributes, &stack, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto lowest = reinterpret_cast<std::uintptr_t>(stack);
  return is_known && begin < lowest + bytes && lowest < end;
}

// The flags mean, in order: locked; not copied by fork(2); cleared in the child; left out of core
// dumps; of huge pages; device memory (three kinds); a stack that grows; watched with userfaultfd
// (two kinds); sealed.
bool is_special(std::string_view flags) {
  constexpr std::array<std::string_view, 12> special = {"lo", "dc", "wf", "dd", "ht", "io",
                                                        "pf", "mm", "gd", "um", "uw", "sl"};
  while (!flags.empty()) {
    if (std::ranges::find(special, next_word(flags)) != special.end()) return true;
  }
  return false;
}

}  // namespace

std::optional<Mapping> parse_mapping(std::string_view line) {
  line = without_end_of_line(line);
  const std::string_view range = next_word(line);
  const std::size_t dash = range.find('-');
  Mapping mapping;
  if (dash == std::string_view::npos || !parse(range.substr(0, dash), mapping.begin, 16) ||
      !parse(range.substr(dash + 1), mapping.end, 16) || mapping.begin >= mapping.end) {
    return {};
  }
  mapping.rights = next_word(line);
  if (mapping.rights.size() != 4 || !parse(next_word(line), mapping.file_at, 16)) return {};
  next_word(line);  // the device
  if (!parse(next_word(line), mapping.inode, 10)) return {};
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  mapping.name = line;
  return mapping;
}

bool for_each_mapping(Detail detail, const std::function<bool(const Mapping& mapping)>& see) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const char* const path = detail == Detail::maps ? "/proc/self/maps" : "/proc/self/smaps";
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path, "re"));
  if (file == nullptr) return false;
  struct Line {
    char* text = nullptr;
    std::size_t capacity = 0;
    ~Line() { std::free(text); }
  } line;
  std::string head;  // of the entry of smaps whose flags have not come yet
  for (ssize_t length; (length = getline(&line.text, &line.capacity, file.get())) >= 0;) {
    const std::string_view text(line.text, static_cast<std::size_t>(length));
    if (detail == Detail::maps) {
      const auto mapping = parse_mapping(text);
      if (mapping && !see(*mapping)) return true;
    } else if (text.starts_with(flags_label)) {
      auto mapping = parse_mapping(head);
      if (!mapping) continue;
      mapping->flags = without_end_of_line(text).substr(flags_label.size());
      if (!see(*mapping)) return true;
    } else if (parse_mapping(text)) {
      head = text;
    }
  }
  return true;
}

bool is_of_region_file(const Mapping& mapping) {
  return mapping.name.starts_with(fmt::format("/memfd:{} ", region_file_name));
}

// The kernel gives these names, and no program can give them to its own files. Rings of io_uring,
// virtual machines, sockets that share memory and the like come first.
bool may_hold_pages(const Mapping& mapping) {
  const std::string_view name = mapping.name;
  for (const std::string_view first : {"anon_inode:", "socket:", "/[aio]"}) {
    if (name.starts_with(first)) return true;
  }
  // Memory that a process shares with its children has the second name.
  const bool is_memory = name.starts_with("/dev/shm/") || name.starts_with("/dev/zero");
  return name.starts_with("/dev/") && !is_memory;
}

namespace {

// Calls see(fd) for each descriptor of this process until that returns false. Returns false if the
// kernel cannot be asked.
template <typename See>
bool for_each_descriptor(See&& see) {
  const UniqueFd folder(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return false;
  // The kernel's struct linux_dirent64 has the record's length at byte 16 and the name at byte 19.
  alignas(8) std::array<char, 4'096> entries;
  for (;;) {
    const long count = syscall(SYS_getdents64, folder.get(), entries.data(), entries.size());
    if (count <= 0) return count == 0;
    for (long at = 0; at < count;) {
      std::uint16_t length = 0;
      std::memcpy(&length, entries.data() + at + 16, sizeof length);
      const std::string_view name(entries.data() + at + 19);
      int fd = -1;
      std::from_chars(name.data(), name.data() + name.size(), fd);  // "." and ".." are none
      if (fd >= 0 && !see(fd)) return true;
      at += length;
    }
  }
}

// Descriptors without a file system's file have no type.
bool is_io_uring(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || (status.st_mode & S_IFMT) != 0) return false;
  std::array<char, 64> path{};
  std::array<char, 64> target{};
  fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", fd);
  const ssize_t length = readlink(path.data(), target.data(), target.size() - 1);
  return length > 0 && std::string_view(target.data()) == "anon_inode:[io_uring]";
}

}  // namespace

bool descriptors_hold_pages(bool has_other_threads) {
  bool holds = false;
  const bool is_known = for_each_descriptor([&](int fd) {
    const int flags = has_other_threads ? fcntl(fd, F_GETFL) : 0;
    holds = (flags > 0 && (flags & O_DIRECT) != 0) || is_io_uring(fd);
    return !holds;
  });
  return holds || !is_known;
}

Obstacle obstacle_to_moving(std::uint64_t begin, std::uint64_t end) {
  if (is_in_use(begin, end)) return Obstacle::special;
  Obstacle obstacle = Obstacle::none;
  std::size_t count = 0;
  const bool knows_names = for_each_mapping(Detail::maps, [&](const Mapping& mapping) {
    if (may_hold_pages(mapping)) {
      obstacle = Obstacle::devices_write;
    } else if (++count > mappings_max) {
      obstacle = Obstacle::too_many;
    }
    return obstacle == Obstacle::none;
  });
  if (!knows_names) return Obstacle::unknown;
  if (obstacle != Obstacle::none) return obstacle;
  std::uint64_t seen = begin;
  const bool knows_flags = for_each_mapping(Detail::smaps, [&](const Mapping& mapping) {
    if (mapping.end <= begin) return true;
    if (mapping.begin > seen || !is_private_memory(mapping)) {
      obstacle = Obstacle::not_private;
    } else if (is_special(mapping.flags)) {
      obstacle = Obstacle::special;
    }
    seen = mapping.end;
    return obstacle == Obstacle::none && seen < end;
  });
  if (!knows_flags) return Obstacle::unknown;
  if (obstacle != Obstacle::none) return obstacle;
  return seen >= end ? Obstacle::none : Obstacle::not_private;
}

}  // namespace tulle::live
