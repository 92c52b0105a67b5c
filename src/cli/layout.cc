#include "cli/layout.h"

#include <system_error>

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// cmake/Install.cmake defines both relative paths, as seen from the program's folder.
fs::path beside_executable(const char* relative) {
  const fs::path self = executable();
  if (self.empty()) return {};
  fs::path folder = (self.parent_path() / relative).lexically_normal();
  std::error_code error;
  return fs::is_directory(folder, error) ? folder : fs::path();
}

}  // namespace

fs::path executable() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path library_folder() { return beside_executable(TULLE_LIBRARY_FOLDER); }

fs::path scenario_folder() { return beside_executable(TULLE_DATA_FOLDER "/scenarios"); }

}  // namespace tulle::cli
