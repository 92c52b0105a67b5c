#pragma once

// While packets come by memory, most polls leave the sockets out, since a look costs a system call.

#include <algorithm>
#include <cstdint>

namespace tulle::live {

class SocketPace {
 public:
  static constexpr std::uint32_t polls_between_max = 63;

  // The next poll includes the sockets; and so do those after it.
  void look_now() { to_next_ = 0; }
  void reset() { between_ = to_next_ = 0; }
  // Packets came by memory. `is_looked_after` says that somebody polls the sockets.
  void note_memory(bool is_looked_after) {
    between_ = is_looked_after ? std::min(between_ * 2 + 1, polls_between_max) : 0;
  }
  // Begins a poll. Returns true if it leaves the sockets out.
  bool leaves_out() {
    if (to_next_ > 0) {
      --to_next_;
      return true;
    }
    to_next_ = between_;
    return false;
  }

 private:
  std::uint32_t between_ = 0;
  std::uint32_t to_next_ = 0;
};

}  // namespace tulle::live
