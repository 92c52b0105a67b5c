#include "live/agent/closer.h"

#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tulle::live {

struct Closer::State {
  struct User {
    std::deque<UniqueFd> fds;  // the first one is being closed if there is a thread
    bool has_thread = false;
  };
  std::mutex mutex;
  std::map<uid_t, User> users;

  // Closes what waits for a user, and ends once nothing does.
  void work(uid_t user) {
    std::unique_lock lock(mutex);
    for (;;) {
      const auto found = users.find(user);
      if (found->second.fds.empty()) {
        users.erase(found);
        return;
      }
      const int fd = found->second.fds.front().release();
      lock.unlock();
      UniqueFd(fd).reset();
      lock.lock();
      users.find(user)->second.fds.pop_front();
    }
  }
};

Closer::Closer() : state_(std::make_shared<State>()) {}

void Closer::close(uid_t user, UniqueFd fd) {
  if (!fd) return;
  const std::lock_guard lock(state_->mutex);
  State::User& its = state_->users[user];
  its.fds.push_back(std::move(fd));
  if (its.has_thread) return;
  try {
    std::thread([state = state_, user] { state->work(user); }).detach();
    its.has_thread = true;
  } catch (const std::system_error&) {
    // No thread can be had now. The next descriptor's comes.
  }
}

std::size_t Closer::waiting(uid_t user) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->users.find(user);
  return found == state_->users.end() ? 0 : found->second.fds.size();
}

}  // namespace tulle::live
