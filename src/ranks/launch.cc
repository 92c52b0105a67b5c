#include "ranks/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "ranks/frames.h"
#include "ranks/leader.h"
#include "ranks/meeting_point.h"
#include "ranks/rank.h"

namespace tulle::ranks {
namespace {

constexpr int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};

int interrupt_pipe = -1;
volatile std::sig_atomic_t interrupt_signal = 0;
void note_interrupt(int signal) {
  const int number = errno;
  interrupt_signal = signal;
  const char bytes[] = {0};
  (void)!write(interrupt_pipe, bytes, sizeof bytes);
  errno = number;
}

// While this lives, signals that would end the process make a descriptor readable.
class Interrupts {
 public:
  Interrupts() {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return;
    read_.reset(ends[0]);
    write_.reset(ends[1]);
    interrupt_pipe = ends[1];
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      sigaction(stop_signals[i], &action, &before_[i]);
    }
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts() {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      sigaction(stop_signals[i], &before_[i], nullptr);
    }
  }
  int fd() const { return read_.get(); }

 private:
  UniqueFd read_, write_;
  std::array<struct sigaction, std::size(stop_signals)> before_{};
};

// Plays a rank in a process that was forked for it. The leader ends it if the user interrupts.
[[noreturn]] void be_rank(const Plan& plan, const Group& group, std::uint32_t rank,
                          FrameSocket leader, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  std::signal(SIGINT, SIG_IGN);
  for (const int number : {SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
  Rank self(plan, group, rank, std::move(leader));
  const auto played = self.run();
  if (!played && !played.error().message.empty()) self.report(played.error());
  _exit(played ? 0 : 1);
}

// Forks a rank. `others` are the leader's sockets, which the child must not hold open.
Result<void> fork_rank(const Plan& plan, const Group& group, std::uint32_t rank, Leader& leader,
                       std::vector<int>& others) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error{fmt::format("socketpair: {}", std::strerror(errno)), errno};
  }
  UniqueFd own(ends[0]), child(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Error{fmt::format("cannot start rank {}: {}", rank, std::strerror(errno))};
  if (pid == 0) {
    for (const int each : others) close(each);
    own.reset();
    be_rank(plan, group, rank, FrameSocket(std::move(child)), parent);
  }
  others.push_back(own.get());
  leader.add(rank, FrameSocket(std::move(own)), pid);
  return {};
}

// A signal to the whole group may end a rank before this process has seen it.
bool is_interrupted(const Interrupts& interrupts) {
  return wait_for(interrupts.fd(), POLLIN, std::chrono::milliseconds(100));
}

Result<Times> lead(Leader& leader, const Interrupts& interrupts) {
  auto times = leader.run();
  if (!times && is_interrupted(interrupts)) times = Error{"interrupted"};
  leader.end(times ? "" : times.error().message);
  return times;
}

}  // namespace

int interrupted_by() { return interrupt_signal; }

Result<Times> run_here(const Plan& plan, const Group& group) {
  const Interrupts interrupts;
  Leader leader(plan, group, interrupts.fd());
  std::vector<int> others;
  for (std::uint32_t rank = 0; rank < plan.graph.ranks(); ++rank) {
    if (auto forked = fork_rank(plan, group, rank, leader, others); !forked) {
      leader.end("");
      return forked.error();
    }
  }
  return lead(leader, interrupts);
}

Result<Times> run_rank(const Plan& plan, const Group& group, std::uint32_t rank,
                       const Meeting& meeting) {
  if (rank == 0) {
    const Interrupts interrupts;
    Leader leader(plan, group, interrupts.fd());
    std::vector<int> others;
    auto ready = fork_rank(plan, group, 0, leader, others);
    if (ready) ready = leader.meet(meeting.address, meeting.work, meeting.token);
    if (!ready) {
      leader.end(ready.error().message);
      return ready.error();
    }
    return lead(leader, interrupts);
  }
  auto connected = connect_to(meeting.address, group.timeout);
  if (!connected) return connected.error();
  FrameSocket leader(std::move(*connected));
  Greeting greeting;
  greeting.rank = rank;
  greeting.ranks = plan.graph.ranks();
  greeting.work = meeting.work;
  meeting.token.copy(greeting.token.data(), greeting.token.size());
  if (auto sent = leader.send(FrameKind::greeting, greeting, group.timeout); !sent) {
    return sent.error();
  }
  Rank self(plan, group, rank, std::move(leader));
  if (auto played = self.run(); !played) {
    if (played.error().message.empty()) return Error{"rank 0 has ended"};
    self.report(played.error());
    return Error{short_line(played.error().message)};
  }
  return Times{};
}

}  // namespace tulle::ranks
