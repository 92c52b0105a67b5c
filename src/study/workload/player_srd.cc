// Flows over the scalable reliable datagram, as EFA's applications send them: one queue pair per
// host, an address handle for each peer, and each message on its own.

#include <algorithm>

#include "base/check.h"
#include "study/workload/player.h"

namespace tulle::workload {

using verbs::VerbsStatus;

void Player::post_by_srd(std::uint32_t index) {
  const Flow& flow = flows_[index];
  transport::QueuePair& sender = endpoints_.srd_of(flow.source);
  const QpNumber receiver = endpoints_.srd_number_of(flow.destination);
  const std::uint32_t messages = messages_of(index);
  if (sender.send_queue.size() + messages > sender.init.send_work_requests) {
    // Completed requests may occupy the queue behind one that has not completed.
    TULLE_CHECK(sender.send_queue.size() > 0);
    waiting_[flow.source].push(index);
    return;
  }
  messages_[index].to_complete = messages;
  if (settings_.carries_bytes) memory_.give(index);
  if (is_told(index)) ask_receiver(index);
  const auto level =
      static_cast<std::uint8_t>(settings_.service_level + index % settings_.service_levels);
  send_requests(index, sender, endpoints_.handle_to(flow.source, flow.destination, level),
                receiver);
}

void Player::accept_by_srd(std::uint32_t index) {
  const std::uint32_t number = flows_[index].destination;
  messages_[index].to_arrive = messages_of(index);
  for (std::uint32_t i = 0; i < messages_[index].to_arrive; ++i) {
    const VerbsStatus status = stage_.adapter(number).post_receive(endpoints_.srd_of(number), {});
    TULLE_CHECK(status == VerbsStatus::ok);
  }
}

// The immediate value names the flow of the message that has arrived, since receive requests are
// taken in any order.
void Player::complete_by_srd(Time now, std::uint32_t number, const verbs::Completion& completion) {
  const bool success = completion.status == verbs::CompletionStatus::success;
  if (completion.opcode == verbs::CompletionOpcode::receive_write_with_immediate) {
    const std::uint32_t flow = completion.immediate;
    check_named(flow, number, flow);
    if (success && --messages_[flow].to_arrive == 0) arrived(now, flow);
    return;
  }
  const auto flow = static_cast<std::uint32_t>(completion.wr_id);
  std::uint32_t& left = messages_[flow].to_complete;
  if (left > 0) {  // otherwise the flow has failed before
    left = success ? left - 1 : 0;
    if (left == 0) finish(now, flow, completion.status);
  }
  GrowingRing<std::uint32_t>& waiting = waiting_[number];
  for (std::size_t turns = waiting.size(); turns > 0; --turns) {
    const std::uint32_t next = waiting.front();
    waiting.pop();
    post_by_srd(next);
    if (!waiting.empty() && waiting.back() == next) break;
    stage_.attend(number);
  }
}

}  // namespace tulle::workload
