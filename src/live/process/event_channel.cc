#include "live/process/event_channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace tulle::live {

namespace {

// Takes one off the count if it is not zero, whether or not the descriptor blocks. (RWF_NOWAIT is a
// flag of the call. Before Linux 5.8 eventfd does not know it, and a reader that comes between
// poll() and read() makes this call wait.)
void take_one_off(int fd) {
  std::uint64_t one;
  iovec piece{&one, sizeof(one)};
  if (preadv2(fd, &piece, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
  pollfd readable{fd, POLLIN, 0};
  if (poll(&readable, 1, 0) <= 0) return;
  [[maybe_unused]] const ssize_t taken = read(fd, &one, sizeof(one));
}

}  // namespace

// The descriptor is an eventfd that counts the waiting events: it is readable while there are any,
// and each read takes one off. The application's O_NONBLOCK and its signals thus act on the read
// itself.
Result<std::unique_ptr<EventChannel>> EventChannel::create() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (fd < 0) return Error{"cannot make an event channel (eventfd)", errno};
  return std::unique_ptr<EventChannel>(new EventChannel(fd));
}

EventChannel::~EventChannel() { close(fd_); }

void EventChannel::reserve(std::size_t events) {
  const std::lock_guard lock(mutex_);
  items_.reserve(static_cast<std::uint32_t>(events));
}

bool EventChannel::push(Item item) {
  const std::lock_guard lock(mutex_);
  try {
    items_.push(item);
  } catch (const std::bad_alloc&) {
    return false;
  }
  const std::uint64_t one = 1;
  // The write fails only at 2^64 - 2 waiting events.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  return true;
}

int EventChannel::pop(Item& item) {
  for (;;) {
    std::uint64_t one;
    if (read(fd_, &one, sizeof(one)) < 0) return errno;
    const std::lock_guard lock(mutex_);
    if (items_.empty()) continue;  // forgotten between the read and the lock
    item = items_.front();
    items_.pop();
    return 0;
  }
}

int EventChannel::forget(void* object) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t before = items_.size();
  items_.erase_if([&](const Item& item) { return item.object == object; });
  const auto count = static_cast<int>(before - items_.size());
  // A reader may already have taken the count of a forgotten event and be waiting for the lock. It
  // then finds fewer events than it expects, and reads again.
  for (int i = 0; i < count; ++i) take_one_off(fd_);
  return count;
}

}  // namespace tulle::live
