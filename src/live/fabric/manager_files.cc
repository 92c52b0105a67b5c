#include "live/fabric/manager_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace tulle::live {
namespace {

Error failed(const char* what, const std::string& path) {
  const int number = errno;
  return {fmt::format("cannot {} {}: {}", what, path, std::strerror(number)), number};
}

// Returns whether others have the file open, too: then the kernel grants no lease of it. Returns
// nothing if there are no leases.
std::optional<bool> is_used(const UniqueFd& file) {
  if (fcntl(file.get(), F_SETLEASE, F_WRLCK) == 0) {
    fcntl(file.get(), F_SETLEASE, F_UNLCK);
    return false;
  }
  return errno == EAGAIN ? std::optional(true) : std::nullopt;
}

}  // namespace

ManagerFiles::~ManagerFiles() {
  for (std::uint32_t host = 0; host < files_.size(); ++host) unlink(path(host).c_str());
  if (events_) rmdir(folder_.c_str());
}

std::string ManagerFiles::path(std::uint32_t host) const {
  return folder_ + "/" + subnet_.name(host);
}

Result<void> ManagerFiles::open() {
  if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed("make the folder", folder_);
  }
  events_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events_) return failed("watch", folder_);
  for (std::uint32_t host = 0; host < subnet_.topology().adapters(); ++host) {
    const std::string file = path(host);
    UniqueFd made(::open(file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!made) return failed("make", file);
    // A program that opens the file while there is a lease makes the kernel send a signal, which
    // would end this process if it were the usual one.
    fcntl(made.get(), F_SETSIG, SIGURG);
    files_.push_back({std::move(made), -1, 0, false, false});
  }
  for (std::uint32_t host = 0; host < files_.size(); ++host) {
    files_[host].watch = inotify_add_watch(events_.get(), path(host).c_str(), IN_OPEN | IN_CLOSE);
    if (files_[host].watch < 0) return failed("watch", path(host));
  }
  // Nobody else has the first file open yet. Kernels before Linux 5.3 take the watch for a user.
  has_leases_ = !files_.empty() && is_used(files_.front().own) == false;
  return {};
}

void ManagerFiles::read(Time now) {
  constexpr int reads_in_a_turn = 4;
  alignas(inotify_event) std::array<std::byte, 4'096> bytes;
  bool has_read = false;
  for (int i = 0; i < reads_in_a_turn; ++i) {
    const ssize_t count = ::read(events_.get(), bytes.data(), bytes.size());
    if (count <= 0) break;
    take(std::span(bytes).first(static_cast<std::size_t>(count)));
    has_read = true;
  }
  if (!has_read) return;
  for (std::uint32_t host = 0; host < files_.size(); ++host) {
    File& file = files_[host];
    if (std::exchange(file.has_closed, false)) look(file);
    const bool is_manager = file.opened > 0;
    if (std::exchange(file.is_told, is_manager) != is_manager) tell_(now, host, is_manager);
  }
}

void ManagerFiles::take(std::span<const std::byte> events) {
  for (std::size_t at = 0; at + sizeof(inotify_event) <= events.size();) {
    inotify_event event;
    std::memcpy(&event, events.data() + at, sizeof event);
    at += sizeof event + event.len;
    for (File& file : files_) {
      const bool is_lost = (event.mask & IN_Q_OVERFLOW) != 0;
      if (!is_lost && file.watch != event.wd) continue;
      if ((event.mask & IN_OPEN) != 0) ++file.opened;
      if ((event.mask & IN_CLOSE) != 0 && file.opened > 0) --file.opened;
      if (is_lost && !has_leases_) file.opened = 0;
      file.has_closed = file.has_closed || is_lost || (event.mask & IN_CLOSE) != 0;
    }
  }
}

// Finds out whether somebody has the file open.
void ManagerFiles::look(File& file) const {
  const auto found = has_leases_ ? is_used(file.own) : std::nullopt;
  if (found) file.opened = *found ? std::max(file.opened, 1u) : 0;
}

}  // namespace tulle::live
