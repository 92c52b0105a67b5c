#pragma once

// The questions that a subnet manager asks by directed routes. Only a few are on the wire at a
// time. One without an answer is asked again, and then comes back unanswered. An answer counts only
// if it has the transaction ID of a question, which a stranger cannot guess: nodes alone see it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "management/packet.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

using AttributeData = std::array<std::byte, wire::subnet_data_bytes>;

struct Question {
  Route route;
  std::uint8_t method = method_get;
  std::uint16_t attribute = 0;
  std::uint32_t modifier = 0;
  AttributeData data{};
  // The M_Key that the node has, where that is not the manager's.
  std::optional<std::uint64_t> key;
  // For the asker's use: the node and the place of the port that the question is about.
  std::uint32_t node = no_node;
  std::uint8_t place = 0;
};

struct Reply {
  Question question;
  bool has_come = false;  // false: no answer came
  Status status = Status::ok;
  AttributeData data{};

  bool is_good() const { return has_come && status == Status::ok; }
  template <typename Attribute>
  Attribute as() const {
    Attribute attribute;
    static_assert(sizeof attribute <= wire::subnet_data_bytes);
    std::memcpy(&attribute, data.data(), sizeof attribute);
    return attribute;
  }
};

class Exchange {
 public:
  // OpenSM has four on the wire, and asks again three times, each after 200 ms.
  static constexpr std::size_t on_the_wire_max = 8;
  static constexpr int tries_max = 4;
  static constexpr Time timeout = Time::milliseconds(200);

  // Returns numbers that nobody can predict from others.
  using Draw = std::function<std::uint64_t()>;

  // Programs see the transaction IDs of questions for managers. Without `draw`, these are in order.
  explicit Exchange(std::uint64_t seed, Draw draw = {}) : random_(seed), draw_(std::move(draw)) {}

  // Sets the M_Keys of questions for nodes, and of those for managers (SMInfo), which programs see.
  void set_keys(std::uint64_t of_nodes, std::uint64_t of_managers) {
    key_ = of_nodes;
    managers_key_ = of_managers;
  }
  void ask(const Question& question) { waiting_.push_back(question); }
  // Forgets all questions.
  void clear();
  bool is_over() const { return waiting_.empty() && asked_.empty(); }

  // Returns the packet of a question whose answer nobody awaits.
  Packet unawaited(const Question& question) {
    return packet_of({question, next_transaction(question), {}});
  }
  std::optional<Packet> take_packet(Time now);
  // Returns the reply if the packet is an answer to a question on the wire.
  std::optional<Reply> receive(const Packet& packet);
  // Returns the next question that was asked as often as it may be.
  std::optional<Reply> expire(Time now);
  Time next_timeout() const;
  void rebase(Time by) {
    for (Asked& each : asked_) tulle::rebase(by, each.due);
  }

 private:
  struct Asked {
    Question question;
    std::uint64_t transaction = 0;
    Time due;
    int tries_left = tries_max;
    bool is_to_send = true;
  };

  Packet packet_of(const Asked& asked) const;
  std::uint64_t next_transaction(const Question& question);

  Random random_;
  Draw draw_;
  std::uint64_t shown_ = 0;  // transactions that programs see
  std::uint64_t key_ = 0;
  std::uint64_t managers_key_ = 0;
  std::deque<Question> waiting_;
  std::vector<Asked> asked_;
};

// Returns a question whose data are an attribute.
template <typename Attribute>
Question set_question(const Route& route, std::uint16_t attribute, std::uint32_t modifier,
                      const Attribute& data) {
  Question question;
  question.route = route;
  question.method = method_set;
  question.attribute = attribute;
  question.modifier = modifier;
  static_assert(sizeof data <= wire::subnet_data_bytes);
  std::memcpy(question.data.data(), &data, sizeof data);
  return question;
}

}  // namespace tulle::management::subnet
