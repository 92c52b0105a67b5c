#include "sim/network.h"

#include <algorithm>
#include <numeric>

#include "sim/kernel_driver.h"

namespace tulle::sim {
namespace {

// The part that has a round on this thread; null: none has.
thread_local Part* acting = nullptr;

}  // namespace

void Network::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  (acting == nullptr ? part_of(host) : *acting).alarm(at, host, token);
}

void Network::request(std::uint32_t host, std::uint32_t token, Application& application) {
  if (acting == nullptr || acting == &part_of(host)) {
    application.meet_request(host, token);
  } else {
    acting->request_elsewhere(host, token);
  }
}

// --- rounds ---

bool Network::play(Time until, Application& application) {
  if (team_ == nullptr) return parts_.front()->play_alone(until, application);
  goes_on_ = true;
  team_->work([&](std::uint32_t number) {
    acting = parts_[number].get();
    play_rounds(*parts_[number], until, application);
    acting = nullptr;
  });
  for (const std::exception_ptr& failure : failures_) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  return goes_on_;
}

// An exception leaves the parts as they are, and no round can follow. All threads still meet, so
// that none waits for one that is gone.
void Network::play_rounds(Part& part, Time until, Application& application) {
  for (;;) {
    team_->meet([&] {
      try {
        plan_round(until, application);
      } catch (...) {
        failures_[part.number()] = std::current_exception();
      }
      const auto has_failed = [](const auto& failure) { return failure != nullptr; };
      round_.is_last = round_.is_last || std::ranges::any_of(failures_, has_failed);
    });
    try {
      // Nobody writes to what was sent to this part in the last round until the one after this.
      for (const auto& other : parts_) {
        if (other.get() != &part) part.take_from(*other, round_.sent, application);
      }
      if (!round_.is_last) part.play(round_.start, round_.end, round_.parity, application);
    } catch (...) {
      failures_[part.number()] = std::current_exception();
    }
    if (round_.is_last) return;
  }
}

// Chooses the next round, while no part has one.
void Network::plan_round(Time until, Application& application) {
  Time start = Time::never();
  for (const auto& part : parts_) start = std::min(start, part->earliest_round());
  round_.sent = round_.parity;
  round_.is_last = true;
  if (const std::uint64_t all = events(); all - events_looked_at_ >= Part::events_between_looks) {
    events_looked_at_ = all;
    goes_on_ = application.goes_on();
  }
  if (!goes_on_ || start.is_never() || start > until) return;
  round_.start = start;
  round_.end = start + parts_.front()->round_length();
  if (round_.end > until) {
    // Only the events until then are wanted of this round, which may have none of these.
    round_.end = until + Time{1};
    const auto has_some = [&](const auto& part) { return part->earliest_event() <= until; };
    if (std::ranges::none_of(parts_, has_some)) return;
  }
  round_.parity ^= 1;
  round_.is_last = false;
}

// --- what has happened ---

Time Network::now() const {
  if (team_ == nullptr) return parts_.front()->now();
  Time latest;
  for (const auto& part : parts_) latest = std::max(latest, part->latest());
  return latest;
}

bool Network::has_begun() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->has_begun(); });
}

Time Network::next_event() const {
  Time next = Time::never();
  for (const auto& part : parts_) next = std::min(next, part->earliest_event());
  return next;
}

template <typename Value>
std::uint64_t Network::sum(Value value) const {
  return std::accumulate(
      parts_.begin(), parts_.end(), std::uint64_t{0},
      [value](std::uint64_t sum, const auto& part) { return sum + value(*part); });
}

std::uint64_t Network::events() const {
  return sum([](const Part& part) { return part.events(); });
}

std::uint64_t Network::data_packet_hops() const {
  return sum([](const Part& part) { return part.data_hops(); });
}

std::uint64_t Network::frames_sent() const {
  return sum([](const Part& part) { return part.all_hops(); });
}

std::uint64_t Network::frames_in_use() const {
  return sum([](const Part& part) { return part.frames().in_use(); });
}

std::uint64_t Network::notices() const {
  std::uint64_t sent = 0;
  for (const fabric::Switch& at : nodes_.switches) sent += at.notices();
  return sent;
}

const device::HostStack* Network::stack(std::uint32_t host) const {
  const Host& at = nodes_.hosts[host];
  return at.kernel == nullptr ? nullptr : &at.kernel->stack;
}

}  // namespace tulle::sim
