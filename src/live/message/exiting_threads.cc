#include "live/message/exiting_threads.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <memory>
#include <semaphore>
#include <system_error>
#include <thread>
#include <utility>

#include "os/service_process.h"

namespace tulle::live {
namespace {

constexpr std::size_t descriptors_min = 1'024;
constexpr unsigned unshare = 1u << 1;  // CLOSE_RANGE_UNSHARE, which some headers lack

}  // namespace

struct ExitingThreads::Thread {
  std::binary_semaphore has_table{0};
  std::binary_semaphore may_exit{0};
  bool is_separate = false;
  pid_t number = 0;
};

ExitingThreads::ExitingThreads() {
  if (file_limit() < descriptors_min) return;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return;
  for (;;) {
    UniqueFd place(fcntl(null.get(), F_DUPFD_CLOEXEC, 0));
    if (!place || place.get() >= numbers) return;
    places_.push_back(std::move(place));
  }
}

bool ExitingThreads::close(std::uint32_t sender, std::span<UniqueFd> sockets) {
  constexpr useconds_t pause = 1'000;
  std::unique_lock lock(mutex_);
  while (has_many(sender)) {
    lock.unlock();
    usleep(pause);
    lock.lock();
  }
  if (!is_possible_ || places_.size() <= sockets.size()) return false;
  try {
    exiting_.reserve(exiting_.size() + 1);
    const pid_t thread = hand_over(sockets);
    if (!is_possible_) return false;
    exiting_.emplace_back(sender, thread);
    return true;
  } catch (const std::exception&) {
    return false;  // there is no memory, or no thread
  }
}

// A thread that has closed all is no thread of this process any more. Joining does not wait so
// long.
bool ExitingThreads::has_many(std::uint32_t sender) {
  std::erase_if(exiting_, [](const auto& each) {
    return syscall(SYS_tgkill, getpid(), each.second, 0) != 0;
  });
  return std::ranges::count(exiting_, sender, &std::pair<std::uint32_t, pid_t>::first) >=
         threads_of_sender;
}

// Returns the thread's number. Until the thread exits, it has no file's last descriptor.
pid_t ExitingThreads::hand_over(std::span<UniqueFd> sockets) {
  const auto started = std::make_shared<Thread>();
  const auto fill = [&](auto&& from) {
    for (std::size_t i = 0; i < sockets.size(); ++i) dup3(from(i), places_[i].get(), O_CLOEXEC);
  };
  const auto null = [this](std::size_t) { return places_.back().get(); };
  fill([&](std::size_t i) { return sockets[i].get(); });
  try {
    // The thread's own reference keeps the semaphores until it has returned from them.
    std::thread([thread = started] {
      thread->number = static_cast<pid_t>(syscall(SYS_gettid));
      thread->is_separate = syscall(SYS_close_range, numbers, UINT_MAX, unshare) == 0;
      thread->has_table.release();
      thread->may_exit.acquire();
    }).detach();
  } catch (const std::system_error&) {
    fill(null);
    throw;
  }
  started->has_table.acquire();
  fill(null);
  is_possible_ = started->is_separate;
  if (is_possible_) {
    for (UniqueFd& socket : sockets) socket.reset();
  }
  started->may_exit.release();
  return started->number;
}

}  // namespace tulle::live
