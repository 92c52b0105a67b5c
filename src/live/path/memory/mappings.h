#pragma once

// What the kernel says of this process's mappings (proc_pid_maps(5), proc_pid_smaps(5)).

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

// Pages of private memory that belong to a memory file of this name behave like others.
inline constexpr std::string_view region_file_name = "tulle-region";

// Returns nothing if [begin, end) can move to a memory file without the program noticing, else why
// not.
enum class Obstacle : std::uint8_t {
  none,
  unknown,        // the kernel cannot be asked
  not_private,    // parts are not mapped, are not writable, or belong to a file
  special,        // locked, not inherited, watched by the program, or a stack
  devices_write,  // a device or an asynchronous call may hold pages of this process
};
Obstacle obstacle_to_moving(std::uint64_t begin, std::uint64_t end);

}  // namespace tulle::live
