#include "shim/paths/old_trees.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

namespace tulle::shim {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view variable = "TULLE_SYSFS=";
constexpr std::string_view library = "libtulle-paths";
constexpr std::chrono::minutes age_min{1};
constexpr std::size_t bytes_max = 256 << 10;
constexpr int removed_max = 8;  // a program that starts waits for it
constexpr int looks_max = 200;
constexpr useconds_t look_microseconds = 10'000;

UniqueFd open_folder(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// Returns the file's first bytes. A process makes its environment, and its mappings, as long as it
// likes.
std::string beginning_of(const fs::path& path) {
  std::string text(bytes_max, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Nobody else has access to this user's trees.
bool is_own(const fs::path& process) {
  struct stat its {};
  return lstat(process.c_str(), &its) == 0 && its.st_uid == geteuid();
}

// Calls the function with each string of an environment that zeros end.
template <typename Function>
void for_each_string(std::string_view environment, Function function) {
  while (!environment.empty()) {
    const std::size_t end = std::min(environment.find('\0'), environment.size());
    function(environment.substr(0, end));
    environment.remove_prefix(std::min(end + 1, environment.size()));
  }
}

struct Tree {
  fs::path path;
  fs::file_time_type made;
};

// Returns the folders that hold a tree and nothing else.
std::vector<Tree> trees_in(const std::string& own_folder) {
  std::vector<Tree> trees;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(own_folder, error)) {
    std::error_code unknown;
    const fs::path files = entry.path() / "sysfs";
    if (entry.is_symlink(unknown) || !fs::is_directory(files, unknown)) continue;
    const auto count =
        std::distance(fs::directory_iterator(entry.path(), unknown), fs::directory_iterator());
    const fs::file_time_type made = fs::last_write_time(files, unknown);
    if (!unknown && count == 1) trees.push_back({entry.path(), made});
  }
  return trees;
}

}  // namespace

TreesAtRest::TreesAtRest(const std::string& own_folder) : folder_(open_folder(own_folder)) {
  // The process that holds the lock may be stopped.
  for (int i = 0; i < looks_max && flock(folder_.get(), LOCK_SH | LOCK_NB) != 0; ++i) {
    usleep(look_microseconds);
  }
}

std::optional<std::set<std::string>> used_trees(const std::string& own_folder) {
  std::set<std::string> used;
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    const std::string number = process.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!is_own(process.path())) continue;
    const std::string environment = beginning_of(process.path() / "environ");
    bool is_whole = environment.size() < bytes_max;
    bool is_found = false;
    for_each_string(environment, [&](std::string_view text) {
      if (text.find('=') == std::string_view::npos) is_whole = false;
      if (!text.starts_with(variable)) return;
      is_found = true;
      const fs::path root(text.substr(variable.size()));
      if (root.parent_path().parent_path() == own_folder) {
        used.insert(root.parent_path().filename());
      }
    });
    if (is_whole || is_found) continue;
    // Some servers write what they do over their environment.
    const std::string maps = beginning_of(process.path() / "maps");
    if (maps.size() == bytes_max || maps.find(library) != std::string::npos) return std::nullopt;
  }
  return used;
}

void remove_old_trees(const std::string& own_folder, std::size_t kept) {
  std::vector<Tree> trees = trees_in(own_folder);
  if (trees.size() <= kept) return;
  const UniqueFd folder = open_folder(own_folder);
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return;
  const auto used = used_trees(own_folder);
  if (!used) return;
  std::ranges::sort(trees, {}, &Tree::made);
  const auto young = fs::file_time_type::clock::now() - age_min;
  std::size_t left = trees.size();
  int removed = 0;
  for (const Tree& tree : trees) {
    if (left <= kept || removed == removed_max || tree.made > young) return;
    if (used->contains(tree.path.filename())) continue;
    std::error_code error;
    fs::remove_all(tree.path, error);
    --left;
    ++removed;
  }
}

}  // namespace tulle::shim
