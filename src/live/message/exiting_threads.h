#pragma once

// Closes descriptors as the last thing that a thread does, in its own table of descriptors.
//
// The last close of a file may wait for as long as another user likes, and nothing ends that wait,
// not even SIGKILL. If that user has the file in an epoll instance, and lets the kernel copy an
// event to a page of the user's own file system, the close waits in eventpoll_release_file().
// While any thread waits, the kernel keeps the whole table of descriptors that it uses, with the
// sockets of a process that has died. So each such close is a thread's own, whose table has
// nothing else (close_range(2) with CLOSE_RANGE_UNSHARE, Linux 5.9).
//
// A file with a flush operation, as one of a user's own file system has, is worse: each removal
// from a table waits, not only the last close. Such a file must never get into the process's own
// table. So messages with descriptors of others are received by such a thread, too.
//
// A thread that exits does not wait for a peer either, whatever SO_LINGER says (inet_release looks
// for PF_EXITING). That includes files in the unread messages of a socket.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "os/unique_fd.h"

namespace tulle::live {

class ExitingThreads {
 public:
  // Linux copies a table of descriptors in steps of 64.
  static constexpr int numbers = 192;
  static constexpr std::size_t files_max = 128;  // for one thread

  // Takes all free numbers below `numbers`, so that no descriptor of anybody else gets into the
  // threads' tables. To be made before such descriptors come. Takes none in a process that may have
  // fewer than 1,024.
  ExitingThreads();

  // False if the threads cannot have their own tables here.
  bool is_possible() const { return is_possible_; }
  // Gives files to a thread that exits, after which they are closed here, and returns the thread's
  // number. Returns nothing, and leaves the files open, if there is no thread or no memory now, or
  // if it is impossible here. Any thread may call this.
  std::optional<pid_t> hand_over(std::span<UniqueFd> files);
  // Starts a thread that has only these files, at other numbers, does the work with them, and
  // exits. The work must not throw.
  using Work = std::function<void(std::span<const int> numbers)>;
  std::optional<pid_t> start(std::span<const int> files, Work work);
  // Returns true once such a thread has closed all.
  static bool has_ended(pid_t thread);

 private:
  struct Thread;
  std::optional<pid_t> start(std::span<const int> files, Work work, std::span<UniqueFd> ours);

  std::mutex mutex_;
  std::vector<UniqueFd> places_;  // in the lowest numbers
  std::atomic<bool> is_possible_ = false;
};

}  // namespace tulle::live
