#include "live/message/closer.h"

#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tulle::live {

struct Closer::State {
  struct Waiting {
    std::deque<UniqueFd> fds;  // the first one is being closed if there is a thread
    bool has_thread = false;
  };
  std::mutex mutex;
  std::map<Sender, Waiting> senders;

  // Closes what waits for a sender, and ends once nothing does.
  void work(Sender sender) {
    std::unique_lock lock(mutex);
    for (;;) {
      const auto found = senders.find(sender);
      if (found->second.fds.empty()) {
        senders.erase(found);
        return;
      }
      const int fd = found->second.fds.front().release();
      lock.unlock();
      UniqueFd(fd).reset();
      lock.lock();
      senders.find(sender)->second.fds.pop_front();
    }
  }
};

Closer::Closer() : state_(std::make_shared<State>()) {}

void Closer::close(Sender sender, UniqueFd fd) {
  if (!fd) return;
  const std::lock_guard lock(state_->mutex);
  State::Waiting& its = state_->senders[sender];
  its.fds.push_back(std::move(fd));
  if (its.has_thread) return;
  try {
    std::thread([state = state_, sender] { state->work(sender); }).detach();
    its.has_thread = true;
  } catch (const std::system_error&) {
    // No thread can be had now. The next descriptor's comes.
  }
}

std::size_t Closer::waiting(Sender sender) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->senders.find(sender);
  return found == state_->senders.end() ? 0 : found->second.fds.size();
}

}  // namespace tulle::live
