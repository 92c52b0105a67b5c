#include "tests/scenarios/promises.h"

#include <algorithm>
#include <cstring>

#include "tests/scenarios/broken.h"

namespace tulle::scenarios {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::EventType;
using verbs::QpState;
using verbs::QpType;

namespace {

constexpr std::uint32_t grh_bytes = 40;

CompletionOpcode opcode_of(Work work) {
  switch (work) {
    case Work::write:
    case Work::write_with_immediate:
    case Work::write_to_nowhere:
    case Work::write_hot:
    case Work::write_window:
      return CompletionOpcode::write;
    case Work::atomic_write:
      return CompletionOpcode::atomic_write;
    case Work::read:
    case Work::read_hot:
    case Work::read_window:
      return CompletionOpcode::read;
    case Work::compare_swap:
      return CompletionOpcode::compare_swap;
    case Work::fetch_add:
      return CompletionOpcode::fetch_add;
    case Work::bind_window:
      return CompletionOpcode::bind_window;
    case Work::local_invalidate:
      return CompletionOpcode::local_invalidate;
    default:
      return CompletionOpcode::send;
  }
}

bool writes_once(Work work) {
  return work == Work::write || work == Work::write_with_immediate || work == Work::write_window ||
         work == Work::atomic_write;
}

std::string text(CompletionStatus status) {
  return "status " + std::to_string(static_cast<int>(status));
}

}  // namespace

std::string End::name() const {
  return "channel " + std::to_string(channel_number) + " end " + std::to_string(side);
}

// --- the send queue's promises ---

void Promises::send_completed(Time now, End& end, const verbs::Completion& completion) {
  const std::size_t index = completion.wr_id & 0xFFFF'FFFF;
  const std::string who = end.name() + ", request " + std::to_string(index) + ": ";
  promise(index < end.posted.size() && end.posted[index].wr_id == completion.wr_id,
          who + "a completion for what was never posted");
  promise(index >= end.completed, who + "completed twice");
  for (; end.completed < index; ++end.completed) {
    promise(!end.posted[end.completed].signaled && !end.first_error,
            who + "completed before request " + std::to_string(end.completed));
    succeeded(now, end, end.completed);
  }
  ++end.completed;
  promise(completion.opcode == opcode_of(end.ops[index].work), who + "another opcode");
  if (completion.status == CompletionStatus::success) {
    promise(!end.first_error, who + "succeeded after one before it had failed");
    promise(end.posted[index].signaled, who + "was not to be told of");
    if (is_read(end.ops[index].work) || is_atomic(end.ops[index].work)) {
      promise(completion.byte_length == end.ops[index].bytes, who + "another length");
    }
    succeeded(now, end, index);
    return;
  }
  if (end.first_error) {
    promise(completion.status == CompletionStatus::flushed,
            who + text(completion.status) + " after the first failure");
  } else {
    promise(may_fail(end, index, completion.status),
            who + "failed with " + text(completion.status));
    if (fails_as_planned(end, index, completion.status)) ++end.failures_as_planned;
    end.first_error = index;
    end.first_status = completion.status;
  }
  failed(end, index);
}

bool Promises::fails_as_planned(const End& end, std::size_t index, CompletionStatus status) const {
  if (!end.is_culprit() || index != end.channel->mishap_op) return false;
  switch (end.channel->mishap) {
    case Mishap::unknown_key:
    case Mishap::out_of_bounds:
    case Mishap::wrong_region_access:
      return status == CompletionStatus::remote_access_error;
    case Mishap::misaligned_atomic:
    case Mishap::wrong_qp_access:
    case Mishap::short_receive:
      return status == CompletionStatus::remote_invalid_request_error;
    case Mishap::receive_protection:
      return status == CompletionStatus::remote_operation_error;
    case Mishap::local_protection:
      return status == CompletionStatus::local_protection_error;
    case Mishap::bad_invalidate:
      return status == CompletionStatus::local_qp_operation_error;
    case Mishap::bad_bind:
      return status == CompletionStatus::memory_window_bind_error;
    case Mishap::datagram_too_long:
      return status == CompletionStatus::local_length_error;
    case Mishap::rnr_exhausted:
      return status == CompletionStatus::rnr_retry_exceeded_error;
    default:
      return false;
  }
}

// Returns true if the first failure of an end may be this one.
bool Promises::may_fail(const End& end, std::size_t index, CompletionStatus status) const {
  if (fails_as_planned(end, index, status)) return true;
  const Mishap mishap = end.channel->mishap;
  if (end.is_iwarp()) return may_fail_over_iwarp(end, status);
  if (status == CompletionStatus::flushed) {
    const bool failed_as_responder = end.is_victim() && found_by_responder(mishap);
    return failed_as_responder || (end.is_culprit() && mishap == Mishap::moved_to_error);
  }
  const bool may_not_be_ready = plan_.weather == Weather::stormy && end.mine->rnr_retry < 7;
  if (status == CompletionStatus::rnr_retry_exceeded_error) return end.is_rc() && may_not_be_ready;
  if (status != CompletionStatus::retry_exceeded_error || !end.is_rc()) return false;
  if (plan_.weather == Weather::stormy || end.cut_off()) return true;
  // The peer failed for a reason of its own and does not answer any more.
  if (end.is_victim() && !found_by_responder(mishap)) {
    return mishap != Mishap::reset_and_reconnect;
  }
  // The peer failed because of this end's request, and the network lost its answer to that request
  // or to earlier ones.
  return end.is_culprit() && found_by_responder(mishap) && lossy() &&
         index <= end.channel->mishap_op;
}

// After the peer's TERMINATE or reset, or after TCP has given up, the request that waited longest
// reports it. If no request was under way, the rest is flushed.
bool Promises::may_fail_over_iwarp(const End& end, CompletionStatus status) const {
  if (status != CompletionStatus::flushed && status != CompletionStatus::retry_exceeded_error) {
    return false;
  }
  if (end.is_culprit() && end.channel->mishap == Mishap::moved_to_error) return true;
  return end.is_victim() || plan_.weather == Weather::stormy || end.cut_off();
}

void Promises::succeeded(Time now, End& end, std::size_t index) {
  Posted& posted = end.posted[index];
  const Op& op = end.ops[index];
  posted.done = posted.succeeded = true;
  switch (op.work) {
    case Work::write:
    case Work::write_with_immediate:
    case Work::write_window:
    case Work::atomic_write:
      if (end.is_rc() && !posted.delivered) check_write(end, index);
      if (op.work != Work::write_with_immediate || posted.delivered) recycle(end, index);
      break;
    case Work::write_hot:
      end.hot_sure = std::max(end.hot_sure, posted.hot_version);
      break;
    case Work::read:
    case Work::read_hot:
    case Work::read_window:
      read_arrived(end, index);
      break;
    case Work::compare_swap:
    case Work::fetch_add: {
      const auto bytes = end.local.gather(op.pieces);
      AtomicEntry entry{posted.at, now, 0, posted.compare, posted.operand};
      std::memcpy(&entry.original, bytes.data(), sizeof entry.original);
      nodes_[end.peer->mine->node].words[op.word].history.push_back(entry);
      end.local.expect(op.pieces, bytes);
      break;
    }
    case Work::bind_window:
      ++end.cycles_bound;
      break;
    case Work::local_invalidate:
      ++end.cycles_ended;
      break;
    default:
      break;
  }
  if (op.work == Work::write_window || op.work == Work::read_window) {
    --end.window_uses_left[op.cycle];
  }
  // The buffer belongs to the application again. The new contents reveal an adapter that still
  // reads or writes it.
  end.local.scribble(random_, op.pieces);
}

void Promises::failed(End& end, std::size_t index) {
  Posted& posted = end.posted[index];
  const Op& op = end.ops[index];
  posted.done = true;
  const bool refused = end.is_culprit() && index == end.channel->mishap_op &&
                       end.channel->mishap <= Mishap::wrong_qp_access;
  if (writes_once(op.work) && !refused) {
    end.peer->exposed.doubt(op.remote_offset, posted.payload);
  }
  if (is_atomic(op.work) && !refused) {
    const AtomicEntry entry{posted.at, Time::never(), 0, posted.compare, posted.operand};
    nodes_[end.peer->mine->node].words[op.word].history.push_back(entry);
  }
  // An adapter may send a long READ as several requests, of which the first few are within bounds.
  // The contents that a failed READ leaves in its buffer are undefined.
  if (refused && op.work == Work::read) posted.payload = end.local.gather(op.pieces);
  const bool partial = op.work == Work::read || op.work == Work::read_window;
  const auto bytes =
      partial ? std::span<const std::byte>(posted.payload) : std::span<const std::byte>();
  promise(end.local.settle(op.pieces, bytes),
          end.name() + ", request " + std::to_string(index) + ": failed, and wrote something else");
}

void Promises::was_reset(End& end) {
  for (auto& buffer : end.receives->buffers) {
    promise(!buffer.posted || explain(end, buffer),
            end.name() + ": a receive buffer holds what no message carried");
  }
  for (; end.completed < end.posted.size(); ++end.completed) {
    // The request may have succeeded, and the reset may have discarded its completion.
    const Op& op = end.ops[end.completed];
    if (op.work == Work::read_hot || is_atomic(op.work)) {
      end.local.expect(op.pieces, end.local.gather(op.pieces));
    }
    failed(end, end.completed);
  }
  end.hot_last = end.hot_sure;
}

void Promises::was_forgotten(End& end) {
  for (std::size_t i = 0; i < end.posted.size(); ++i) {
    Posted& posted = end.posted[i];
    const bool unread = posted.succeeded && !posted.delivered;
    posted.delivered = true;
    if (unread && end.ops[i].work == Work::write_with_immediate) recycle(end, i);
  }
  end.messages_delivered = end.messages.size();
  end.first_error.reset();
}

// --- checks of WRITE, READ and the hot place ---

void Promises::check_write(End& end, std::size_t index) {
  promise(end.peer->exposed.holds(end.ops[index].remote_offset, end.posted[index].payload),
          end.name() + ", request " + std::to_string(index) +
              ": what it wrote is not in the peer's memory");
}

// The target belongs to its owner again and must not change any more.
void Promises::recycle(End& end, std::size_t index) {
  if (!end.is_rc()) return;  // UC may write it again if the network delivers it again
  end.peer->exposed.scribble(random_, Piece{end.ops[index].remote_offset, end.ops[index].bytes});
}

void Promises::read_arrived(End& end, std::size_t index) {
  const Op& op = end.ops[index];
  const Posted& posted = end.posted[index];
  if (op.work == Work::read_hot) {
    const auto content = end.local.gather(op.pieces);
    check_hot(end, posted.hot_version, content);
    end.local.expect(op.pieces, content);
    return;
  }
  promise(end.local.holds(op.pieces, posted.payload),
          end.name() + ", request " + std::to_string(index) + ": it read something else");
  end.local.expect(op.pieces, posted.payload);
}

// Checks the place in the peer's memory that `end` writes again and again: it holds no version
// older than `oldest`, and never a mixture.
void Promises::check_hot(End& end, std::size_t oldest, std::span<const std::byte> content) {
  for (std::size_t i = end.hot_versions.size(); i-- > oldest;) {
    if (std::equal(content.begin(), content.end(), end.hot_versions[i].begin())) return;
  }
  throw Broken(end.name() + ": the place written over and over holds an old version or a mixture");
}

// --- the receive queue's promises ---

void Promises::receive_completed(End& end, ReceivePool::Buffer& buffer,
                                 const verbs::Completion& completion) {
  if (completion.status == CompletionStatus::success) {
    message_arrived(end, buffer, completion);
  } else {
    receive_failed(end, buffer, completion);
  }
  for (const Piece& piece : buffer.pieces) {
    promise(end.receives->block.as_expected(piece),
            end.name() + ": more of a receive buffer was written than the message");
  }
}

bool Promises::carries(End& receiver, std::size_t index, const ReceivePool::Buffer& buffer,
                       const verbs::Completion& completion) const {
  const End& sender = *receiver.peer;
  const Op& op = sender.ops[index];
  const Posted& posted = sender.posted[index];
  const bool datagram = receiver.channel->type == QpType::ud;
  const bool write = op.work == Work::write_with_immediate;
  const bool immediate = write || op.work == Work::send_with_immediate;
  const auto expected_opcode =
      write ? CompletionOpcode::receive_write_with_immediate : CompletionOpcode::receive;
  if (completion.opcode != expected_opcode || completion.has_immediate != immediate) return false;
  if (immediate && completion.immediate != op.immediate) return false;
  if (completion.byte_length != op.bytes + (datagram ? grh_bytes : 0)) return false;
  if (datagram && (!completion.has_grh || completion.source_qp != sender.qp->number)) return false;
  const bool invalidates = op.work == Work::send_with_invalidate;
  if (completion.has_invalidate != invalidates) return false;
  if (invalidates && completion.invalidated_rkey != posted.invalidates) return false;
  if (write) return true;
  std::vector<std::byte> content = receiver.receives->block.gather(buffer.pieces);
  content.erase(content.begin(), content.begin() + (datagram ? grh_bytes : 0));
  return std::equal(posted.payload.begin(), posted.payload.end(), content.begin());
}

// UC and UD may lose and repeat messages. UD may reorder them, and so may a delay on UC. A message
// that arrives must still be one that was sent.
std::size_t Promises::which_message(End& receiver, const ReceivePool::Buffer& buffer,
                                    const verbs::Completion& completion) {
  End& sender = *receiver.peer;
  if (receiver.is_rc() || (!lossy() && receiver.channel->mishap == Mishap::none)) {
    promise(receiver.peer->messages_delivered < sender.messages.size(),
            receiver.name() + ": received a message that was never sent");
    const std::size_t index = sender.messages[sender.messages_delivered++];
    promise(carries(receiver, index, buffer, completion),
            receiver.name() + ": received something else than request " + std::to_string(index));
    return index;
  }
  for (const std::size_t index : sender.messages) {
    if (carries(receiver, index, buffer, completion)) return index;
  }
  throw Broken(receiver.name() + ": received something that was never sent");
}

void Promises::message_arrived(End& receiver, ReceivePool::Buffer& buffer,
                               const verbs::Completion& completion) {
  End& sender = *receiver.peer;
  const std::size_t index = which_message(receiver, buffer, completion);
  Posted& posted = sender.posted[index];
  const Op& op = sender.ops[index];
  if (op.work != Work::write_with_immediate || receiver.channel->type == QpType::uc) {
    auto content = receiver.receives->block.gather(buffer.pieces);
    // On UC a longer message may have begun in this buffer without ever being completed.
    if (receiver.channel->type != QpType::uc) content.resize(completion.byte_length);
    receiver.receives->block.expect(buffer.pieces, content);
  }
  if (op.work == Work::send_with_invalidate) ++receiver.cycles_ended;
  // On UC and UD the checker cannot tell equal messages apart.
  promise(!unannounced || !op.solicited || !receiver.is_rc(),
          receiver.name() + ": there was no event for a solicited message");
  const bool again = posted.delivered;
  posted.delivered = true;
  if (op.work == Work::write_with_immediate && !again && !posted.succeeded) {
    check_write(sender, index);
  }
  if (!receiver.is_rc()) return;
  // IBTA 9.5: everything that was posted before this message on its channel has been executed.
  std::size_t hot = 0;
  for (std::size_t before = 0; before < index; ++before) {
    const bool dropped = sender.posted[before].done && !sender.posted[before].succeeded;
    if (sender.ops[before].work == Work::write_hot && !dropped)
      hot = sender.posted[before].hot_version;
    if (writes_once(sender.ops[before].work) && !sender.posted[before].done) {
      check_write(sender, before);
    }
  }
  if (op.work == Work::write_with_immediate && posted.succeeded) recycle(sender, index);
  const auto hot_bytes = static_cast<std::uint32_t>(sender.hot_versions.front().size());
  const Piece place{receiver.hot_offset, hot_bytes};
  check_hot(sender, hot, receiver.exposed.gather({&place, 1}));
}

bool Promises::receive_may_fail(const End& receiver, CompletionStatus status) const {
  if (receiver.receiver().state() != QpState::error) return false;
  const Mishap mishap = receiver.channel->mishap;
  switch (status) {
    case CompletionStatus::flushed:
      return true;
    case CompletionStatus::local_length_error:
      return receiver.is_victim() && mishap == Mishap::short_receive;
    case CompletionStatus::local_protection_error:
      return receiver.is_victim() && mishap == Mishap::receive_protection;
    default:
      return false;
  }
}

void Promises::receive_failed(End& receiver, ReceivePool::Buffer& buffer,
                              const verbs::Completion& completion) {
  promise(receive_may_fail(receiver, completion.status),
          receiver.name() + ": a receive failed with " + text(completion.status));
  if (completion.status != CompletionStatus::flushed) ++receiver.failures_as_planned;
  const bool explained = explain(receiver, buffer);
  promise(explained, receiver.name() + ": a receive buffer holds what no message carried");
}

// Returns true if a receive buffer without a completion holds its old contents, or part of a
// message that was on its way in.
bool Promises::explain(End& receiver, const ReceivePool::Buffer& buffer) {
  Block& block = receiver.receives->block;
  if (!receiver.is_rc()) {
    const auto content = block.gather(buffer.pieces);
    return block.settle(buffer.pieces, content);
  }
  if (block.settle(buffer.pieces, {})) return true;
  const End& sender = *receiver.peer;
  for (const std::size_t index : sender.messages) {
    if (sender.posted[index].delivered) continue;
    if (block.settle(buffer.pieces, sender.posted[index].payload)) return true;
  }
  return false;
}

// --- at the end ---

void Promises::check_finished(End& end) {
  promise(end.outstanding() == 0, end.name() + ": requests have not completed");
  const bool whole = !end.first_error && end.posted.size() == end.ops.size();
  promise(whole || end.first_error || end.gave_up, end.name() + ": not everything was posted");
  const bool strict = end.is_rc() || (!lossy() && end.channel->mishap == Mishap::none);
  for (const std::size_t index : end.messages) {
    promise(!strict || !end.posted[index].succeeded || end.posted[index].delivered,
            end.name() + ", request " + std::to_string(index) +
                ": it succeeded, and the peer has no completion");
  }
  for (std::size_t i = 0; i < end.posted.size(); ++i) {
    if (end.is_rc() || !writes_once(end.ops[i].work) || !end.posted[i].succeeded) continue;
    if (strict) check_write(end, i);
    end.peer->exposed.doubt(end.ops[i].remote_offset, end.posted[i].payload);
  }
  const auto hot_bytes = static_cast<std::uint32_t>(end.hot_versions.front().size());
  const Piece place{end.peer->hot_offset, hot_bytes};
  const auto content = end.peer->exposed.gather({&place, 1});
  check_hot(end, end.hot_sure, content);
  end.peer->exposed.expect(place.offset, content);
  check_mishap(end);
}

void Promises::check_mishap(const End& end) {
  const Mishap mishap = end.channel->mishap;
  const auto count = [&end](EventType type) {
    const auto found = end.events.find(type);
    return found != end.events.end() ? found->second : 0;
  };
  std::uint32_t access = 0, request = 0;
  if (plan_.weather != Weather::stormy && !end.cut_off()) {
    const bool by_request = mishap >= Mishap::unknown_key && mishap <= Mishap::rnr_exhausted;
    const bool told = end.failures_as_planned == 1 ||
                      (lossy() && end.first_status == CompletionStatus::retry_exceeded_error);
    promise(!by_request || !end.is_culprit() || told, end.name() + ": what should fail did not");
    if (end.is_victim() && found_by_responder(mishap)) {
      promise(end.receiver().state() == QpState::error,
              end.name() + ": the responder did not fail");
      access = mishap <= Mishap::wrong_region_access ? 1 : 0;
      const bool is_invalid =
          mishap == Mishap::misaligned_atomic || mishap == Mishap::wrong_qp_access;
      request = is_invalid ? 1 : 0;
      promise(access + request + end.failures_as_planned == 1,
              end.name() + ": the responder was not told once");
    }
    promise(count(EventType::qp_access_error) == access &&
                count(EventType::qp_request_error) == request,
            end.name() + ": wrong asynchronous events");
  }
  const bool ended_by_peer = end.is_iwarp() && end.qp->state() == QpState::error;
  promise(count(EventType::qp_fatal) == 0 || mishap == Mishap::receive_protection || ended_by_peer,
          end.name() + ": a fatal event");
  promise(count(EventType::cq_error) == 0, end.name() + ": a completion queue overran");
  promise(count(EventType::send_queue_drained) == end.drains,
          end.name() + ": not one event for each drained send queue");
}

void Promises::check_flushed(const End& end) {
  const auto last = end.events.find(EventType::last_wqe_reached);
  const std::uint32_t told = last != end.events.end() ? last->second : 0;
  promise(told == (end.mine->shared_receives ? 1u : 0u),
          end.name() + ": not one event for the last receive");
  if (end.receives->srq != nullptr) return;
  promise(end.receives->order.empty(), end.name() + ": receives were not flushed");
}

void Promises::check_memory(End& end) {
  for (Block* block : {&end.local, &end.exposed, &end.sealed}) {
    const auto difference = block->difference();
    const char* which = block == &end.local     ? " local"
                        : block == &end.exposed ? " exposed"
                                                : " sealed";
    promise(!difference, end.name() + which + " memory: " + difference.value_or(""));
  }
}

void Promises::check_receives(ReceivePool& pool) {
  const auto difference = pool.block.difference();
  promise(!difference,
          "receive pool " + std::to_string(pool.number) + ": " + difference.value_or(""));
}

void Promises::check_node(NodeState& node) {
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    const Word& word = node.words[i];
    const std::uint32_t offset = node.word_offsets[i];
    std::uint64_t final = 0;
    std::memcpy(&final, node.memory_of_words.at(offset), sizeof final);
    const std::string verdict = word.swaps ? check_swaps(word.initial, final, word.history)
                                           : check_additions(word.initial, final, word.history);
    promise(verdict.empty(), "word " + std::to_string(i) + ": " + verdict);
    node.memory_of_words.expect(offset, {node.memory_of_words.at(offset), sizeof final});
  }
  const auto difference = node.memory_of_words.difference();
  promise(!difference, "memory of atomic words: " + difference.value_or(""));
}

}  // namespace tulle::scenarios
