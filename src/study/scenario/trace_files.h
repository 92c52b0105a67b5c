#pragma once

// Finds and reads the files of a trace.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tulle::scenario {

// A file of a trace, and the rank whose trace it is, if the name tells: NAME.RANK.et.
struct TraceFile {
  std::string path;
  std::optional<std::uint32_t> rank;
  std::string text;
};

// All files of a trace together have at most this many bytes: 1 GiB.
inline constexpr std::size_t trace_bytes_max = std::size_t{1} << 30;

// Returns the files of a trace, without their texts: `path` itself; all files NAME.RANK.et (or
// .json) if it is one of these, or NAME; or those of a folder. Returns none if there is no such
// file.
std::vector<TraceFile> find_trace(const std::string& path);

// Returns true if a file's name has a rank, so that a trace may have more such files.
bool is_of_ranks(const std::string& path);

// Finds and reads a trace. The error is one line with the path.
Result<std::vector<TraceFile>> read_trace_files(const std::string& path);

}  // namespace tulle::scenario
