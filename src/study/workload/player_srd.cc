// Flows over the scalable reliable datagram, as EFA's applications send them: one queue pair per
// host, an address handle for each peer, and each message on its own.

#include <algorithm>

#include "base/check.h"
#include "study/workload/player.h"

namespace tulle::workload {

using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

transport::QueuePair& Player::srd_of(std::uint32_t number) {
  Host& at = host(number);
  if (at.srd != nullptr) return *at.srd;
  device::Adapter& adapter = stage_.adapter(number);
  transport::QueuePairInit init;
  init.type = verbs::QpType::srd;
  init.pd = at.pd;
  init.send_cq = init.receive_cq = at.cq;
  const std::uint32_t depth =
      std::min(flows_at_[number], adapter.configuration().limits.work_requests);
  init.send_work_requests = init.receive_work_requests = depth;
  init.send_sges = init.receive_sges = 1;
  VerbsStatus status{};
  at.srd = adapter.create_qp(init, status);
  TULLE_CHECK(at.srd != nullptr);
  transport::QueuePairAttributes attributes;
  attributes.qkey = srd_qkey;
  attributes.rnr_retry = 7;  // retries indefinitely
  const auto step = [&](QpState state, QpAttributeMask more) {
    attributes.state = state;
    status = adapter.modify(*at.srd, attributes, QpAttributeMask(QpAttribute::state) | more);
    TULLE_CHECK(status == VerbsStatus::ok);
  };
  step(QpState::init,
       QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port | QpAttribute::qkey);
  step(QpState::rtr, {});
  step(QpState::rts, QpAttributeMask(QpAttribute::sq_psn) | QpAttribute::rnr_retry);
  at.srd_number = at.srd->number;
  return *at.srd;
}

QpNumber Player::srd_number_of(std::uint32_t number) {
  return stage_.has_host(number) ? srd_of(number).number : hosts_[number].srd_number;
}

verbs::AddressHandle* Player::handle_to(std::uint32_t from, std::uint32_t to,
                                        std::uint8_t qos_level) {
  verbs::AddressHandle*& handle = hosts_[from].handles[std::uint64_t{to} << 8 | qos_level];
  if (handle != nullptr) return handle;
  verbs::AddressVector address;
  address.destination = stage_.address(to, address.path_bits);
  address.traffic_class = settings_.traffic_class;
  address.service_level =
      stage_.path ? stage_.path(from, to, qos_level, 0).service_level : qos_level;
  VerbsStatus status{};
  handle = stage_.adapter(from).create_ah(*hosts_[from].pd, address, status);
  TULLE_CHECK(handle != nullptr);
  return handle;
}

void Player::post_by_srd(std::uint32_t index) {
  const Flow& flow = flows_[index];
  transport::QueuePair& sender = srd_of(flow.source);
  const QpNumber receiver = srd_number_of(flow.destination);
  const std::uint32_t messages = messages_of(index);
  if (sender.send_queue.size() + messages > sender.init.send_work_requests) {
    // Completed requests may occupy the queue behind one that has not completed.
    TULLE_CHECK(sender.send_queue.size() > 0);
    hosts_[flow.source].waiting.push(index);
    return;
  }
  messages_[index].to_complete = messages;
  if (settings_.carries_bytes) give_memory(index);
  if (is_told(index)) ask_receiver(index);
  const auto level =
      static_cast<std::uint8_t>(settings_.service_level + index % settings_.service_levels);
  send_requests(index, sender, handle_to(flow.source, flow.destination, level), receiver);
}

void Player::accept_by_srd(std::uint32_t index) {
  const std::uint32_t number = flows_[index].destination;
  messages_[index].to_arrive = messages_of(index);
  for (std::uint32_t i = 0; i < messages_[index].to_arrive; ++i) {
    const VerbsStatus status = stage_.adapter(number).post_receive(*hosts_[number].srd, {});
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
  GrowingRing<std::uint32_t>& waiting = hosts_[number].waiting;
  for (std::size_t turns = waiting.size(); turns > 0; --turns) {
    const std::uint32_t next = waiting.front();
    waiting.pop();
    post_by_srd(next);
    if (!waiting.empty() && waiting.back() == next) break;
    stage_.attend(number);
  }
}

}  // namespace tulle::workload
