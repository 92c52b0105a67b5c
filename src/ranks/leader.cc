#include "ranks/leader.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "ranks/meeting_point.h"

namespace tulle::ranks {
namespace {

constexpr std::size_t strangers_max = 32;
constexpr std::chrono::seconds stranger_patience{5};
constexpr int look_period_ms = 200;

// Returns true if the process of this host is stopped, as by a signal or a debugger.
bool is_stopped(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(in, text);
  const std::size_t at = text.rfind(") ");
  return at != std::string::npos && at + 2 < text.size() &&
         (text[at + 2] == 'T' || text[at + 2] == 't');
}

}  // namespace

Leader::Leader(const Plan& plan, const Group& group, int interrupts)
    : plan_(plan), group_(group), interrupts_(interrupts), members_(plan.graph.ranks()) {}

void Leader::add(std::uint32_t rank, FrameSocket socket, pid_t pid) {
  Member& member = members_[rank];
  member.socket = std::move(socket);
  member.pid = pid;
  member.heard = Clock::now();
  member.is_met = true;
}

bool Leader::all_met() const {
  return std::ranges::all_of(members_, [](const Member& member) { return member.is_met; });
}

// --- the ranks of other hosts ---

Result<void> Leader::meet(const std::string& address, std::uint64_t work,
                          const std::string& token) {
  auto listener = listen_at(address);
  if (!listener) return listener.error();
  std::vector<Stranger> strangers;
  const auto deadline = Clock::now() + group_.timeout;
  while (!all_met()) {
    std::vector<pollfd> waiting{{listener->get(), POLLIN, 0}, {interrupts_, POLLIN, 0}};
    for (const Stranger& each : strangers) waiting.push_back({each.socket.fd(), POLLIN, 0});
    poll(waiting.data(), waiting.size(), look_period_ms);
    if (waiting[1].revents != 0) return Error{"interrupted"};
    greet(strangers, work, token);
    if (waiting[0].revents != 0) accept_stranger(listener->get(), strangers);
    for (Member& member : members_) member.heard = Clock::now();
    if (Clock::now() < deadline || all_met()) continue;
    std::string missing;
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
      if (!members_[rank].is_met) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    return Error{fmt::format("rank {} did not come to {} within {} s", missing, address,
                             std::chrono::duration<double>(group_.timeout).count())};
  }
  return {};
}

void Leader::accept_stranger(int listener, std::vector<Stranger>& strangers) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) return;
  // The oldest has had the most time to say who it is.
  if (strangers.size() == strangers_max) strangers.erase(strangers.begin());
  strangers.push_back({FrameSocket(std::move(fd), sizeof(Greeting)), Clock::now()});
}

// Reads what strangers say first. Those who say nonsense, or nothing for long, are forgotten.
void Leader::greet(std::vector<Stranger>& strangers, std::uint64_t work, const std::string& token) {
  std::erase_if(strangers, [&](Stranger& stranger) {
    auto is_open = stranger.socket.read();
    if (!is_open) return true;
    const auto frame = stranger.socket.take();
    if (!frame) return !*is_open || Clock::now() - stranger.since > stranger_patience;
    const auto greeting = frame->as<Greeting>();
    if (frame->kind != FrameKind::greeting || !greeting || greeting->magic != Greeting::tulle) {
      return true;
    }
    const std::string refusal = admit(*greeting, stranger, work, token);
    if (refusal.empty()) return true;  // it is a member now
    (void)stranger.socket.send_text(FrameKind::failed, refusal, std::chrono::milliseconds(0));
    return true;
  });
}

std::string Leader::admit(const Greeting& greeting, Stranger& stranger, std::uint64_t work,
                          const std::string& token) {
  // The comparison takes the same time wherever the tokens differ.
  decltype(greeting.token) own{};
  token.copy(own.data(), own.size());
  int differs = 0;
  for (std::size_t i = 0; i < own.size(); ++i) differs |= own[i] ^ greeting.token[i];
  if (differs != 0) return "rank 0 has another token";
  if (greeting.ranks != members_.size() || greeting.work != work) {
    return "rank 0 was started with other arguments";
  }
  if (greeting.rank >= members_.size()) return "there is no such rank";
  if (members_[greeting.rank].is_met) {
    return fmt::format("rank {} is there already", greeting.rank);
  }
  stranger.socket.allow(FrameSocket::longest_frame);
  add(greeting.rank, std::move(stranger.socket), 0);
  return "";
}

// --- the run ---

Result<Times> Leader::run() {
  if (auto handed = hand_on_addresses(); !handed) return handed.error();
  Times times;
  for (std::uint32_t i = 0; i < plan_.warm_up + plan_.iterations; ++i) {
    if (auto ready = gather(FrameKind::ready); !ready) return ready.error();
    if (auto told = tell_all(FrameKind::go); !told) return told.error();
    auto done = gather(FrameKind::done);
    if (!done) return done.error();
    Done all;
    for (const Frame& frame : *done) {
      const Done each = frame.as<Done>().value_or(Done{});
      all.nanoseconds = std::max(all.nanoseconds, each.nanoseconds);
      all.processor_nanoseconds += each.processor_nanoseconds;
    }
    if (i >= plan_.warm_up) {
      times.seconds.push_back(static_cast<double>(all.nanoseconds) * 1e-9);
      times.processor_seconds.push_back(static_cast<double>(all.processor_nanoseconds) * 1e-9);
    }
    if (auto told = tell_all(FrameKind::go); !told) return told.error();
  }
  auto ready = gather(FrameKind::ready);
  if (!ready) return ready.error();
  for (const Frame& frame : *ready) times.wrong += frame.as<std::uint64_t>().value_or(1);
  if (auto told = tell_all(FrameKind::end); !told) return told.error();
  return times;
}

Result<std::vector<Frame>> Leader::gather(FrameKind kind) {
  for (Member& member : members_) member.answer.reset();
  const auto has_all = [&] {
    return std::ranges::all_of(members_, [](const Member& m) { return m.answer.has_value(); });
  };
  while (!has_all()) {
    if (auto listened = listen_once(kind); !listened) return listened.error();
  }
  std::vector<Frame> answers;
  for (Member& member : members_) answers.push_back(std::move(*member.answer));
  return answers;
}

Result<void> Leader::listen_once(FrameKind kind) {
  std::vector<pollfd> waiting{{interrupts_, POLLIN, 0}};
  for (const Member& member : members_) waiting.push_back({member.socket.fd(), POLLIN, 0});
  poll(waiting.data(), waiting.size(), look_period_ms);
  if (waiting[0].revents != 0) return Error{"interrupted"};
  // A rank that died takes others with it, whose errors would say less.
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    const Member& member = members_[rank];
    siginfo_t died{};
    if (member.pid == 0) continue;
    const int status =
        waitid(P_PID, static_cast<id_t>(member.pid), &died, WEXITED | WNOHANG | WNOWAIT);
    if (status == 0 && died.si_pid == member.pid && died.si_code != CLD_EXITED) {
      return Error{death_of(rank)};
    }
  }
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (waiting[rank + 1].revents == 0) continue;
    if (auto right = read(rank, kind); !right) return right;
  }
  return check_silence();
}

Result<void> Leader::read(std::uint32_t rank, FrameKind kind) {
  Member& member = members_[rank];
  auto is_open = member.socket.read();
  if (!is_open) return Error{fmt::format("rank {}: {}", rank, is_open.error().message)};
  while (auto frame = member.socket.take()) {
    member.heard = Clock::now();
    if (frame->kind == FrameKind::alive) continue;
    if (frame->kind == FrameKind::waits) {
      // A rank that has gone is noticed when its socket is read.
      (void)member.socket.send(FrameKind::alive, group_.timeout);
      continue;
    }
    if (frame->kind == FrameKind::failed) {
      return Error{fmt::format("rank {}: {}", rank, short_line(frame->text()))};
    }
    if (frame->kind != kind || member.answer) {
      return Error{fmt::format("rank {} sent an unexpected message", rank)};
    }
    member.answer = std::move(*frame);
  }
  if (!*is_open) return Error{death_of(rank)};
  return {};
}

Result<void> Leader::check_silence() const {
  const auto silent = std::ranges::min_element(members_, {}, &Member::heard);
  // A rank that has answered waits for the others, and shows each second that it does.
  if (Clock::now() - silent->heard < group_.timeout) return {};
  const auto rank = silent - members_.begin();
  const double seconds = std::chrono::duration<double>(group_.timeout).count();
  if (silent->pid == 0) return Error{fmt::format("rank {} was silent for {} s", rank, seconds)};
  return Error{fmt::format("rank {} (process {}) {}was silent for {} s", rank, silent->pid,
                           is_stopped(silent->pid) ? "is stopped and " : "", seconds)};
}

Result<void> Leader::tell_all(FrameKind kind) {
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (auto sent = members_[rank].socket.send(kind, group_.timeout); !sent) {
      return Error{death_of(rank)};
    }
  }
  return {};
}

// Each rank has said how it can be reached by each of its peers. The peers are told.
Result<void> Leader::hand_on_addresses() {
  auto frames = gather(FrameKind::addresses);
  if (!frames) return frames.error();
  std::vector<std::vector<Address>> for_rank(members_.size());
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    auto addresses = (*frames)[rank].as<std::vector<Address>>();
    if (!addresses) return Error{fmt::format("rank {} says nonsense", rank)};
    for (Address& address : *addresses) {
      const std::uint32_t peer = std::exchange(address.peer, rank);
      if (peer >= members_.size()) return Error{fmt::format("rank {} names no rank", rank)};
      for_rank[peer].push_back(address);
    }
  }
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    const std::vector<Address>& own = for_rank[rank];
    if (own.size() > FrameSocket::addresses_max) return Error{"too many connections"};
    if (!members_[rank].socket.send(FrameKind::addresses, own, group_.timeout)) {
      return Error{death_of(rank)};
    }
  }
  return {};
}

std::string Leader::death_of(std::uint32_t rank) {
  Member& member = members_[rank];
  if (member.pid == 0) return fmt::format("rank {} has ended", rank);
  int status = 0;
  // The socket closes a moment before the process can be waited for.
  for (int i = 0; i < 100 && waitpid(member.pid, &status, WNOHANG) == 0; ++i) {
    poll(nullptr, 0, 10);
  }
  const pid_t pid = std::exchange(member.pid, 0);
  if (WIFSIGNALED(status)) {
    return fmt::format("rank {} (process {}) was killed by signal {} ({})", rank, pid,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("rank {} (process {}) has ended with status {}", rank, pid,
                     WEXITSTATUS(status));
}

void Leader::end(const std::string& because) {
  for (Member& member : members_) {
    if (member.pid != 0) kill(member.pid, SIGKILL);
    if (member.pid == 0 && member.socket.fd() >= 0 && !because.empty()) {
      (void)member.socket.send_text(FrameKind::failed, because, std::chrono::milliseconds(100));
    }
    member.socket.close();
  }
  for (Member& member : members_) {
    if (member.pid != 0) waitpid(std::exchange(member.pid, 0), nullptr, 0);
  }
}

}  // namespace tulle::ranks
