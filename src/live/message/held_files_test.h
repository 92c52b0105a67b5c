#pragma once

// Files whose last close waits for as long as a test likes, as another user can arrange it
// (exiting_threads.h).

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_test.h"
#include "os/unique_fd.h"

namespace tulle::live {

// While this object exists, the last close of a file that it holds waits. The caller is in a mount
// namespace and user namespace in which it may mount.
class HeldFiles {
 public:
  HeldFiles() {
    device_.reset(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    const UniqueFd file(open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    if (!device_ || !epoll_ || !file || unshare(CLONE_NEWNS) != 0) return;
    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    const std::string options =
        "fd=" + std::to_string(device_.get()) + ",rootmode=100000,user_id=0,group_id=0";
    if (mount("held", path_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) return;
    is_mounted_ = true;
    answering_ = std::thread([this] { answer(); });
    begin();
  }
  ~HeldFiles() { release(); }
  HeldFiles(const HeldFiles&) = delete;
  HeldFiles& operator=(const HeldFiles&) = delete;

  // False if files cannot be held here: there is no FUSE, or no right to mount.
  bool is_possible() const { return is_possible_; }
  // Returns the file of the user's own file system. It never answers a flush if so told.
  UniqueFd own_file() const { return UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC)); }
  void withhold_flushes() { withholds_flushes_ = true; }

  // Adds a file that can be polled. To be called before hold().
  bool add(int fd) {
    epoll_event event{};
    event.events = EPOLLERR;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  // Holds all files that were added. Returns false if that fails.
  [[nodiscard]] bool hold() {
    int ends[2];
    if (!is_possible_ || pipe2(ends, O_CLOEXEC) != 0) return false;
    readable_.reset(ends[0]);
    writable_.reset(ends[1]);
    epoll_event event{};
    event.events = EPOLLIN;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, readable_.get(), &event);
    if (write(writable_.get(), "", 1) != 1) return false;
    waiting_ = std::thread([this] { syscall(SYS_epoll_wait, epoll_.get(), page_, 4, -1); });
    for (int i = 0; i < 50'000 && !is_held_; ++i) usleep(100);
    return is_held_;
  }
  void release() {
    if (is_mounted_) umount2(path_.c_str(), MNT_FORCE | MNT_DETACH);
    is_mounted_ = false;
    if (waiting_.joinable()) waiting_.join();
    if (page_ != nullptr) munmap(page_, page_bytes);
    page_ = nullptr;
    if (answering_.joinable()) answering_.join();
  }

 private:
  static constexpr std::size_t page_bytes = 4'096;

  void begin() {
    const UniqueFd file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    struct stat of_file {};  // the kernel asks for the file's length now, and not later
    if (!file || fstat(file.get(), &of_file) != 0) return;
    void* const page =
        mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
    if (page == MAP_FAILED) return;
    page_ = page;
    is_possible_ = true;
  }

  // Serves a file of one page, which nobody can read.
  void answer() {
    std::vector<std::byte> room(1 << 18);
    for (;;) {
      const ssize_t bytes = read(device_.get(), room.data(), room.size());
      if (bytes < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
      fuse_in_header in;
      std::memcpy(&in, room.data(), sizeof in);
      struct {
        fuse_out_header header;
        union {
          fuse_init_out init;
          fuse_attr_out attributes;
          fuse_open_out opened;
        };
      } out;
      std::memset(&out, 0, sizeof out);
      std::size_t size = 0;
      if (in.opcode == FUSE_INIT) {
        out.init.major = FUSE_KERNEL_VERSION;
        out.init.minor = 31;
        out.init.max_write = page_bytes;
        size = sizeof out.init;
      } else if (in.opcode == FUSE_GETATTR) {
        out.attributes.attr_valid = 1'000;
        out.attributes.attr.ino = 1;
        out.attributes.attr.mode = S_IFREG | 0600;
        out.attributes.attr.size = page_bytes;
        out.attributes.attr.nlink = 1;
        size = sizeof out.attributes;
      } else if (in.opcode == FUSE_OPEN) {
        size = sizeof out.opened;
      } else if (in.opcode == FUSE_READ) {
        is_held_ = true;
        continue;
      } else if (in.opcode == FUSE_FORGET || in.opcode == FUSE_INTERRUPT ||
                 (in.opcode == FUSE_FLUSH && withholds_flushes_)) {
        continue;
      } else if (in.opcode != FUSE_FLUSH && in.opcode != FUSE_RELEASE) {
        out.header.error = -ENOSYS;
      }
      out.header.unique = in.unique;
      out.header.len = static_cast<std::uint32_t>(sizeof out.header + size);
      if (write(device_.get(), &out, out.header.len) < 0) return;
    }
  }

  Folder folder_;
  std::string path_ = folder_.path("held");
  UniqueFd device_, epoll_, readable_, writable_;
  void* page_ = nullptr;
  bool is_mounted_ = false;
  bool is_possible_ = false;
  std::atomic<bool> is_held_ = false;
  std::atomic<bool> withholds_flushes_ = false;
  std::thread answering_, waiting_;
};

}  // namespace tulle::live
