#include "live/process_state.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string_view>

#include "os/unique_fd.h"

namespace tulle::live {

// proc_pid_stat(5): the state is the letter behind the name, which may have parentheses itself. A
// first thread that has ended while others run is a zombie, and its process is not.
bool is_stopped(int process) {
  if (process <= 0) return true;
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", process);
  const UniqueFd file(open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!file) return true;
  std::array<char, 256> text{};
  const ssize_t count = read(file.get(), text.data(), text.size());
  if (count <= 0) return true;
  const std::string_view all(text.data(), static_cast<std::size_t>(count));
  const std::size_t end = all.rfind(')');
  if (end == std::string_view::npos || end + 2 >= all.size()) return true;
  const char state = all[end + 2];
  return state == 'T' || state == 't' || state == 'X';
}

}  // namespace tulle::live
