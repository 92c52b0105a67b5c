#include "study/report/gnuplot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/trusted_folder.h"

namespace tulle::report {
namespace {

// A file in memory, which is closed with this object.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("tulle", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(descriptor_, text.data(), text.size());
      if (n < 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0;
  }
  std::string read() {
    std::string text;
    lseek(descriptor_, 0, SEEK_SET);
    std::array<char, 4096> buffer;
    for (ssize_t n; (n = ::read(descriptor_, buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  int descriptor_;
};

// Returns the last line of gnuplot's complaints.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

}  // namespace

bool has_gnuplot() { return bool(find_program("gnuplot")); }

Result<std::string> run_gnuplot(const std::string& script) {
  MemoryFile in;
  MemoryFile out;
  MemoryFile complaints;
  if (!in.write(script)) {
    return Error{fmt::format("cannot prepare gnuplot's input: {}", std::strerror(errno))};
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, complaints.descriptor(), STDERR_FILENO);
  // gnuplot runs without the user's settings, and in a locale whose decimal separator is a point.
  std::string name = "gnuplot";
  std::string defaults = "-d";
  std::array<char*, 3> arguments = {name.data(), defaults.data(), nullptr};
  std::string locale = "LC_ALL=C.UTF-8";
  auto program = find_program("gnuplot");
  if (!program) return Error{fmt::format("cannot run gnuplot: {}", program.error().message)};
  const char* path = getenv("PATH");
  std::string search = fmt::format("PATH={}", path == nullptr ? "" : path);
  std::array<char*, 3> environment = {locale.data(), search.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, program->c_str(), &actions, nullptr, arguments.data(),
                                environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Error{fmt::format("cannot run gnuplot: {}", std::strerror(error))};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string text = out.read();
  if (status == 0 && text.find("</svg>") != std::string::npos) return text;
  const std::string said = last_line(complaints.read());
  return Error{fmt::format("gnuplot drew no picture: {}",
                           said.empty() ? "it ended without a message" : said)};
}

}  // namespace tulle::report
