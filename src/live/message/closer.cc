#include "live/message/closer.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace tulle::live {
namespace {

constexpr std::chrono::milliseconds between_tries{100};
constexpr std::chrono::milliseconds between_looks{20};

}  // namespace

struct Closer::State {
  struct Exiting {
    pid_t thread = 0;
    std::size_t files = 0;
  };
  struct Its {
    std::deque<UniqueFd> fds;  // the first ones may be being closed
    Clock::time_point since;   // of the oldest
    std::vector<Exiting> exiting;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::map<Sender, Its> senders;
  std::list<Sender> turns;     // senders whose descriptors no thread closes, in this order
  std::size_t with_files = 0;  // senders whose descriptors are not closed or handed over yet
  std::size_t waiting = 0;
  std::size_t threads = 0;
  bool is_finishing = false;
  std::shared_ptr<ExitingThreads> exiting;

  bool by_exiting() const { return exiting != nullptr && exiting->is_possible(); }

  static void forget_ended(Its& its) {
    std::erase_if(its.exiting,
                  [](const Exiting& each) { return ExitingThreads::has_ended(each.thread); });
  }

  // Returns true if a thread may close what this sender has now.
  bool may_go(Its& its) const {
    if (!by_exiting() || is_finishing) return true;
    forget_ended(its);
    const std::size_t threads_now = its.exiting.size();
    if (threads_now < (waiting >= many ? threads_for_any : threads_at_once)) return true;
    if (threads_now < threads_for_few && Clock::now() - its.since >= patience) return true;
    return its.fds.size() >= std::min(8 * threads_now, ExitingThreads::files_max);
  }

  // Closes what one sender's turn allows, then of the next, until nothing waits. A sender's turn
  // keeps its memory, which a thread could not get otherwise.
  void work() {
    std::unique_lock lock(mutex);
    while (!turns.empty()) {
      const auto next = std::ranges::find_if(
          turns, [this](Sender sender) { return may_go(senders.find(sender)->second); });
      if (next == turns.end()) {
        changed.wait_for(lock, between_looks);
        continue;
      }
      std::list<Sender> turn;
      turn.splice(turn.end(), turns, next);
      State::Its& its = senders.find(turn.front())->second;
      const bool has_closed = close_some(lock, its);
      if (its.fds.empty()) {
        --with_files;
      } else {
        turns.splice(turns.end(), turn);
      }
      changed.notify_all();
      if (!has_closed) changed.wait_for(lock, between_looks);
    }
    forget_idle();
    --threads;
  }

  void forget_idle() {
    for (auto each = senders.begin(); each != senders.end();) {
      Its& its = each->second;
      forget_ended(its);
      each = its.fds.empty() && its.exiting.empty() ? senders.erase(each) : std::next(each);
    }
  }

  // Returns false if there was no thread to close them.
  bool close_some(std::unique_lock<std::mutex>& lock, Its& its) {
    const bool exits = by_exiting();
    std::array<UniqueFd, ExitingThreads::files_max> some;
    const std::size_t count = exits ? std::min(its.fds.size(), some.size()) : 1;
    const auto end = its.fds.begin() + static_cast<std::ptrdiff_t>(count);
    std::move(its.fds.begin(), end, some.begin());
    bool is_done = !exits;
    try {
      its.exiting.reserve(its.exiting.size() + 1);
      lock.unlock();
      const auto thread = exits ? exiting->hand_over(std::span(some).first(count)) : std::nullopt;
      if (!exits) some[0].reset();
      lock.lock();
      if (thread) its.exiting.push_back({*thread, count});
      is_done |= thread.has_value();
    } catch (const std::bad_alloc&) {  // by reserve(), with the lock held
    }
    if (is_done) {
      its.fds.erase(its.fds.begin(), its.fds.begin() + static_cast<std::ptrdiff_t>(count));
      its.since = Clock::now();
      waiting -= count;
    } else {
      std::move(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count), its.fds.begin());
    }
    return is_done;
  }
};

Closer::Closer(std::size_t threads_max, std::shared_ptr<ExitingThreads> exiting)
    : threads_max_(threads_max), state_(std::make_shared<State>()) {
  state_->exiting = std::move(exiting);
}

Closer::~Closer() {
  const std::lock_guard lock(state_->mutex);
  state_->is_finishing = true;
  state_->changed.notify_all();
}

void Closer::close(Sender sender, UniqueFd fd) noexcept {
  if (!fd) return;
  try {
    const std::lock_guard lock(state_->mutex);
    State::Its& its = state_->senders[sender];
    std::list<Sender> turn;
    if (its.fds.empty()) turn.push_back(sender);
    its.fds.emplace_back();
    its.fds.back() = std::move(fd);
    ++state_->waiting;
    if (!turn.empty()) {
      its.since = Clock::now();
      ++state_->with_files;
    }
    state_->turns.splice(state_->turns.end(), turn);
    state_->changed.notify_all();
  } catch (const std::exception&) {
    static_cast<void>(fd.release());
    return;
  }
  start_threads();
}

void Closer::add(Sender sender, pid_t thread, std::size_t files) {
  const std::lock_guard lock(state_->mutex);
  state_->senders[sender].exiting.push_back({thread, files});
}

void Closer::retry() {
  if (lacks_threads_ && Clock::now() - tried_ >= between_tries) start_threads();
}

// One thread hands over all senders' descriptors. Usual threads are as many as there are senders,
// up to the most. All share all senders' descriptors.
void Closer::start_threads() {
  const std::lock_guard lock(state_->mutex);
  const std::size_t most = state_->by_exiting() ? 1 : threads_max_;
  try {
    while (state_->threads < std::min(most, state_->with_files)) {
      lacks_threads_ = true;
      std::thread([state = state_] { state->work(); }).detach();
      ++state_->threads;
    }
    lacks_threads_ = false;
  } catch (const std::exception&) {
    tried_ = Clock::now();  // what waits keeps its turn
  }
}

std::size_t Closer::waiting(Sender sender) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->senders.find(sender);
  if (found == state_->senders.end()) return 0;
  State::Its& its = found->second;
  State::forget_ended(its);
  if (its.fds.empty() && its.exiting.empty()) {
    state_->senders.erase(found);
    return 0;
  }
  return std::accumulate(
      its.exiting.begin(), its.exiting.end(), its.fds.size(),
      [](std::size_t sum, const State::Exiting& each) { return sum + each.files; });
}

std::size_t Closer::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

void Closer::finish(std::chrono::milliseconds patience_then) {
  const auto until = Clock::now() + patience_then;
  std::unique_lock lock(state_->mutex);
  state_->is_finishing = true;
  state_->changed.notify_all();
  state_->changed.wait_until(lock, until, [this] { return state_->waiting == 0; });
  // What could not be handed over is the kernel's to close.
  for (auto& [sender, its] : state_->senders) {
    for (UniqueFd& fd : its.fds) static_cast<void>(fd.release());
  }
}

}  // namespace tulle::live
