#include "cli/layout.h"

#include <cerrno>
#include <system_error>

#include "os/trusted_folder.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// cmake/Install.cmake defines the relative paths, as seen from the program's folder.
fs::path beside_executable(const char* relative) {
  const fs::path self = executable();
  return self.empty() ? fs::path() : (self.parent_path() / relative).lexically_normal();
}

// Returns an empty path if another user can change which file that is, and not this program.
fs::path trusted(const fs::path& path) {
  auto found = trusted_like(path, executable());
  return !found && found.error().error_number == EPERM ? fs::path() : path;
}

fs::path folder_beside_executable(const char* relative) {
  fs::path folder = beside_executable(relative);
  std::error_code error;
  return fs::is_directory(folder, error) ? trusted(folder) : fs::path();
}

}  // namespace

fs::path executable() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path library_folder() { return folder_beside_executable(TULLE_LIBRARY_FOLDER); }

fs::path scenario_folder() { return folder_beside_executable(TULLE_DATA_FOLDER "/scenarios"); }

fs::path live_program() { return trusted(beside_executable(TULLE_LIVE_PROGRAM)); }

fs::path simulator_program() { return trusted(beside_executable(TULLE_SIMULATOR_PROGRAM)); }

}  // namespace tulle::cli
