#include "live/message/closer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "live/message/exiting_threads.h"

namespace tulle::live {
namespace {

constexpr std::chrono::milliseconds between_tries{100};

}  // namespace

struct Closer::State {
  std::mutex mutex;
  std::map<Sender, std::deque<UniqueFd>> senders;  // the first ones may be being closed
  std::list<Sender> turns;  // senders whose descriptors no thread closes, in this order
  std::size_t waiting = 0;
  std::size_t threads = 0;
  std::optional<ExitingThreads> exiting;

  // Closes what one sender's turn allows, then of the next, until nothing waits. A sender's turn
  // keeps its memory, which a thread could not get otherwise.
  void work() {
    std::unique_lock lock(mutex);
    while (!turns.empty()) {
      std::list<Sender> turn;
      turn.splice(turn.end(), turns, turns.begin());
      const auto found = senders.find(turn.front());
      std::deque<UniqueFd>& its = found->second;
      std::array<UniqueFd, ExitingThreads::sockets_max> some;
      const std::size_t count = exiting ? std::min(its.size(), some.size()) : 1;
      std::move(its.begin(), its.begin() + static_cast<std::ptrdiff_t>(count), some.begin());
      lock.unlock();
      close(found->first, std::span(some).first(count));
      lock.lock();
      its.erase(its.begin(), its.begin() + static_cast<std::ptrdiff_t>(count));
      waiting -= count;
      if (its.empty()) {
        senders.erase(found);
      } else {
        turns.splice(turns.end(), turn);
      }
    }
    --threads;
  }
  void close(Sender sender, std::span<UniqueFd> some) {
    if (exiting && exiting->close(sender, some)) return;
    for (UniqueFd& fd : some) fd.reset();
  }
};

Closer::Closer(std::size_t threads_max, Way way)
    : threads_max_(threads_max), state_(std::make_shared<State>()) {
  if (way == Way::by_exiting) state_->exiting.emplace();
}

void Closer::close(Sender sender, UniqueFd fd) {
  if (!fd) return;
  {
    const std::lock_guard lock(state_->mutex);
    std::deque<UniqueFd>& its = state_->senders[sender];
    std::list<Sender> turn;
    if (its.empty()) turn.push_back(sender);
    its.push_back(std::move(fd));
    ++state_->waiting;
    state_->turns.splice(state_->turns.end(), turn);
  }
  start_threads();
}

void Closer::retry() {
  if (lacks_threads_ && Clock::now() - tried_ >= between_tries) start_threads();
}

// Starts a thread for each sender, up to the most. The threads share all senders' descriptors.
void Closer::start_threads() {
  const std::lock_guard lock(state_->mutex);
  try {
    while (state_->threads < std::min(threads_max_, state_->senders.size())) {
      lacks_threads_ = true;
      std::thread([state = state_] { state->work(); }).detach();
      ++state_->threads;
    }
    lacks_threads_ = false;
  } catch (const std::system_error&) {
    tried_ = Clock::now();  // what waits keeps its turn
  }
}

std::size_t Closer::waiting(Sender sender) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->senders.find(sender);
  return found == state_->senders.end() ? 0 : found->second.size();
}

std::size_t Closer::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

}  // namespace tulle::live
