// Starts a host agent from within any program, without touching the program's descriptors, signals
// or memory.

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "live/process/agent_client.h"
#include "os/trusted_folder.h"

namespace tulle::live {
namespace {

constexpr int start_milliseconds = 10'000;

// Returns the path of the file that contains this code: a shared library or the program.
std::string own_file() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&start_agent), &info) == 0) return {};
  std::error_code error;
  const auto path = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::string() : path.string();
}

bool is_executable(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// Returns the environment without LD_PRELOAD. Preloaded libraries are meant for the program, not
// for an agent that outlives it. The agent seals as the program does, which may have cleared its
// environment.
std::vector<std::string> agent_environment(const Settings& settings) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("TULLE_AGENT=") &&
        !text.starts_with("TULLE_SECURE=")) {
      environment.emplace_back(text);
    }
  }
  environment.push_back("TULLE_AGENT=" + settings.agent);
  environment.push_back("TULLE_SECURE=" + settings.secure);
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

int spawn(const std::string& executable, const Settings& settings, int output, pid_t& pid) {
  std::vector<std::string> arguments = {executable, "agent", "--on-demand"};
  std::vector<std::string> environment = agent_environment(settings);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid, executable.c_str(), &actions, &attributes,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Returns the agent's output until it is ready or closes the pipe.
std::string read_report(int fd) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(start_milliseconds);
  std::string report;
  while (report.find("ready\n") == std::string::npos && report.size() < 4096) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd readable{fd, POLLIN, 0};
    if (left <= 0) return report + "it did not answer in ten seconds";
    if (poll(&readable, 1, static_cast<int>(left)) <= 0) continue;
    char text[512];
    const ssize_t bytes = read(fd, text, sizeof(text));
    if (bytes <= 0) break;
    report.append(text, static_cast<std::size_t>(bytes));
  }
  return report;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// A link may have led to a shell.
bool is_called_tulle(const std::string& file) {
  return std::filesystem::path(file).filename() == "tulle";
}

// Returns the program in the folders near this library or program, or nothing.
std::string executable_beside() {
  const std::filesystem::path here = std::filesystem::path(own_file()).parent_path();
  // An installed library is in lib/tulle or lib, an installed program in bin, and a library in a
  // build folder in lib/shim.
  for (const char* relative : {"tulle", "../bin/tulle", "../../bin/tulle", "../../../bin/tulle"}) {
    const std::string candidate = (here / relative).lexically_normal().string();
    if (here.empty() || !is_executable(candidate)) continue;
    // Another user may have made it where the library was copied to.
    auto trusted = trusted_like(candidate, own_file());
    if (trusted && is_called_tulle(*trusted)) return *trusted;
  }
  return {};
}

}  // namespace

Result<std::string> find_executable(const Settings& settings) {
  const std::string beside = executable_beside();
  if (!settings.executable.empty()) {
    if (!is_executable(settings.executable)) {
      return Error{fmt::format("TULLE_EXECUTABLE={} is no executable file", settings.executable),
                   ENOENT};
    }
    // su keeps the variable, which may be another user's: it may name a shell, or a link that leads
    // elsewhere at the next moment.
    auto trusted = trusted_file(settings.executable);
    const std::string reason = !trusted                    ? trusted.error().message
                               : is_called_tulle(*trusted) ? ""
                                                           : "it is not called tulle";
    if (reason.empty()) return trusted;
    // Without the variable, the same program would be started.
    std::error_code error;
    const bool is_same = std::filesystem::equivalent(settings.executable, beside, error);
    if (!error && is_same) return beside;
    return Error{fmt::format("TULLE_EXECUTABLE={} is not started: {}", settings.executable, reason),
                 EPERM};
  }
  if (!beside.empty()) return beside;
  const char* path = secure_getenv("PATH");  // a set-uid program must not search there
  for (const std::string& candidate : programs_in(path == nullptr ? "" : path, "tulle")) {
    auto trusted = trusted_file(candidate);
    if (trusted && is_called_tulle(*trusted)) return trusted;
  }
  return Error{
      "cannot find the `tulle` executable to start an agent with: put it on the PATH, or "
      "set TULLE_EXECUTABLE",
      ENOENT};
}

Result<void> start_agent(const Settings& settings) {
  auto executable = find_executable(settings);
  if (!executable) return executable.error();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error{fmt::format("cannot make a pipe: {}", std::strerror(errno)), errno};
  }
  UniqueFd in(ends[0]);
  // The pipe's end must be above the standard descriptors: the program may have closed these, and
  // the child's copies are made over them.
  UniqueFd out(fcntl(ends[1], F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  close(ends[1]);
  pid_t pid = 0;
  const int error = spawn(*executable, settings, out.get(), pid);
  out.reset();
  if (error != 0) {
    return Error{
        fmt::format("cannot start the Tulle agent ({}): {}", *executable, std::strerror(error)),
        error};
  }
  const std::string report = read_report(in.get());
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  constexpr std::string_view prefix = "tulle agent: ";
  const std::string line = first_line(report);
  if (report.find("ready\n") != std::string::npos) {
    // A warning, which nobody would see in the log.
    if (line.starts_with(prefix)) std::fprintf(stderr, "%s\n", line.c_str());
    return {};
  }
  if (line.starts_with(prefix)) return Error{line.substr(prefix.size()), EAGAIN};
  return Error{fmt::format("the Tulle agent ({}) did not start: {}", *executable,
                           line.empty() ? "it ended without a word" : line),
               EAGAIN};
}

}  // namespace tulle::live
