#pragma once

// A folder that results are written to, by its descriptor. Other users may write there too: no link
// below it is followed, and no file is used that is no regular one.

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/unique_fd.h"

namespace tulle {

class OutputFolder {
 public:
  OutputFolder() = default;  // no folder

  // Opens a folder, and makes it and those above if they do not exist. The path may be a link, if
  // it is this user's or root's. The error is one line.
  static Result<OutputFolder> open(const std::string& path);
  // Does the same, and makes none.
  static Result<OutputFolder> open_existing(const std::string& path);
  // Opens a folder in this one, which is no link. `make` makes it if it does not exist. The error
  // is one line; its error_number is ENOENT if there is none.
  Result<OutputFolder> inner(const std::string& name, bool make) const;

  explicit operator bool() const { return static_cast<bool>(fd_); }
  const std::string& path() const { return path_; }  // for people

  // Returns what is in it, in no order, without "." and "..".
  std::vector<std::string> names() const;
  // Writes a new file in place of what has that name. The error is one line that begins with the
  // file's path.
  Result<void> write(const std::string& name, const std::string& text) const;
  // Returns the text of a regular file; nothing if it is longer or there is none.
  std::optional<std::string> read(const std::string& name, std::size_t bytes_max) const;
  // Opens a file as openat() does, without following a link.
  UniqueFd open_file(const std::string& name, int flags, mode_t mode) const;
  // Remove a file, or an empty folder, if they can.
  void remove(const std::string& name) const;
  void remove_folder(const std::string& name) const;

 private:
  OutputFolder(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  std::string path_of(const std::string& name) const;
  int write_new(const std::string& name, std::string_view text) const;

  UniqueFd fd_;
  std::string path_;
};

}  // namespace tulle
