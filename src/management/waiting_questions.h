#pragma once

// The questions of a port's programs that wait for their answers, by transaction ID and by the time
// when they are to be sent again. A program can neither take all places nor have the service send
// for it without end.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/time.h"
#include "management/packet.h"

namespace tulle::management {

// All openings of a port by one process are one program.
using ProgramId = std::uint64_t;

class WaitingQuestions {
 public:
  // OpenSM has up to a few hundred questions under way, and the diagnostic tools have a few. A
  // kernel has no limits here.
  static constexpr std::size_t questions_max = 4'096;  // of a port
  static constexpr std::size_t questions_of_program_max = 1'024;
  // A program may have so many in any case, so that others leave room for it.
  static constexpr std::size_t questions_of_program_min = 16;
  // A program's timeout and retries are silently brought within these bounds, as a device has its
  // granularity. No answer takes an hour, and the tools repeat a question at most 15 times.
  static constexpr Time timeout_min = Time::milliseconds(20);
  static constexpr Time timeout_max = Time::seconds(3'600);
  static constexpr std::uint32_t retries_max = 64;
  // So many questions are sent again in a period, and others wait for the next one. All of a port
  // together cost about one percent of a processor.
  static constexpr int repeats_max = 64;
  static constexpr Time repeat_period = Time::milliseconds(20);

  using Id = std::uint64_t;
  struct Question {
    std::uint32_t agent_key = 0;  // the upper half of the transaction ID
    ProgramId program = 0;
    Packet packet;
    Time timeout;  // of one try
    std::uint32_t retries = 0;
    Time due;  // set by add()
  };
  struct Due {
    Question question;
    bool is_over = false;  // it has been sent as often as it may, and waits no more
  };

  // Returns whether a program may ask one more.
  bool has_room(ProgramId program) const;
  void add(Time now, Question question);
  // Returns the question to which a datagram is the answer.
  std::optional<Id> find(const Packet& answer) const;
  const Question& at(Id id) const { return questions_.at(id); }
  // The question's answer is under way.
  void postpone(Id id, Time due);
  void erase(Id id);
  void erase_agent(std::uint32_t agent_key);
  std::size_t size() const { return questions_.size(); }

  Time next_timeout() const;
  // Returns the next question whose time is over, to be sent again or to come back.
  std::optional<Due> take_due(Time now);
  void rebase(Time by);

 private:
  using Questions = std::map<Id, Question>;  // in the order in which they were asked
  // Transaction ID, class, and the LID that was asked. An agent may use an ID often.
  using Key = std::tuple<std::uint64_t, std::uint8_t, std::uint16_t, Id>;

  static Key key_of(const Packet& packet, Id id);
  std::optional<Id> first_from(const Key& key, bool is_of_any_lid) const;
  Questions questions_;
  std::set<Key> by_transaction_;
  std::set<std::pair<Time, Id>> by_due_;
  std::map<ProgramId, std::size_t> of_program_;
  int repeats_left_ = repeats_max;  // in this period
  Time next_period_ = Time::zero();
  Id next_id_ = 1;
};

}  // namespace tulle::management
