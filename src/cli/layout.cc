#include "cli/layout.h"

#include <system_error>

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// cmake/Install.cmake defines the relative paths, as seen from the program's folder.
fs::path beside_executable(const char* relative) {
  const fs::path self = executable();
  return self.empty() ? fs::path() : (self.parent_path() / relative).lexically_normal();
}

fs::path folder_beside_executable(const char* relative) {
  fs::path folder = beside_executable(relative);
  std::error_code error;
  return fs::is_directory(folder, error) ? folder : fs::path();
}

}  // namespace

fs::path executable() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path library_folder() { return folder_beside_executable(TULLE_LIBRARY_FOLDER); }

fs::path scenario_folder() { return folder_beside_executable(TULLE_DATA_FOLDER "/scenarios"); }

fs::path live_program() { return beside_executable(TULLE_LIVE_PROGRAM); }

fs::path simulator_program() { return beside_executable(TULLE_SIMULATOR_PROGRAM); }

}  // namespace tulle::cli
