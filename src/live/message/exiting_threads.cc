#include "live/message/exiting_threads.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <exception>
#include <memory>
#include <semaphore>
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
  std::binary_semaphore may_go_on{0};
  int error = 0;
  pid_t number = 0;
};

ExitingThreads::ExitingThreads() {
  if (file_limit() < descriptors_min) return;
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return;
  for (;;) {
    UniqueFd place(fcntl(null.get(), F_DUPFD_CLOEXEC, 0));
    if (!place || place.get() >= numbers) break;
    places_.push_back(std::move(place));
  }
  is_possible_ = places_.size() > 1;
}

// A thread that has closed all is no thread of this process any more. Joining does not wait so
// long.
bool ExitingThreads::has_ended(pid_t thread) {
  return syscall(SYS_tgkill, getpid(), thread, 0) != 0;
}

std::optional<pid_t> ExitingThreads::hand_over(std::span<UniqueFd> files) {
  std::array<int, files_max> numbers_here;
  if (files.size() > numbers_here.size()) return std::nullopt;
  std::ranges::transform(files, numbers_here.begin(), &UniqueFd::get);
  return start(std::span(numbers_here).first(files.size()), {}, files);
}

std::optional<pid_t> ExitingThreads::start(std::span<const int> files, Work work) {
  return start(files, std::move(work), {});
}

// Until the thread continues, it has no file's last descriptor. `ours` are closed before.
std::optional<pid_t> ExitingThreads::start(std::span<const int> files, Work work,
                                           std::span<UniqueFd> ours) {
  const std::lock_guard lock(mutex_);
  if (!is_possible_ || places_.size() <= files.size()) return std::nullopt;
  std::vector<int> there;
  const auto fill = [&](auto&& from) {
    for (std::size_t i = 0; i < files.size(); ++i) dup3(from(i), places_[i].get(), O_CLOEXEC);
  };
  const auto null = [this](std::size_t) { return places_.back().get(); };
  std::shared_ptr<Thread> started;
  try {
    for (std::size_t i = 0; i < files.size(); ++i) there.push_back(places_[i].get());
    started = std::make_shared<Thread>();
    fill([&](std::size_t i) { return files[i]; });
    // The thread's own reference keeps the semaphores until it has returned from them.
    std::thread([thread = started, does = std::move(work), numbers_there = std::move(there)] {
      thread->number = static_cast<pid_t>(syscall(SYS_gettid));
      thread->error = syscall(SYS_close_range, numbers, UINT_MAX, unshare) == 0 ? 0 : errno;
      const bool is_separate = thread->error == 0;
      thread->has_table.release();
      thread->may_go_on.acquire();
      if (is_separate && does) does(numbers_there);
    }).detach();
  } catch (const std::exception&) {
    fill(null);
    return std::nullopt;  // there is no memory, or no thread
  }
  started->has_table.acquire();
  fill(null);
  const int error = started->error;
  const pid_t number = started->number;
  if (error == 0) {
    for (UniqueFd& file : ours) file.reset();
  }
  started->may_go_on.release();
  if (error == ENOSYS || error == EINVAL || error == EPERM) is_possible_ = false;
  return error == 0 ? std::optional(number) : std::nullopt;
}

}  // namespace tulle::live
