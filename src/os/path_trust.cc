#include "os/path_trust.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace tulle {
namespace {

// Returns true for files in the folders of a system's packages. Administrators give folders in
// /opt, /srv and /usr/local to other users.
bool is_of_packages(const std::string& path) {
  constexpr std::array<std::string_view, 7> folders = {"bin",    "lib",  "lib32", "lib64",
                                                       "libx32", "sbin", "usr"};
  const std::filesystem::path below = std::filesystem::path(path).relative_path();
  auto name = below.begin();
  if (name == below.end() || std::ranges::find(folders, name->string()) == folders.end()) {
    return false;
  }
  const bool is_in_usr = *name == "usr";
  ++name;
  return !is_in_usr || name == below.end() || *name != "local";
}

}  // namespace

bool PathTrust::trusts(uid_t user) const {
  return numbers_.is_known(user) &&
         (user == 0 || user == own_ || user == owner_of_all_ || user == also_);
}

std::string PathTrust::belongs() const {
  return fmt::format("{} belongs to {}", last_.path, user_text(last_.owner, numbers_));
}

std::string PathTrust::next(const PathEntry& entry) {
  if (!owner_of_all_) owner_of_all_ = entry.owner;
  last_ = entry;
  const bool is_trusted = trusts(entry.owner);
  const bool may_be_roots = entry.owner == owner_of_all_ && !is_below_trusted_;
  if (!is_trusted && !may_be_roots) return belongs();
  if (entry.others_may_write && !entry.is_sticky) {
    return fmt::format("other users may write to {}", entry.path);
  }
  is_below_trusted_ = is_below_trusted_ || is_trusted;
  is_open_to_others_ = is_open_to_others_ || entry.others_may_write;
  return {};
}

std::string PathTrust::fault_of_last() const {
  const bool is_roots = is_of_packages(last_.path) && !is_open_to_others_;
  return trusts(last_.owner) || is_roots ? "" : belongs();
}

}  // namespace tulle
