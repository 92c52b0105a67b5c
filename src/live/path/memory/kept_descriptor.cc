#include "live/path/memory/kept_descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace tulle::live {
namespace {

// select(2) takes numbers below FD_SETSIZE, which is 1,024. The kernel keeps tables up to the
// highest number, so that this is not higher than it needs to be.
int lowest_high_number() {
  constexpr rlim_t enough = 1'024;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0
             ? static_cast<int>(std::min(limit.rlim_cur / 2, enough))
             : 0;
}

}  // namespace

KeptDescriptor::KeptDescriptor(UniqueFd fd) {
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  const int high = fcntl(fd.get(), F_DUPFD_CLOEXEC, lowest_high_number());
  fd_ = high >= 0 ? high : fd.release();
}

KeptDescriptor::~KeptDescriptor() {
  if (is_intact()) close(fd_);
}

bool is_open_on(int fd, dev_t device, std::uint64_t inode) {
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

}  // namespace tulle::live
