#include "live/path/memory/writer_hold.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/guarded_access.h"

namespace tulle::live {
namespace {

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)  // Linux 6.1
#endif

constexpr std::uint64_t hold_file_pages = 1 << 12;  // UFFD_FEATURE_WP_HUGETLBFS_SHMEM

UniqueFd open_userfaultfd() {
  UniqueFd fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (fd) return fd;
  const UniqueFd device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  if (device) fd.reset(ioctl(device.get(), USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK));
  return fd;
}

uffdio_range range_of(const std::byte* memory, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(memory), bytes};
}

// Maps each page, so that it can be protected. A page that was never written becomes the page of
// zeros. Returns false if some pages are not there.
bool touch(const std::byte* memory, std::size_t bytes) {
  constexpr std::size_t page_bytes = 4'096;  // on x86-64, the only machine with a direct path
  const std::span<const std::byte> where[] = {{memory, bytes}};
  return attempt(where, [&] {
    for (std::size_t at = 0; at < bytes; at += page_bytes) {
      static_cast<void>(*static_cast<const volatile std::byte*>(memory + at));
    }
  });
}

}  // namespace

Result<WriterHold> WriterHold::create() {
  UniqueFd fd = open_userfaultfd();
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | hold_file_pages;
  if (!fd || ioctl(fd.get(), UFFDIO_API, &api) != 0) {
    return Error{fmt::format("cannot hold other threads back: {}", std::strerror(errno)), errno};
  }
  return WriterHold(std::move(fd));
}

// The kernel protects pages of files also where they are not mapped yet.
bool WriterHold::begin(std::byte* memory, std::size_t bytes, Pages pages) {
  uffdio_register watched{};
  watched.range = range_of(memory, bytes);
  watched.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_.get(), UFFDIO_REGISTER, &watched) != 0) return false;
  memory_ = memory;
  bytes_ = bytes;
  uffdio_writeprotect protect{};
  protect.range = watched.range;
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  const bool is_there = pages == Pages::of_a_file || touch(memory, bytes);
  if (is_there && ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protect) == 0) return true;
  end();
  return false;
}

// If the pages have moved, nothing is registered here any more, and waking is all there is to do.
void WriterHold::end() {
  uffdio_writeprotect protect{};
  protect.range = range_of(memory_, bytes_);
  ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &protect);
  ioctl(fd_.get(), UFFDIO_UNREGISTER, &protect.range);
  ioctl(fd_.get(), UFFDIO_WAKE, &protect.range);
}

}  // namespace tulle::live
