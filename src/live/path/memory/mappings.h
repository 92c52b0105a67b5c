#pragma once

// The kernel's account of this process's mappings (proc_pid_maps(5), proc_pid_smaps(5)).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace tulle::live {

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;      // behind the last byte
  std::string_view rights;    // such as "rw-p"
  std::uint64_t file_at = 0;  // offset in the file
  std::uint64_t inode = 0;    // 0: memory of no file
  std::string_view name;      // a path, "[heap]" and the like, or empty
  std::string_view flags;     // VmFlags of smaps, such as "rd wr mr mw me ac sd"; else empty
};

// Returns the mapping that a line of maps, or the first line of an entry of smaps, describes.
// Returns nothing for any other line.
std::optional<Mapping> parse_mapping(std::string_view line);

// Calls see(mapping) for each mapping, from lower addresses to higher ones, until that returns
// false. Only smaps has flags, and takes longer: the kernel looks at each page. Returns false if
// the kernel cannot be asked.
enum class Detail : std::uint8_t { maps, smaps };
bool for_each_mapping(Detail detail, const std::function<bool(const Mapping& mapping)>& see);

// Memory files of this name hold pages of this process's memory (live/path/memory/region_file.h).
inline constexpr std::string_view region_file_name = "tulle-region";
// Returns true if the mapping is of such a file, which may be another process's.
bool is_of_region_file(const Mapping& mapping);

// Returns true if a device or an asynchronous call may write to the process's memory because of the
// mapping.
bool may_hold_pages(const Mapping& mapping);

// Returns nothing if [begin, end) can move to a memory file without the program noticing, else why
// not.
enum class Obstacle : std::uint8_t {
  none,
  unknown,        // the kernel cannot be asked
  not_private,    // parts are not mapped, are not writable, or belong to a file
  special,        // locked, not inherited, watched by the program, or a stack
  devices_write,  // a device or an asynchronous call may hold pages of this process
  too_many,       // the process has mappings_max of them
};
// A process may have 65,530 mappings unless the system is set otherwise, and each range that moves
// may take two more.
inline constexpr std::size_t mappings_max = 16'384;
Obstacle obstacle_to_moving(std::uint64_t begin, std::uint64_t end);

// Returns true if a descriptor of this process may hold pages of its memory at this moment: that of
// an io_uring does, and that of a file which is read without the page cache (O_DIRECT) does while
// another thread reads. Returns true also if the kernel cannot be asked. Neither allocates nor
// locks.
bool descriptors_hold_pages(bool has_other_threads);

}  // namespace tulle::live
