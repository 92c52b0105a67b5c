// The checks of the SRD scenarios: each completion, and the state at the end, is held against what
// the verbs promise.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/scenarios/broken.h"
#include "tests/scenarios/srd_world.h"

namespace tulle::scenarios {

using verbs::CompletionStatus;

// --- completions ---

void SrdWorld::poll(std::uint32_t node) {
  std::array<verbs::Completion, 8> completions;
  for (std::uint32_t count; (count = nodes_[node].cq->poll(completions)) > 0;) {
    for (std::uint32_t i = 0; i < count; ++i) completed(completions[i]);
  }
  for (std::uint32_t i = 0; i < ends_.size(); ++i) {
    if (ends_[i].node == node) pump(i);
  }
}

void SrdWorld::completed(const verbs::Completion& completion) {
  ++outcome_.completions;
  verbs::Completion seen = completion;
  if (!sabotage(seen)) return;
  if ((seen.wr_id & receive_bit) != 0) {
    receive_completed(seen);
  } else {
    send_completed(seen);
  }
}

// Returns false if the checker must not see the completion.
bool SrdWorld::sabotage(verbs::Completion& completion) {
  if (sabotage_ == SrdSabotage::none || sabotaged_) return true;
  const bool is_send = (completion.wr_id & receive_bit) == 0;
  const bool good = completion.status == CompletionStatus::success;
  if (!good) return true;
  switch (sabotage_) {
    case SrdSabotage::completion_twice:
      if (!is_send) return true;
      sabotaged_ = true;
      send_completed(completion);
      return true;
    case SrdSabotage::completion_lost:
      return !(sabotaged_ = is_send);
    case SrdSabotage::status_changed:
      if (!is_send) return true;
      completion.status = CompletionStatus::remote_operation_error;
      return sabotaged_ = true;
    case SrdSabotage::arrival_twice:
      if (is_send) return true;
      sabotaged_ = true;
      receive_completed(completion);
      ends_[completion.wr_id >> 32 & 0xFF'FFFF].buffers[completion.wr_id & 0xFFFF'FFFF].posted =
          true;
      return true;
    case SrdSabotage::arrival_lost:
      return !(sabotaged_ = !is_send);
    case SrdSabotage::received_byte_changed: {
      if (is_send || completion.byte_length <= tag_bytes ||
          completion.opcode != verbs::CompletionOpcode::receive) {
        return true;
      }
      End& end = ends_[completion.wr_id >> 32 & 0xFF'FFFF];
      end.memory
          .bytes[end.buffers[completion.wr_id & 0xFFFF'FFFF].offset + completion.byte_length - 1] ^=
          std::byte{1};
      return sabotaged_ = true;
    }
    case SrdSabotage::written_byte_changed: {
      if (!is_send) return true;
      const Op& op = ops_[completion.wr_id];
      if (op.work != Work::write || op.bytes == 0) return true;
      ends_[op.to].memory.bytes[op.remote] ^= std::byte{1};
      return sabotaged_ = true;
    }
    default:
      return true;
  }
}

void SrdWorld::send_completed(const verbs::Completion& completion) {
  promise(completion.wr_id < ops_.size(), "a completion of what was never posted");
  Op& op = ops_[completion.wr_id];
  const std::string who = "request " + std::to_string(completion.wr_id) + ": ";
  promise(op.posted && !op.forgotten, who + "a completion of what was not posted");
  promise(!op.status, who + "completed twice");
  op.status = completion.status;
  promise(completion.qp == ends_[op.from].number, who + "completed by another queue pair");
  End& to = ends_[op.to];
  if (completion.status != CompletionStatus::success) {
    ++outcome_.failures;
    promise(may_fail(op, completion.status),
            who + "failed with status " + std::to_string(static_cast<int>(completion.status)));
    return;
  }
  promise(op.signaled, who + "was not to be told of");
  promise(op.mishap == Mishap::none, who + "succeeded, which it could not");
  if (op.work == Work::write) {
    promise(std::equal(op.payload.begin(), op.payload.end(), to.memory.bytes.begin() + op.remote),
            who + "what it wrote is not there");
    // No request writes there from now on, so a packet that came twice would be found.
    for (std::uint32_t i = 0; i < op.bytes; ++i) {
      const auto byte = static_cast<std::byte>(random_.next());
      to.memory.bytes[op.remote + i] = to.memory.expected[op.remote + i] = byte;
      to.memory.open[op.remote + i] = false;
    }
  }
  // No adapter reads the sent bytes again, either.
  End& from = ends_[op.from];
  for (std::uint32_t i = 0; i < op.bytes; ++i) {
    from.memory.bytes[op.local + i] = from.memory.expected[op.local + i] =
        static_cast<std::byte>(random_.next());
  }
}

void SrdWorld::receive_completed(const verbs::Completion& completion) {
  const auto number = static_cast<std::uint32_t>(completion.wr_id >> 32 & 0xFF'FFFF);
  const auto which = static_cast<std::uint32_t>(completion.wr_id);
  End& end = ends_[number];
  Buffer& buffer = end.buffers[which];
  promise(buffer.posted || buffer.may_flush, "a receive request completed that was not posted");
  buffer.posted = buffer.may_flush = false;
  if (completion.status != CompletionStatus::success) {
    promise(completion.status == CompletionStatus::flushed && end.ended,
            "a receive request failed with status " +
                std::to_string(static_cast<int>(completion.status)));
    if (srd_.send_bytes_max > 0) {
      std::fill_n(end.memory.open.begin() + buffer.offset, end.buffer_bytes, true);
    }
    return;
  }
  std::uint32_t op = completion.immediate;
  if (!completion.has_immediate) {
    promise(completion.byte_length >= tag_bytes, "a message came that nobody sent");
    std::memcpy(&op, end.memory.bytes.data() + buffer.offset, tag_bytes);
  }
  promise(op < ops_.size() && ends_[ops_[op].to].number == end.number,
          "a message came that was not for here");
  arrived(op, completion, buffer);
  const std::uint64_t token =
      static_cast<std::uint64_t>(Alarm::receive) << 56 | std::uint64_t{which} << 24 | number;
  cluster_->alarm(cluster_->now() + Time::nanoseconds(one_in(2) ? 0 : below(200'000)),
                  sim::NodeNumber(end.node), token);
}

void SrdWorld::arrived(std::uint32_t number, const verbs::Completion& completion, Buffer& buffer) {
  Op& op = ops_[number];
  End& end = ends_[op.to];
  const std::string who = "request " + std::to_string(number) + ": ";
  promise(op.posted && ++op.arrivals == 1, who + "arrived twice, or before it was sent");
  promise(completion.source_qp == ends_[op.from].number, who + "came from another queue pair");
  promise(completion.byte_length == op.bytes, who + "arrived with another length");
  const bool writes = op.work == Work::write_with_immediate;
  const bool immediate = writes || op.work == Work::send_with_immediate;
  promise(completion.has_immediate == immediate, who + "arrived as another operation");
  promise((completion.opcode == verbs::CompletionOpcode::receive_write_with_immediate) == writes,
          who + "arrived with another opcode");
  const std::uint32_t at = writes ? op.remote : buffer.offset;
  promise(std::equal(op.payload.begin(), op.payload.end(), end.memory.bytes.begin() + at),
          who + "arrived otherwise than it was sent");
  if (writes) {
    for (std::uint32_t i = 0; i < op.bytes; ++i) {
      const auto byte = static_cast<std::byte>(random_.next());
      end.memory.bytes[at + i] = end.memory.expected[at + i] = byte;
      end.memory.open[at + i] = false;
    }
  }
  // A buffer may hold a part of another message that was never completed.
  const auto expected = end.memory.expected.begin() + buffer.offset;
  const auto found = end.memory.bytes.begin() + buffer.offset;
  const std::uint32_t used = writes ? 0 : op.bytes;
  promise(srd_.send_bytes_max > 0 ||
              std::equal(found + used, found + end.buffer_bytes, expected + used),
          who + "more of its buffer was written than it is long");
  std::copy_n(found, end.buffer_bytes, expected);
}

// --- checks ---

CompletionStatus SrdWorld::status_of(Mishap mishap) {
  switch (mishap) {
    case Mishap::unknown_remote_key:
    case Mishap::out_of_bounds:
      return CompletionStatus::remote_access_error;
    case Mishap::unknown_local_key:
      return CompletionStatus::local_protection_error;
    case Mishap::too_long:
      return CompletionStatus::local_length_error;
    default:
      return CompletionStatus::remote_invalid_request_error;
  }
}

bool SrdWorld::may_fail(const Op& op, CompletionStatus status) const {
  const End& from = ends_[op.from];
  const End& to = ends_[op.to];
  if (op.mishap != Mishap::none && status == status_of(op.mishap)) return true;
  switch (status) {
    case CompletionStatus::flushed:
      return from.ended;
    case CompletionStatus::retry_exceeded_error:
      return stormy_ || cut_off_ == from.node || cut_off_ == to.node;
    case CompletionStatus::remote_invalid_request_error:
      return to.ended;
    case CompletionStatus::rnr_retry_exceeded_error:
      return from.rnr_retry < 7 && op.work != Work::write;
    default:
      return false;
  }
}

void SrdWorld::check_op(std::uint32_t number) {
  const Op& op = ops_[number];
  const End& from = ends_[op.from];
  const std::string who = "request " + std::to_string(number) + ": ";
  promise(op.posted || from.ended, who + "was never posted");
  if (!op.posted || op.forgotten) return;
  promise(op.status || !op.signaled, who + "has not completed");
  const bool failed = op.status && *op.status != CompletionStatus::success;
  const bool arrives = op.work != Work::write;
  promise(failed || !arrives || op.arrivals == 1, who + "succeeded and has not arrived");
  const bool locally = failed && (*op.status == CompletionStatus::local_length_error ||
                                  *op.status == CompletionStatus::local_protection_error);
  promise(!locally || op.arrivals == 0, who + "could not be sent and has arrived");
}

void SrdWorld::check_memory(std::uint32_t number) const {
  const Memory& memory = ends_[number].memory;
  for (std::size_t i = 0; i < memory.bytes.size(); ++i) {
    promise(memory.open[i] || memory.bytes[i] == memory.expected[i],
            "end " + std::to_string(number) + ": byte " + std::to_string(i) +
                " of its memory was written by nobody who may");
  }
  // Bytes of a WRITE whose outcome is unknown are old or new, each on its own.
  for (const Op& op : ops_) {
    if (op.to != number || !op.posted || !is_written(op)) continue;
    for (std::uint32_t i = 0; i < op.bytes; ++i) {
      const std::size_t at = op.remote + i;
      promise(!memory.open[at] || memory.bytes[at] == memory.expected[at] ||
                  memory.bytes[at] == op.payload[i],
              "end " + std::to_string(number) + ": a WRITE left what it did not carry");
    }
  }
}

// Adds up the retransmitted packets. They are not bounded: even where nothing is lost or late, an
// adapter repeats a packet that waited behind others for longer than a time-out from an empty
// network allows for.
void SrdWorld::check_at_rest() {
  for (std::uint32_t node = 0; node < node_count_; ++node) {
    outcome_.retransmitted += adapter(node).counters().transport.retransmitted_packets;
  }
}

void SrdWorld::describe() const {
  std::printf(
      "seed %llu: %u nodes, %zu queue pairs, %zu requests, %s, %lld Gb/s, MTU %u, %u paths, "
      "SEND up to %u, drop %.3f, duplicate %.3f, reorder %.3f by %lld ns, corrupt %.3f\n",
      static_cast<unsigned long long>(seed_), node_count_, ends_.size(), ops_.size(),
      perfect_  ? "perfect"
      : stormy_ ? "stormy"
                : "rough",
      static_cast<long long>(network_.link_bits_per_second / 1'000'000'000), mtu_bytes_, srd_.paths,
      srd_.send_bytes_max, network_.faults.drop, network_.faults.duplicate, network_.faults.reorder,
      static_cast<long long>(network_.faults.reorder_delay.to_nanoseconds()),
      network_.faults.corrupt);
}

void SrdWorld::trace() {
  cluster_->set_tap([](const sim::Departure& departure) {
    const wire::Packet& packet = departure.datagram.packet;
    const std::string_view name = wire::name(packet.opcode);
    std::printf(
        "%12.3f us  %u > %u  qp %06x psn %06x context %x path %u message %u %-28.*s %5u "
        "bytes, answers %06x syndrome %02x, %zu copies\n",
        departure.at.to_seconds() * 1e6, departure.from.value, departure.to.value,
        packet.destination_qp.value, packet.psn.value(), packet.srd_context, packet.srd_path,
        packet.srd_message, static_cast<int>(name.size()), name.data(),
        departure.datagram.payload_bytes, packet.early_psn.value(), packet.syndrome.encoded(),
        departure.copies.count);
  });
}

}  // namespace tulle::scenarios
