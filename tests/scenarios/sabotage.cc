// Faults that a useful checker must find. Each happens once, at the first occasion.

#include <algorithm>
#include <array>
#include <cstring>

#include "rdma/wire/opcode.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {

using verbs::CompletionStatus;

std::string_view name_of(Sabotage sabotage) {
  constexpr std::array<std::string_view, 15> names = {"none",
                                                      "completion_twice",
                                                      "completion_lost",
                                                      "completions_swapped",
                                                      "status_changed",
                                                      "length_changed",
                                                      "immediate_changed",
                                                      "payload_damaged",
                                                      "guard_byte",
                                                      "old_write",
                                                      "atomic_twice",
                                                      "event_lost",
                                                      "request_sent_again",
                                                      "credits_raised",
                                                      "acknowledged_early"};
  return names[static_cast<std::size_t>(sabotage)];
}

// Returns false if the checker must not see the completion.
bool World::sabotage_completion(End& end, verbs::Completion& completion) {
  if (sabotage_ == Sabotage::none || outcome_.sabotaged) return true;
  const bool is_send = completion.wr_id >> 63 == 0;
  const bool good = completion.status == CompletionStatus::success;
  switch (sabotage_) {
    case Sabotage::completion_twice:
      if (!is_send || !good) return true;
      promises_.send_completed(cluster_.now(), end, completion);
      break;
    case Sabotage::completion_lost:
      outcome_.sabotaged = true;
      return false;
    case Sabotage::completions_swapped:
      if (!is_send || !good || end.outstanding() < 2) return true;
      if (!end.posted.back().signaled || !end.posted[end.completed].signaled) return true;
      // Pretends that a later request completed first.
      completion.wr_id = end.posted.back().wr_id;
      break;
    case Sabotage::status_changed:
      if (!good || !is_send) return true;
      completion.status = CompletionStatus::remote_operation_error;
      break;
    case Sabotage::length_changed:
      if (!good || is_send) return true;
      ++completion.byte_length;
      break;
    case Sabotage::immediate_changed:
      if (!completion.has_immediate || !good) return true;
      completion.immediate ^= 0x0100;
      break;
    default:
      return true;
  }
  outcome_.sabotaged = true;
  return true;
}

// Reports what an adapter that breaks the protocol would send.
void World::sabotage_departure(Time now, std::size_t sender, wire::Packet& packet) {
  if (outcome_.sabotaged) return;
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const bool is_ack = info.aeth && packet.syndrome.kind == wire::AckKind::ack;
  switch (sabotage_) {
    case Sabotage::request_sent_again:
      if (info.aeth) return;
      outcome_.sabotaged = true;
      wire_.request_left(now, sender, packet);
      return;
    case Sabotage::credits_raised:
      if (!is_ack || packet.syndrome.value >= 30) return;
      ++packet.syndrome.value;
      break;
    case Sabotage::acknowledged_early:
      if (!is_ack) return;
      packet.psn = packet.psn + 1'000;
      break;
    default:
      return;
  }
  outcome_.sabotaged = true;
}

// Does what a late or repeated packet would do, after all work is done.
void World::sabotage_memory() {
  for (auto& end : ends_) {
    if (outcome_.sabotaged) return;
    if (sabotage_ == Sabotage::guard_byte_written) {
      end->exposed.data()[-1] ^= std::byte{1};
      outcome_.sabotaged = true;
      return;
    }
    for (std::size_t i = 0; i < end->posted.size() && !outcome_.sabotaged; ++i) {
      const Op& op = end->ops[i];
      const Posted& posted = end->posted[i];
      if (!end->is_rc() || !posted.succeeded) continue;
      if (sabotage_ == Sabotage::old_write_repeated && op.work == Work::write && op.bytes > 8) {
        std::copy(posted.payload.begin(), posted.payload.end(),
                  end->peer->exposed.at(op.remote_offset));
        outcome_.sabotaged = true;
      }
      if (sabotage_ == Sabotage::atomic_twice && op.work == Work::fetch_add) {
        NodeState& node = nodes_[end->peer->mine->node];
        const auto& history = node.words[op.word].history;
        // If another operation failed, this one twice may look like both of them once.
        if (!std::all_of(history.begin(), history.end(),
                         [](const AtomicEntry& entry) { return entry.known(); })) {
          continue;
        }
        std::byte* at = node.memory_of_words.at(node.word_offsets[op.word]);
        std::uint64_t word = 0;
        std::memcpy(&word, at, sizeof word);
        word += op.add;
        std::memcpy(at, &word, sizeof word);
        outcome_.sabotaged = true;
      }
    }
  }
}

}  // namespace tulle::scenarios
