#pragma once

// Closes descriptors as the last thing that a thread does.
//
// Linux waits for no peer when it closes the files of a thread that exits, whatever SO_LINGER says
// (inet_release looks for PF_EXITING). That includes files in the unread messages of a socket. A
// thread usually shares its process's descriptors, so the exiting one gets a separate table
// (close_range(2) with CLOSE_RANGE_UNSHARE, Linux 5.9), which has little more than what it shall
// close. A file with a flush operation, as that of a user's own file system, is waited for all the
// same, and belongs nowhere here: only sockets, whatever their messages carry.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

namespace tulle::live {

class ExitingThreads {
 public:
  // Linux copies a table of descriptors in steps of so many.
  static constexpr int numbers = 64;
  static constexpr std::size_t sockets_max = 32;          // for one thread
  static constexpr std::ptrdiff_t threads_of_sender = 4;  // at once

  // Takes all free numbers below `numbers`, so that no descriptor of anybody else gets into the
  // threads' tables. To be made before such descriptors come. Takes none in a process that may have
  // fewer than 1,024.
  ExitingThreads();

  // Gives a sender's sockets to a thread that exits, after which they are closed here. Waits while
  // the sender has its share of threads that have not yet ended. Returns false if it is impossible
  // here, and leaves the sockets open. Any thread may call this.
  bool close(std::uint32_t sender, std::span<UniqueFd> sockets);

 private:
  struct Thread;
  bool has_many(std::uint32_t sender);
  pid_t hand_over(std::span<UniqueFd> sockets);

  std::mutex mutex_;
  std::vector<UniqueFd> places_;                          // in the lowest numbers
  std::vector<std::pair<std::uint32_t, pid_t>> exiting_;  // by sender
  bool is_possible_ = true;
};

}  // namespace tulle::live
