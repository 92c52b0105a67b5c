#include "management/waiting_questions.h"

#include <algorithm>

#include "base/timers.h"

namespace tulle::management {

bool WaitingQuestions::has_room(ProgramId program) const {
  const auto found = of_program_.find(program);
  const std::size_t own = found == of_program_.end() ? 0 : found->second;
  return own < questions_of_program_min ||
         (own < questions_of_program_max && questions_.size() < questions_max);
}

void WaitingQuestions::add(Time now, Question question) {
  question.timeout = std::clamp(question.timeout, timeout_min, timeout_max);
  question.retries = std::min(question.retries, retries_max);
  question.due = now + question.timeout;
  const Id id = next_id_++;
  by_transaction_.insert(key_of(question.packet, id));
  by_due_.emplace(question.due, id);
  ++of_program_[question.program];
  questions_.emplace(id, question);
}

WaitingQuestions::Key WaitingQuestions::key_of(const Packet& packet, Id id) {
  const wire::MadHeader header = header_of(packet.mad);
  return {header.transaction_id, header.management_class, packet.destination.value, id};
}

// Returns the first question whose key is not less, if it differs in nothing but its number, or in
// the LID.
std::optional<WaitingQuestions::Id> WaitingQuestions::first_from(const Key& key,
                                                                 bool is_of_any_lid) const {
  const auto found = by_transaction_.lower_bound(key);
  if (found == by_transaction_.end()) return std::nullopt;
  const auto& [transaction, management_class, lid, id] = *found;
  const auto& [its_transaction, its_class, its_lid, none] = key;
  const bool is_it = transaction == its_transaction && management_class == its_class &&
                     (is_of_any_lid || lid == its_lid);
  return is_it ? std::optional(id) : std::nullopt;
}

std::optional<WaitingQuestions::Id> WaitingQuestions::find(const Packet& answer) const {
  const wire::MadHeader header = header_of(answer.mad);
  const auto from = [&](std::uint16_t lid) {
    return Key{header.transaction_id, header.management_class, lid, Id{0}};
  };
  if (header.management_class == wire::subnet_directed_class) return first_from(from(0), true);
  // Anybody may answer in another's name, but not from its LID.
  const auto of_source = first_from(from(answer.source.value), false);
  const auto of_anybody = first_from(from(wire::permissive_lid), false);
  return of_source ? of_source : of_anybody;
}

void WaitingQuestions::postpone(Id id, Time due) {
  Question& question = questions_.at(id);
  by_due_.erase({question.due, id});
  question.due = due;
  by_due_.emplace(due, id);
}

void WaitingQuestions::erase(Id id) {
  const auto found = questions_.find(id);
  const Question& question = found->second;
  by_transaction_.erase(key_of(question.packet, id));
  by_due_.erase({question.due, id});
  const auto of_program = of_program_.find(question.program);
  if (--of_program->second == 0) of_program_.erase(of_program);
  questions_.erase(found);
}

void WaitingQuestions::erase_agent(std::uint32_t agent_key) {
  const Key first{std::uint64_t{agent_key} << 32, 0, 0, 0};
  for (auto each = by_transaction_.lower_bound(first);
       each != by_transaction_.end() && std::get<0>(*each) >> 32 == agent_key;) {
    erase(std::get<3>(*each++));
  }
}

Time WaitingQuestions::next_timeout() const {
  if (by_due_.empty()) return Time::never();
  const auto& [due, id] = *by_due_.begin();
  const bool may_be_sent = questions_.at(id).retries == 0 || repeats_left_ > 0;
  return may_be_sent ? due : std::max(due, next_period_);
}

std::optional<WaitingQuestions::Due> WaitingQuestions::take_due(Time now) {
  if (next_timeout() > now) return std::nullopt;
  const Id id = by_due_.begin()->second;
  Question& question = questions_.at(id);
  if (question.retries == 0) {
    Due over{question, true};
    erase(id);
    return over;
  }
  if (now >= next_period_) {
    next_period_ = now + repeat_period;
    repeats_left_ = repeats_max;
  }
  --repeats_left_;
  --question.retries;
  postpone(id, now + question.timeout);
  return Due{question, false};
}

void WaitingQuestions::rebase(Time by) {
  tulle::rebase(by, next_period_);
  rebase_timers(by, by_due_);
  for (auto& [id, question] : questions_) tulle::rebase(by, question.due);
}

}  // namespace tulle::management
