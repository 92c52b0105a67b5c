#include "os/trusted_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/own_group.h"
#include "base/split.h"
#include "os/path_trust.h"
#include "os/system_error.h"
#include "os/unique_fd.h"

namespace tulle {
namespace {

namespace fs = std::filesystem;

bool others_may_write(const struct stat& its) {
  return (its.st_mode & S_IWOTH) != 0 ||
         ((its.st_mode & S_IWGRP) != 0 && !is_own_group(its.st_gid));
}

PathEntry entry_of(const struct stat& its, const std::string& path) {
  return {path, its.st_uid, others_may_write(its), (its.st_mode & S_ISVTX) != 0};
}

PathTrust trust_with(uid_t also) { return PathTrust(geteuid(), user_numbers(), also); }

// Shows the judge each folder of a path. Returns the path without links.
Result<std::string> walk(const std::string& path, PathTrust& trust) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (!real) return system_error("cannot use the folder " + path);
  const fs::path whole = real.get();
  constexpr int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  // Each folder is looked at before the next is opened in it. What has been looked at stays.
  UniqueFd folder(open("/", flags));
  struct stat its {};
  if (!folder || fstat(folder.get(), &its) != 0) return system_error("cannot use the folder /");
  fs::path seen = "/";
  std::string fault = trust.next(entry_of(its, seen));
  for (const fs::path& name : whole.relative_path()) {
    if (!fault.empty()) break;
    folder.reset(openat(folder.get(), name.c_str(), flags));
    seen /= name;
    if (!folder || fstat(folder.get(), &its) != 0) {
      return system_error("cannot use the folder " + seen.string());
    }
    fault = trust.next(entry_of(its, seen));
  }
  if (!fault.empty()) return Error{std::move(fault), EPERM};
  return whole.string();
}

Result<std::string> folder_trusted_with(const std::string& path, uid_t also) {
  PathTrust trust = trust_with(also);
  auto whole = walk(path, trust);
  if (!whole) return whole;
  if (std::string fault = trust.fault_of_last(); !fault.empty()) {
    return Error{std::move(fault), EPERM};
  }
  return whole;
}

Result<std::string> file_trusted_with(const std::string& path, uid_t also) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (!real) return system_error("cannot use the file " + path);
  const fs::path whole = real.get();
  PathTrust trust = trust_with(also);
  auto above = walk(whole.parent_path(), trust);
  if (!above) return above;
  struct stat its {};
  if (lstat(whole.c_str(), &its) != 0) return system_error("cannot use the file " + path);
  its.st_mode &= ~static_cast<mode_t>(S_ISVTX);  // of a file, it says nothing of its writers
  std::string fault = trust.next(entry_of(its, whole));
  if (fault.empty()) fault = trust.fault_of_last();
  if (!fault.empty()) return Error{std::move(fault), EPERM};
  return whole.string();
}

}  // namespace

Result<std::string> trusted_folder(const std::string& path) { return folder_trusted_with(path, 0); }

Result<std::string> trusted_parent(const std::string& path) {
  PathTrust trust = trust_with(0);
  return walk(path, trust);
}

Result<std::string> trusted_file(const std::string& path) { return file_trusted_with(path, 0); }

Result<std::string> trusted_like(const std::string& path, const std::string& own) {
  struct stat its {};
  if (stat(own.c_str(), &its) != 0) return system_error("cannot use the file " + own);
  const uid_t owner = its.st_uid;
  if (stat(path.c_str(), &its) != 0) return system_error("cannot use " + path);
  auto found =
      S_ISDIR(its.st_mode) ? folder_trusted_with(path, owner) : file_trusted_with(path, owner);
  if (!found && !file_trusted_with(own, owner)) return path;
  return found;
}

std::vector<std::string> programs_in(std::string_view folders, const std::string& name) {
  std::vector<std::string> found;
  for (const std::string_view folder : split(folders, ':')) {
    const fs::path file = fs::path(folder) / name;
    std::error_code ignored;
    if (file.is_absolute() && access(file.c_str(), X_OK) == 0 &&
        fs::is_regular_file(file, ignored)) {
      found.push_back(file.string());
    }
  }
  return found;
}

Result<std::string> find_program(const std::string& name) {
  const char* path = secure_getenv("PATH");
  Error why{std::strerror(ENOENT), ENOENT};
  for (const std::string& program :
       programs_in(path == nullptr ? "/usr/sbin:/usr/bin:/sbin:/bin" : path, name)) {
    if (geteuid() != 0) return program;
    auto trusted = trusted_file(program);
    if (trusted) return trusted;
    why = trusted.error();
  }
  return why;
}

Result<std::string> private_folder(const std::string& path) {
  const fs::path given = path;
  if (!is_known_user(geteuid())) {
    return Error{fmt::format("cannot use {}: what belongs to {} may be another user's", path,
                             user_text(geteuid())),
                 EPERM};
  }
  auto above = trusted_parent(given.parent_path());
  if (!above) return above;
  std::string whole = fs::path(*above) / given.filename();
  if (mkdir(whole.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return system_error("cannot make the folder " + whole);
  }
  struct stat its {};
  if (lstat(whole.c_str(), &its) != 0 || !S_ISDIR(its.st_mode) || its.st_uid != geteuid() ||
      others_may_write(its)) {
    return Error{fmt::format("{} must be a folder that only this user can write to: remove it, and "
                             "Tulle makes a new one",
                             whole),
                 EPERM};
  }
  return whole;
}

}  // namespace tulle
