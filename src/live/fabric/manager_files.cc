#include "live/fabric/manager_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tulle::live {
namespace {

Error failed(const char* what, const std::string& path) {
  const int number = errno;
  return {fmt::format("cannot {} {}: {}", what, path, std::strerror(number)), number};
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
    const UniqueFd made(::open(file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!made) return failed("make", file);
  }
  for (std::uint32_t host = 0; host < subnet_.topology().adapters(); ++host) {
    const int watch = inotify_add_watch(events_.get(), path(host).c_str(), IN_OPEN | IN_CLOSE);
    if (watch < 0) return failed("watch", path(host));
    files_.push_back({watch, 0});
  }
  return {};
}

void ManagerFiles::read(Time now) {
  alignas(inotify_event) std::array<std::byte, 4'096> bytes;
  for (;;) {
    const ssize_t count = ::read(events_.get(), bytes.data(), bytes.size());
    if (count <= 0) return;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(count);) {
      inotify_event event;
      std::memcpy(&event, bytes.data() + at, sizeof event);
      at += sizeof event + event.len;
      const auto file =
          std::find_if(files_.begin(), files_.end(),
                       [watch = event.wd](const File& each) { return each.watch == watch; });
      if (file == files_.end()) continue;
      if ((event.mask & IN_OPEN) != 0) ++file->opened;
      if ((event.mask & IN_CLOSE) != 0 && file->opened > 0) --file->opened;
      tell_(now, static_cast<std::uint32_t>(file - files_.begin()), file->opened > 0);
    }
  }
}

}  // namespace tulle::live
