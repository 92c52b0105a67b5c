#pragma once

// Writes the packets that processes of a host mirror, or those on the links of a software fabric,
// to a pcapng file, in the order of their times.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "live/settings.h"
#include "os/unique_fd.h"

namespace tulle::live {

enum class CaptureDirection : std::uint8_t { in, out, both };

struct CaptureOptions {
  Settings settings;   // say which host agent is asked
  std::string fabric;  // the address of a fabric's process; empty: this host's processes
  std::string output;  // the file's name, for errors
  std::optional<double> duration_seconds;
  std::optional<std::uint64_t> count;  // frames
  CaptureDirection direction = CaptureDirection::both;
  std::uint32_t snap_length = 0;         // most bytes kept of a frame; 0: all
  std::uint32_t ring_bytes = 32u << 20;  // of each process's buffer, or the fabric's
  bool has_flow_control = false;         // of a fabric: credits, too
};

struct Captured {
  std::uint64_t frames = 0;
  std::uint64_t missing = 0;  // frames for which a buffer had no room
  std::size_t sources = 0;    // processes, or ports of a fabric that sent something
  bool is_stopped = false;    // by the descriptor `stop`
};

// Opens a file for packets, which hold what programs sent: it belongs to a trusted user, and only
// this one may read it. "-" is standard output. A FIFO has a reader, who is not waited for.
Result<UniqueFd> open_capture_file(const std::string& name);

// Captures until `stop` is readable (-1: none), enough frames are written, the time is over, nobody
// reads the output, or the other end is gone. Starts a host agent if there is none.
Result<Captured> capture(const CaptureOptions& options, int out, int stop);

}  // namespace tulle::live
