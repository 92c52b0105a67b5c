#pragma once

// Gives a program Tulle's device: this process becomes the program, in an environment that leads it
// to the drop-in libraries.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace tulle::shim {

struct LaunchOptions {
  // The device's settings (live/settings.h). If one of these is empty or false, the environment
  // says what to use.
  std::string device;
  std::string interfaces;
  std::string faults;
  std::string secure;
  std::string agent;
  std::string recovery;
  std::string roce;
  std::string busy_poll;  // microseconds
  bool explain = false;
  bool strict = false;
  std::string like;
  std::string gid_order;
  bool no_offload = false;
  bool no_direct = false;
  bool share_memory = false;
  bool rsockets = false;  // the program's sockets are rsockets
  bool no_mpi_defaults = false;
  std::string host;                  // of a software fabric; empty: this host
  std::string fabric;                // its name; empty: as in live::fabric_address()
  std::vector<std::string> command;  // at least the program
};

// The files of this installation.
struct Installation {
  std::filesystem::path executable;  // `tulle`, which starts host agents
  std::filesystem::path libraries;   // the folder of the drop-in libraries
};

// Receives a line for a person about what the program may not find.
using Warn = std::function<void(const std::string& line)>;

// Fails if an option has no effect on a host of a fabric, or names a file or an interface that is
// none. The error is a misuse.
Result<void> check_launch(const LaunchOptions& options);

// Prepares this process to become the program: sets the environment, enters the host's network, and
// makes the files by which programs look for devices. It must have one thread.
Result<void> prepare_launch(const LaunchOptions& options, const Installation& installation,
                            const Warn& warn);

// Replaces this process by a program, which is looked for in the folders of PATH and where
// administrators have theirs. Returns only if that fails; the error_number is ENOENT if there is no
// such program.
Error become(std::vector<std::string> command);

// Returns the file that a command's name means, or an empty path.
std::filesystem::path program_of(const std::string& command);

// Returns warnings for a program that will not find the libraries in a folder, as it is statically
// linked or gains privileges. Returns in `preloads` the libraries that have to be preloaded for it:
// those of another folder come first on its own search path.
std::vector<std::string> warnings_of(const std::filesystem::path& program,
                                     const std::filesystem::path& libraries,
                                     std::vector<std::filesystem::path>& preloads);

}  // namespace tulle::shim
