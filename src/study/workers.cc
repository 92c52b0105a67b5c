#include "study/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "base/quoted.h"
#include "base/write_best_effort.h"
#include "os/unique_fd.h"

namespace tulle::study {
namespace {

constexpr std::size_t failure_bytes_max = 4'096;
constexpr int tick_milliseconds = 200;
constexpr int misuse_status = 2;  // of a process

struct Worker {
  pid_t process = 0;
  std::size_t index = 0;
  UniqueFd says;  // readable when it has said why it failed, or has ended
  std::string text;
};

// Returns the last line of what a process has said.
std::string last_line(const std::string& text) {
  std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.rfind('\n', end);
  return one_line(text.substr(begin == std::string::npos ? 0 : begin + 1,
                              end - (begin == std::string::npos ? 0 : begin + 1) + 1));
}

std::string failure_of(int status, const std::string& text) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  const std::string said = last_line(text);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGKILL) return "its process was killed; there may be too little memory";
    return fmt::format("its process ended by signal {} ({}){}{}", signal, strsignal(signal),
                       said.empty() ? "" : ": ", said);
  }
  return said.empty() ? "its process failed without saying why" : said;
}

[[noreturn]] void be_worker(int says, pid_t parent, std::size_t index,
                            const std::function<Result<void>(std::size_t)>& work) {
  // A parent that is killed takes this process along. It may have ended before this call.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  std::signal(SIGINT, SIG_DFL);
  dup2(says, STDERR_FILENO);
  close(says);
  Result<void> done;
  try {
    done = work(index);
  } catch (const std::bad_alloc&) {
    done = Error{"there is too little memory"};
  } catch (const std::exception& error) {
    done = Error{error.what()};
  }
  if (done) _exit(0);
  const std::string& failure = done.error().message;
  write_best_effort(STDERR_FILENO, failure.data(), failure.size());
  _exit(done.error().is_misuse ? misuse_status : 1);
}

// Returns false, with the reason, if the system cannot start a process now.
bool start(std::vector<Worker>& workers, std::size_t index,
           const std::function<Result<void>(std::size_t)>& work, std::string& reason) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    reason = fmt::format("cannot make a pipe: {}", std::strerror(errno));
    return false;
  }
  UniqueFd reads(ends[0]);
  const UniqueFd writes(ends[1]);
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process == 0) be_worker(writes.get(), parent, index, work);
  if (process < 0) {
    reason = fmt::format("cannot start a process: {}", std::strerror(errno));
    return false;
  }
  workers.push_back({process, index, std::move(reads), {}});
  return true;
}

// Waits a moment for something to read. Returns the workers that have ended.
std::vector<Worker> wait_for(std::vector<Worker>& workers) {
  std::vector<pollfd> polled;
  polled.reserve(workers.size());
  for (const Worker& worker : workers) polled.push_back({worker.says.get(), POLLIN, 0});
  if (poll(polled.data(), polled.size(), tick_milliseconds) <= 0) return {};
  std::vector<Worker> over, left;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    Worker& worker = workers[i];
    bool has_ended = false;
    if (polled[i].revents != 0) {
      std::array<char, 1'024> some{};
      const ssize_t count = read(worker.says.get(), some.data(), some.size());
      has_ended = count == 0 || (count < 0 && errno != EINTR);
      if (count > 0) worker.text.append(some.data(), static_cast<std::size_t>(count));
      if (worker.text.size() > failure_bytes_max) {
        worker.text.erase(0, worker.text.size() - failure_bytes_max);
      }
    }
    (has_ended ? over : left).push_back(std::move(worker));
  }
  workers = std::move(left);
  return over;
}

}  // namespace

void on_processes(const std::vector<std::size_t>& indices, unsigned processes,
                  const std::function<Result<void>(std::size_t index)>& work,
                  const std::function<void(const WorkEnded&)>& ended,
                  const std::function<void(std::size_t running)>& tick,
                  const std::function<bool()>& goes_on) {
  std::signal(SIGCHLD, SIG_DFL);  // a process that ignores it cannot wait for others
  std::vector<Worker> workers;
  std::size_t next = 0;
  bool was_told = false;
  while (!workers.empty() || (next < indices.size() && goes_on())) {
    while (next < indices.size() && workers.size() < processes && goes_on()) {
      std::string reason;
      if (start(workers, indices[next], work, reason)) {
        ++next;
        continue;
      }
      // The system may have room again when one of those that run has ended.
      if (workers.empty()) ended({indices[next++], reason, false});
      break;
    }
    if (!goes_on() && !was_told) {
      for (const Worker& worker : workers) kill(worker.process, SIGINT);
      was_told = true;
    }
    for (const Worker& worker : wait_for(workers)) {
      int status = 0;
      pid_t ended_one = -1;
      do {
        ended_one = waitpid(worker.process, &status, 0);
      } while (ended_one < 0 && errno == EINTR);
      if (ended_one < 0) status = 1 << 8;  // as if it had failed
      const bool is_misuse = WIFEXITED(status) && WEXITSTATUS(status) == misuse_status;
      ended({worker.index, failure_of(status, worker.text), is_misuse});
    }
    tick(workers.size());
  }
}

}  // namespace tulle::study
