#include "sim/synchronizer.h"

#include <algorithm>
#include <utility>

namespace tulle::sim {
namespace {

thread_local Part* acting_part = nullptr;

}  // namespace

Synchronizer::Synchronizer(const Parts& parts, Team* team, Processes* processes)
    : parts_(parts),
      team_(team),
      processes_(processes),
      first_part_(parts.front()->number()),
      sent_(processes == nullptr ? 1 : processes->count()),
      came_(sent_.size()),
      messages_(sent_.size()),
      failures_(parts.size()) {}

Part* Synchronizer::acting() { return acting_part; }

Time Synchronizer::next_event() const {
  return processes_ != nullptr ? Time{all_.earliest_event} : next_event_here();
}

Time Synchronizer::next_event_here() const {
  Time next = Time::never();
  for (const auto& part : parts_) next = std::min(next, part->earliest_event());
  return next;
}

bool Synchronizer::play(Time until, Application& application) {
  goes_on_ = true;
  const auto work = [&](std::uint32_t number) {
    acting_part = parts_[number].get();
    play_rounds(*parts_[number], until, application);
    acting_part = nullptr;
  };
  if (team_ != nullptr) {
    team_->work(work);
  } else {
    work(0);
  }
  for (const std::exception_ptr& failure : failures_) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  return goes_on_;
}

// An exception leaves the parts as they are, and no round can follow. All threads still
// synchronise, so none waits for one that is gone. Other processes would wait until ended.
void Synchronizer::play_rounds(Part& part, Time until, Application& application) {
  std::exception_ptr& failure = failures_[part.number() - first_part_];
  const auto plan = [&] {
    try {
      meet(until, application);
    } catch (...) {
      failure = std::current_exception();
      round_.is_last = true;
    }
  };
  for (;;) {
    if (team_ != nullptr) {
      team_->meet(plan);
    } else {
      plan();
    }
    try {
      take_crossings(part, application);
      if (!round_.is_last) part.play(round_.start, round_.end, round_.parity, application);
    } catch (...) {
      failure = std::current_exception();
    }
    if (round_.is_last) return;
  }
}

// Takes what was sent to a part in the last round. Nobody writes to that until the round after the
// next.
void Synchronizer::take_crossings(Part& part, Application& application) {
  for (const auto& other : parts_) {
    if (other.get() != &part)
      part.crossings().take_from(other->crossings(), round_.sent, application);
  }
  for (std::uint32_t process = 0; process < messages_.size(); ++process) {
    for (const auto& [number, crossing] : messages_[process].shares) {
      if (number != part.number()) continue;
      const Time earliest{all_.earliest_round};
      if (!part.crossings().take_sent(process, crossing, earliest, application)) fail_at(process);
    }
  }
}

// All threads of this process are here, and have no round.
void Synchronizer::meet(Time until, Application& application) {
  round_.sent = round_.parity;
  round_.is_last = true;
  for (RoundMessage& message : messages_) message.shares.clear();
  const auto has_failed = [](const auto& failure) { return failure != nullptr; };
  if (std::ranges::any_of(failures_, has_failed)) return;
  // The reports of the meeting that ended the last call of play() still hold.
  if (processes_ == nullptr || !has_met_) {
    all_ = report(until, application);
    if (processes_ != nullptr) exchange(all_);
  }
  goes_on_ = all_.goes_on != 0;
  plan_round(until);
  has_met_ = round_.is_last;
}

// Returns this process's report at a barrier. Only if its next round would continue after `until`
// does it search all nodes for the earliest event, which takes time.
RoundReport Synchronizer::report(Time until, Application& application) {
  RoundReport report{all_.round + 1, Time::never().ps, Time::never().ps, 1};
  for (const auto& part : parts_) {
    report.earliest_round = std::min(report.earliest_round, part->earliest_round().ps);
  }
  report.earliest_event = report.earliest_round;
  if (until.ps - report.earliest_round < length().ps) report.earliest_event = next_event_here().ps;
  std::uint64_t events = 0;
  for (const auto& part : parts_) events += part->events();
  if (events - events_looked_at_ >= Part::events_between_looks) {
    events_looked_at_ = events;
    report.goes_on = application.goes_on() ? 1 : 0;
  }
  return report;
}

// Returns true if another process may say this at the present meeting.
bool Synchronizer::is_next(const RoundReport& report) const {
  const std::int64_t round = report.earliest_round, event = report.earliest_event;
  if (report.round != all_.round || round > event || round < round_.start.ps) return false;
  return Time{round}.is_never() || round % length().ps == 0;
}

// Sends the others what has crossed to them and the report, which becomes that of all together.
void Synchronizer::exchange(RoundReport& report) {
  std::vector<Pieces> to(sent_.size());
  for (std::uint32_t process = 0; process < sent_.size(); ++process) {
    if (process == processes_->number()) continue;
    OutgoingMessage& message = sent_[process];
    message.begin(report);
    for (std::uint32_t part = process * threads(); part < (process + 1) * threads(); ++part) {
      for (const auto& own : parts_) message.add(part, own->crossings().sent_to(part));
    }
    to[process] = message.pieces();
  }
  processes_->exchange_pieces(to, came_);
  for (const auto& own : parts_) own->crossings().forget_sent(first_part_, threads());
  for (std::uint32_t process = 0; process < came_.size(); ++process) {
    if (process == processes_->number()) continue;
    auto message = read_message(came_[process]);
    if (!message || !is_next(message->report)) fail_at(process);
    messages_[process] = std::move(*message);
    const RoundReport& other = messages_[process].report;
    report.earliest_round = std::min(report.earliest_round, other.earliest_round);
    report.earliest_event = std::min(report.earliest_event, other.earliest_event);
    report.goes_on &= other.goes_on;
    for (const Share& share : messages_[process].shares) {
      if (share.part - first_part_ >= threads()) fail_at(process);
    }
  }
}

// Chooses the next round.
void Synchronizer::plan_round(Time until) {
  const Time start{all_.earliest_round};
  if (!goes_on_ || start.is_never() || start > until) return;
  round_.start = start;
  round_.end = start + length();
  if (round_.end > until) {
    // Only the events until then are wanted of this round, which may have none of these.
    round_.end = until + Time{1};
    if (Time{all_.earliest_event} > until) return;
  }
  round_.parity ^= 1;
  round_.is_last = false;
}

}  // namespace tulle::sim
