#include "live/agent/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "live/agent/core.h"
#include "live/agent/interfaces.h"
#include "live/agent/privileges.h"
#include "os/service_process.h"
#include "os/system_error.h"
#include "os/trusted_folder.h"
#include "os/users.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;

constexpr auto connections_retry_time = 20ms;
constexpr auto hello_time = 5s;
constexpr auto tell_retry_time = 100ms;
constexpr int no_memory_pause_microseconds = 10'000;
// What the agent needs for itself and the connections of a few programs.
constexpr std::uint64_t files_min = 64;
// An answer lists all processes. A client that asks often must not hold up others for long.
constexpr int status_answers_in_a_turn = 4;

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

// The file of a detached agent's messages, or none.
UniqueFd& log_file() {
  static UniqueFd file;
  return file;
}

// Another user may have put a link to any file there, or have set the variable, which su keeps: a
// device may do anything when it is opened, and a file's mere presence may mean something.
Result<void> open_log(const std::string& path) {
  const std::filesystem::path given(path);
  if (given.extension() != ".log") return Error{path + " does not end in .log", EINVAL};
  auto folder = trusted_parent(given.has_parent_path() ? given.parent_path() : ".");
  if (!folder) return folder.error();
  const std::string whole = std::filesystem::path(*folder) / given.filename();
  struct stat its {};
  if (lstat(whole.c_str(), &its) == 0 && !S_ISREG(its.st_mode)) {
    return Error{path + " is no regular file", EINVAL};
  }
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  log_file().reset(open(whole.c_str(), flags, 0600));
  if (!log_file() || fstat(log_file().get(), &its) != 0)
    return system_error("cannot write " + path);
  if (is_trusted(its.st_uid)) return {};
  return Error{fmt::format("{} belongs to {}", path, user_text(its.st_uid)), EPERM};
}

void say_ready_and_fall_silent() {
  say_ready();
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const int target = log_file() ? log_file().get() : null.get();
  dup2(null.get(), STDIN_FILENO);
  dup2(target, STDOUT_FILENO);
  dup2(target, STDERR_FILENO);
}

// Detaches with the usual two forks: no terminal, no parent that must wait, and no session leader.
// Only the standard descriptors stay open, because the starter reads output and error. If the agent
// kept another pipe of the starter's open, that pipe would never reach its end.
void detach() {
  close_range(3, UINT_MAX, 0);
  if (fork() != 0) _exit(0);
  setsid();
  if (fork() != 0) _exit(0);
  if (chdir("/") != 0) _exit(1);
  umask(022);
}

// Takes the usual priority and all processors, as far as this user may. The agent serves all
// programs of the host, and the one that starts it may be a batch job at the lowest priority, on a
// processor for itself.
void schedule_as_usual() {
  const sched_param parameters{};
  static_cast<void>(sched_setscheduler(0, SCHED_OTHER, &parameters));
  static_cast<void>(setpriority(PRIO_PROCESS, 0, 0));
  cpu_set_t all;
  std::memset(&all, 0xFF, sizeof all);
  static_cast<void>(sched_setaffinity(0, sizeof all, &all));
}

// Waits until an agent that has just bound the address also listens there.
void wait_until_it_listens(const std::string& address) {
  constexpr int looks_max = 100;
  for (int i = 0; i < looks_max; ++i) {
    const auto connection = connect_to(address);
    if (connection || connection.error().error_number != ECONNREFUSED) return;
    usleep(10'000);
  }
}

int fail(const std::string& reason) {
  std::fprintf(stderr, "tulle agent: %s\n", reason.c_str());
  return 1;
}

void add(std::array<std::uint64_t, counter_count>& to,
         const std::array<std::uint64_t, counter_count>& more) {
  for (std::size_t i = 0; i < counter_count; ++i) to[i] += more[i];
}

// Returns false if the process has ended already, or cannot be watched. What other users' processes
// have must end with them, even if they make the agent hold an end of it.
bool find_process(Session& session) {
  auto process = watched_process(session.connection.get());
  if (process) session.process = std::move(*process);
  return static_cast<bool>(process);
}

}  // namespace

int run_agent(const AgentOptions& options) {
  if (options.on_demand) {
    detach();
    schedule_as_usual();
    const std::string limits = raise_other_limits();
    if (!limits.empty()) {
      std::fprintf(stderr,
                   "tulle agent: it has limits of the program that started it (prlimit: %s): start "
                   "`tulle agent` first\n",
                   limits.c_str());
    }
  }
  // A program with few descriptors may have started the agent, which serves all others too.
  if (const std::uint64_t files = raise_file_limit(); files < files_min) {
    return fail(
        fmt::format("the limit of open files is {} here, and an agent needs {}: raise it "
                    "(ulimit -n), or start `tulle agent` first",
                    files, files_min));
  }
  // From here on, the agent's own user is one whom it can tell from all others.
  if (!is_known_user(geteuid())) {
    return fail(
        fmt::format("{} cannot run an agent, which could not tell programs of this user "
                    "from those of others: run it as another user",
                    user_text(geteuid())));
  }
  if (options.on_demand && !options.settings.agent_log.empty()) {
    if (auto opened = open_log(options.settings.agent_log); !opened) {
      return fail("the log TULLE_AGENT_LOG is not used: " + opened.error().message);
    }
  }
  auto listener = listen_at(options.settings.agent);
  if (!listener && listener.error().error_number == EADDRINUSE) {
    // Another program's agent was faster and serves just as well.
    if (options.on_demand) {
      wait_until_it_listens(options.settings.agent);
      say_ready();
      return 0;
    }
    return fail(fmt::format("an agent is running already at {}", options.settings.agent));
  }
  if (!listener) return fail(listener.error().message);

  give_up_privileges(options.settings.agent[0] != '@' ? options.settings.agent : "");
  AgentCore core(options.settings);
  if (options.foreground) {
    std::printf("tulle agent: at %s, UDP port %u\n", options.settings.agent.c_str(),
                unsigned{options.settings.port});
    std::fflush(stdout);
  }
  const auto ready = options.on_demand ? say_ready_and_fall_silent : say_ready;
  const auto served = core.serve(std::move(*listener), options.idle_exit, ready);
  if (options.settings.agent[0] != '@') unlink(options.settings.agent.c_str());
  if (!served) return fail(served.error().message);
  return 0;
}

AgentCore::AgentCore(const Settings& settings)
    : settings_(settings),
      slots_(settings.port, static_cast<std::uint64_t>(started_.time_since_epoch().count() / 1000)),
      devices_([this](const DeviceChoice& key, std::size_t index) { return holder_of(key, index); },
               settings.secure.empty() ? 0 : std::uint32_t{seal_bytes}) {}

Result<void> AgentCore::serve(UniqueFd listener, bool idle_exit, void (*ready)()) {
  if (!settings_.secure.empty()) {
    auto seal = Seal::create(settings_.secure);
    if (!seal) return seal.error();
    seal_ = std::move(*seal);
    seal_->refuse_earlier();
  }
  exits_when_idle_ = idle_exit;
  signals_ = stop_signals();
  auto loop = EventLoop::create();
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  listener_ = WatchedListener(std::move(listener), loop_);
  watch(signals_.get(), nullptr);
  if (devices_.watch_fd() >= 0) watch(devices_.watch_fd(), nullptr);

  Result<void> result = slots_.open();
  bool is_ready = false;
  while (result && !stopped_ && !(exits_when_idle_ && is_idle_too_long())) {
    start_connections();
    if (!is_ready && !slots_.is_recovering()) {
      is_ready = true;
      ready();
    }
    try {
      result = turn();
    } catch (const std::bad_alloc&) {
      usleep(no_memory_pause_microseconds);  // the descriptors tell once more what is to be done
    }
  }
  // A program that connected while the agent was leaving finds the connection closed, and starts
  // the next agent.
  if (!result) refuse_all(result.error().message);
  leave();
  return result;
}

Result<void> AgentCore::turn() {
  const auto events = loop_.wait(time_to_wait());
  descriptors_.close_read();
  accept_all();
  if (has_stop_signal(signals_)) stopped_ = true;
  for (const epoll_event& event : events) {
    if (auto* session = reinterpret_cast<Session*>(event.data.u64)) handle_or_end(*session);
  }
  forward();
  if (devices_.watch_fd() >= 0) devices_.refresh();
  devices_.settle();
  if (connections_) progress_connections();
  const auto now = Clock::now();
  if (slots_.is_recovering() && now >= slots_.retry_at()) {
    if (auto opened = slots_.open(); !opened) return opened;
  }
  int answers_left = status_answers_in_a_turn;
  for (auto& session : sessions_) {
    const bool is_status_due = session->state == Session::State::status && now >= session->due;
    if (is_status_due && answers_left-- > 0) answer_status(*session);
    if (session->state == Session::State::greeting && now >= session->due) end(*session);
    if (session->state == Session::State::held && !slots_.is_recovering()) greet(*session);
  }
  close_finished();
  descriptors_.retry();
  sessions_.tell_changes(devices_);
  return {};
}

// The agent's own slot receives the datagrams for QP0 and QP1. An agent that has just been killed
// may hold the slot for a moment longer.
void AgentCore::start_connections() {
  if (connections_ || !slots_.is_open()) return;
  SocketGroup& group = slots_.group();
  UniqueFd lock = group.lock(agent_slot);
  if (!lock) return;
  auto device = describe_device({.name = settings_.device.name, .interfaces = {}});
  const std::uint64_t guid = device ? device->node_guid : 0;
  network_ = std::make_unique<IpNetwork>(group.socket(agent_slot), group.port(), std::move(lock),
                                         devices_, seal_.get());
  connections_ = std::make_unique<ConnectionService>(*network_, guid);
  watch(network_->socket(), nullptr);
}

void AgentCore::progress_connections() {
  for (const auto& found : network_->take_routes()) {
    if (found.error != 0) {
      connections_->take_route(found.asker, Error{"no way to the peer", found.error});
    } else {
      connections_->take_route(found.asker, found.route);
    }
  }
  for (const auto channel : std::exchange(blocked_channels_, {})) connections_->flush(channel);
  connections_->progress();
  for (const auto& [socket, channel] : connections_->take_blocked()) {
    blocked_channels_.push_back(channel);
    loop_.watch(socket, EPOLLOUT | EPOLLONESHOT);
  }
}

// Passes on the datagrams of all relays. Each gets a limited turn, so that nobody's traffic keeps
// others waiting for long.
void AgentCore::forward() {
  has_unforwarded_ = false;
  for (auto& session : sessions_) {
    if (session->relay && session->relay->forward()) has_unforwarded_ = true;
  }
}

Time AgentCore::time_to_wait() const {
  auto wake = Clock::time_point::max();
  if (slots_.is_open() && !connections_) wake = Clock::now() + connections_retry_time;
  if (has_unforwarded_ || (connections_ && connections_->has_more())) return Time::zero();
  if (network_) wake = std::min(wake, network_->next_deadline());
  if (connections_ && !connections_->next_deadline().is_never()) {
    const Time left = connections_->next_deadline() - connections_->now();
    wake = std::min(wake, Clock::now() + std::chrono::nanoseconds(left.to_nanoseconds()));
  }
  if (slots_.is_recovering()) wake = slots_.retry_at();
  wake = std::min(wake, listener_.resumes_at());
  wake = std::min(wake, devices_.next_settling());
  if (sessions_.has_untold()) wake = std::min(wake, Clock::now() + tell_retry_time);
  // Once that time has passed, the connections' deadlines say when the agent may leave.
  const auto leaves_at = idle_since_ + std::chrono::seconds(settings_.idle_exit_seconds);
  if (sessions_.empty() && exits_when_idle_ && leaves_at > Clock::now()) {
    wake = std::min(wake, leaves_at);
  }
  for (const auto& session : sessions_) {
    const bool is_timed =
        session->state == Session::State::greeting || session->state == Session::State::status;
    if (is_timed) wake = std::min(wake, session->due);
  }
  // The connection manager's clock is read once an hour at least (live/clock.h).
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
  return Time::milliseconds(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

// Accepts a limited number in one turn. The listener stays readable if more wait. Who connects is
// known once the connection is there, so all wait while too many do not close.
void AgentCore::accept_all() {
  listener_.resume();
  constexpr int accepts_in_a_turn = 64;
  for (int i = 0; i < accepts_in_a_turn; ++i) {
    if (descriptors_.has_many_connections()) return listener_.begin_pause();
    UniqueFd connection = listener_.accept();
    if (!connection) return;
    auto peer = peer_of(connection.get());
    if (!peer) continue;
    auto session = std::make_unique<Session>();
    session->peer = *peer;
    session->due = Clock::now() + hello_time;
    session->connection = std::move(connection);
    const bool has_process = find_process(*session);
    watch(session->connection.get(), session.get());
    if (session->process) watch(session->process.get(), session.get());
    const uid_t own = geteuid();
    if (!has_process && peer->uid != own) {
      refuse(*session, "the process that connected has ended, or cannot be watched");
    } else if (own != 0 && peer->uid != own && peer->uid != 0) {
      refuse(*session,
             fmt::format("the Tulle agent of this network namespace belongs to user {}", own));
    } else if (!sessions_.may_connect(peer->uid, descriptors_.unclosed(peer->uid))) {
      refuse(*session, fmt::format("user {} has {} connections to the Tulle agent, which is the "
                                   "most for one user",
                                   peer->uid, SessionTable::connections_max));
    }
    sessions_.add(std::move(session));
  }
}

void AgentCore::watch(int fd, Session* session) {
  loop_.watch(fd, EPOLLIN, reinterpret_cast<std::uintptr_t>(session));
}

// Ends a session whose message there is no memory for, so that its program does not wait for an
// answer. The program comes back, or finds the connection closed.
void AgentCore::handle_or_end(Session& session) {
  try {
    handle(session);
  } catch (const std::bad_alloc&) {
    end(session);
  }
}

void AgentCore::handle(Session& session) {
  constexpr int messages_in_a_turn = 16;
  for (int i = 0; i < messages_in_a_turn && session.state != Session::State::closing; ++i) {
    // Another user's descriptors stay where they are once that user has a share of the agent's.
    const bool is_strange = session.peer.uid != geteuid();
    if (is_strange && descriptors_.waiting(session.peer.uid) >= SessionTable::connections_max) {
      return refuse(session, "too many descriptors of this user are not closed yet");
    }
    std::vector<UniqueFd> of_no_message;
    auto message = descriptors_.receive(session, of_no_message);
    descriptors_.close(session, std::move(of_no_message));
    if (message) {
      handle_message(session, *message);
      descriptors_.close(session, std::move(message->fds));
      continue;
    }
    if (message.error().error_number == EPROTO) return refuse(session, message.error().message);
    const bool is_closed = message.error().error_number != EAGAIN;
    // The pidfd is readable once the process is dead, whether or not its parent has waited for it.
    pollfd dead{session.process.get(), POLLIN, 0};
    const bool is_dead = session.process && poll(&dead, 1, 0) > 0;
    if (is_closed || is_dead) end(session);
    return;
  }
}

void AgentCore::close_finished() {
  const auto is_finished = [](const auto& s) { return s->state == Session::State::closing; };
  for (const auto& session : sessions_) {
    // Sessions that only look do not keep an agent alive.
    const Purpose purpose = session->hello.purpose;
    const bool only_looks = purpose == Purpose::status || purpose == Purpose::attribute;
    if (!is_finished(session) || only_looks) continue;
    idle_since_ = Clock::now();
  }
  for (const auto& session : sessions_) {
    if (!is_finished(session)) continue;
    add(departed_, session->counters.read());
    // They stay watched while the closer has them, and would name a session that is gone.
    for (const int fd : {session->connection.get(), session->process.get()}) {
      if (fd >= 0) loop_.forget(fd);
    }
    descriptors_.close_connection(*session);
    descriptors_.close(*session, std::move(session->table));
    descriptors_.close(*session, std::move(session->doorbell));
  }
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (counter_table[i].is_of_now) departed_[i] = 0;
  }
  if (!sessions_.remove_closing()) return;
  devices_.forget([this](const DeviceChoice& key) { return sessions_.is_used(key); });
}

// Returns the sum over all present and former processes.
std::array<std::uint64_t, counter_count> AgentCore::counters() const {
  auto sum = departed_;
  for (const auto& session : sessions_) add(sum, session->counters.read());
  return sum;
}

bool AgentCore::is_idle_too_long() const {
  if (!sessions_.empty() || slots_.is_recovering()) return false;
  return Clock::now() - idle_since_ >= std::chrono::seconds(settings_.idle_exit_seconds) &&
         (!connections_ || connections_->is_quiet());
}

// Frees the port, and then the address. Other users' descriptors may take for ever to close, and
// then belong to threads that the process leaves behind.
void AgentCore::leave() {
  for (const auto& session : sessions_) session->relay.reset();
  connections_.reset();
  network_.reset();
  slots_.close();
  descriptors_.finish(listener_.take());
}

void AgentCore::refuse_all(const std::string& reason) {
  accept_all();
  for (auto& session : sessions_) refuse(*session, reason);
}

}  // namespace tulle::live
