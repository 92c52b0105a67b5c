#include "os/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "os/trusted_folder.h"

namespace tulle {
namespace {

namespace fs = std::filesystem;

Error error_at(const std::string& path, int number) {
  return Error{fmt::format("{}: {}", path, std::strerror(number)), number};
}

// Returns an errno, or 0.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written >= 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Returns the path without what makes the system follow a link at its end: "out/" and "out/.".
std::string without_ending(std::string path) {
  for (;;) {
    if (path.size() > 1 && path.ends_with('/')) {
      path.pop_back();
    } else if (path.ends_with("/.") && path.size() > 2) {
      path.resize(path.size() - 2);
    } else {
      return path;
    }
  }
}

}  // namespace

Result<OutputFolder> OutputFolder::open(const std::string& given) {
  const std::string path = without_ending(given);
  auto existing = open_existing(path);
  if (existing || existing.error().error_number != ENOENT) return existing;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return error_at(path, error.value());
  return open_existing(path);
}

// What is checked is what is opened, also if somebody replaces it meanwhile.
Result<OutputFolder> OutputFolder::open_existing(const std::string& given) {
  const std::string path = without_ending(given);
  const UniqueFd entry(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!entry || fstat(entry.get(), &status) != 0) return error_at(path, errno);
  const bool is_link = S_ISLNK(status.st_mode);
  if (is_link && !is_trusted(status.st_uid)) {
    return Error{
        fmt::format("{} is a link of another user: name the folder that it leads to", path), EPERM};
  }
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  UniqueFd fd(is_link ? ::open(path.c_str(), flags) : openat(entry.get(), ".", flags));
  if (!fd) return error_at(path, errno);
  return OutputFolder(std::move(fd), path);
}

Result<OutputFolder> OutputFolder::inner(const std::string& name, bool make) const {
  constexpr mode_t mode = 0777;
  if (make && mkdirat(fd_.get(), name.c_str(), mode) != 0 && errno != EEXIST) {
    return error_at(path_of(name), errno);
  }
  UniqueFd fd(openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd) return OutputFolder(std::move(fd), path_of(name));
  const int number = errno;
  struct stat status {};
  const bool is_link = fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                       S_ISLNK(status.st_mode);
  if (!is_link) return error_at(path_of(name), number);
  return Error{fmt::format("{} is a link, and results do not follow it", path_of(name)), ELOOP};
}

std::vector<std::string> OutputFolder::names() const {
  std::vector<std::string> names;
  UniqueFd again(openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(fdopendir(again.get()), closedir);
  if (all == nullptr) return names;
  again.release();
  while (const dirent* entry = readdir(all.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

std::string OutputFolder::path_of(const std::string& name) const {
  return (fs::path(path_) / name).string();
}

// Returns an errno, or 0. A file that is there already is not used.
int OutputFolder::write_new(const std::string& name, std::string_view text) const {
  remove(name);
  constexpr mode_t mode = 0666;
  UniqueFd file = open_file(name, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (!file) return errno;
  const int error = write_all(file.get(), text);
  // A full disk may show only now.
  const int closed = ::close(file.release()) == 0 ? 0 : errno;
  return error != 0 ? error : closed;
}

Result<void> OutputFolder::write(const std::string& name, const std::string& text) const {
  const std::string part = name + ".part";
  int error = write_new(part, text);
  if (error == 0 && renameat(fd_.get(), part.c_str(), fd_.get(), name.c_str()) != 0) error = errno;
  if (error == 0) return {};
  remove(part);
  return error_at(path_of(name), error);
}

std::optional<std::string> OutputFolder::read(const std::string& name,
                                              std::size_t bytes_max) const {
  const UniqueFd file = open_file(name, O_RDONLY | O_NONBLOCK, 0);
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (static_cast<std::size_t>(status.st_size) > bytes_max) return {};
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t have = 0; have < text.size();) {
    const ssize_t count = ::read(file.get(), text.data() + have, text.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {};
    have += static_cast<std::size_t>(count);
  }
  return text;
}

UniqueFd OutputFolder::open_file(const std::string& name, int flags, mode_t mode) const {
  return UniqueFd(openat(fd_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode));
}

void OutputFolder::remove(const std::string& name) const { unlinkat(fd_.get(), name.c_str(), 0); }

void OutputFolder::remove_folder(const std::string& name) const {
  unlinkat(fd_.get(), name.c_str(), AT_REMOVEDIR);
}

}  // namespace tulle
