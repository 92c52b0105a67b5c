#include "rdma/device/raw_packets.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/check.h"
#include "base/on_throw.h"
#include "rdma/transport/raw/engine.h"

namespace tulle::device {

using transport::QueuePair;
using verbs::QpState;
using verbs::VerbsStatus;

// --- control ---

Flow* RawPackets::add_flow(QueuePair& qp, const FlowRule& rule) {
  if (flows_.size() >= flows_max) return nullptr;
  auto made = std::make_unique<Flow>();
  made->qp = &qp;
  made->rule = rule;
  for (auto* list : {&rules_, &defaults_, &sniffers_}) list->reserve(flows_.size() + 1);
  Flow* flow = flows_.add(std::move(made));
  switch (rule.kind) {
    case FlowKind::normal: {
      const auto behind = std::upper_bound(
          rules_.begin(), rules_.end(), flow,
          [](const Flow* a, const Flow* b) { return a->rule.priority < b->rule.priority; });
      rules_.insert(behind, flow);
      break;
    }
    case FlowKind::all_default:
    case FlowKind::multicast_default:
      defaults_.push_back(flow);
      break;
    case FlowKind::sniffer:
      sniffers_.push_back(flow);
      break;
  }
  return flow;
}

void RawPackets::remove(Flow* flow) {
  for (auto* list : {&rules_, &defaults_, &sniffers_}) std::erase(*list, flow);
  flows_.destroy(flow);
}

IndirectionTable* RawPackets::create_table(std::span<QueuePair* const> queues,
                                           VerbsStatus& status) {
  status = VerbsStatus::invalid_argument;
  if (!std::has_single_bit(queues.size()) || queues.size() > table_entries_max) return nullptr;
  for (const QueuePair* queue : queues) {
    if (&queue->transport != &transport::raw::receive_transport) return nullptr;
  }
  status = VerbsStatus::out_of_memory;
  if (tables_.size() >= tables_max) return nullptr;
  status = VerbsStatus::ok;
  auto table = std::make_unique<IndirectionTable>();
  table->queues.assign(queues.begin(), queues.end());
  IndirectionTable* added = tables_.add(std::move(table));
  // A queue is busy as long as any entry names it.
  std::size_t counted = 0;
  const OnThrow undo([&] {
    for (QueuePair* queue : queues.first(counted)) release_entry(*queue);
    tables_.destroy(added);
  });
  for (; counted < queues.size(); ++counted) ++table_entries_[queues[counted]];
  return added;
}

VerbsStatus RawPackets::destroy(IndirectionTable* table) {
  if (table->users > 0) return VerbsStatus::busy;
  for (const QueuePair* queue : table->queues) release_entry(*queue);
  tables_.destroy(table);
  return VerbsStatus::ok;
}

void RawPackets::release_entry(const QueuePair& queue) {
  const auto found = table_entries_.find(&queue);
  if (--found->second == 0) table_entries_.erase(found);
}

void RawPackets::spread(QueuePair& qp, IndirectionTable& table, const ReceiveHash& hash) {
  spreadings_[&qp] = {&table, hash};
  ++table.users;
}

bool RawPackets::is_used(const QueuePair& qp) const {
  const auto is_of = [&qp](const Flow* flow) { return flow->qp == &qp; };
  return table_entries_.contains(&qp) || std::any_of(rules_.begin(), rules_.end(), is_of) ||
         std::any_of(defaults_.begin(), defaults_.end(), is_of) ||
         std::any_of(sniffers_.begin(), sniffers_.end(), is_of);
}

void RawPackets::forget(QueuePair& qp) {
  const auto spreading = spreadings_.find(&qp);
  if (spreading != spreadings_.end()) {
    --spreading->second.table->users;
    spreadings_.erase(spreading);
  }
  std::erase(ready_, &qp);
  std::erase(given_up_, &qp);
  qp.scheduled = false;
}

// --- frames ---

bool RawPackets::handle_frame(std::span<const std::byte> bytes, IfNoRoom if_no_room) {
  find_receivers(read_flow_fields(bytes));
  const auto is_worth_waiting = [this](const QueuePair* queue) {
    return this->is_worth_waiting(*queue);
  };
  if (std::any_of(receivers_.begin(), receivers_.end(), is_worth_waiting)) {
    if (if_no_room == IfNoRoom::wait) return false;
    std::copy_if(receivers_.begin(), receivers_.end(), std::back_inserter(given_up_),
                 is_worth_waiting);
  }
  for (QueuePair* queue : receivers_) {
    if (queue->receives_waiting() > 0 && !given_up_.empty()) std::erase(given_up_, queue);
    transport::raw::Engine::of(*queue).receive(
        *queue, {bytes.data(), static_cast<std::uint32_t>(bytes.size())});
  }
  return true;
}

bool RawPackets::is_worth_waiting(const QueuePair& queue) const {
  const bool receives = queue.state() != QpState::reset && queue.state() != QpState::init &&
                        queue.state() != QpState::error;
  return receives && queue.receives_waiting() == 0 &&
         std::find(given_up_.begin(), given_up_.end(), &queue) == given_up_.end();
}

void RawPackets::find_receivers(const FlowFields& fields) {
  found_.clear();
  receivers_.clear();
  for (const Flow* flow : sniffers_) add_receiver(*flow->qp, fields);
  if (find_by_rules(fields)) return;
  for (const Flow* flow : defaults_) {
    if (flow->rule.kind == FlowKind::all_default || wire::is_multicast(fields.destination_mac)) {
      add_receiver(*flow->qp, fields);
    }
  }
}

// Adds the receivers that the rules name. Returns true if a rule has taken the frame.
bool RawPackets::find_by_rules(const FlowFields& fields) {
  bool taken = false;
  std::uint16_t taken_by = 0;
  for (const Flow* flow : rules_) {
    if (taken && flow->rule.priority != taken_by) break;
    if (!matches(fields, flow->rule.match)) continue;
    if (!flow->rule.passes_on) {
      taken = true;
      taken_by = flow->rule.priority;
    }
    if (!flow->rule.drops) add_receiver(*flow->qp, fields);
  }
  return taken;
}

// Adds the queue pair once, however many of its rules match.
void RawPackets::add_receiver(QueuePair& qp, const FlowFields& fields) {
  if (std::find(found_.begin(), found_.end(), &qp) != found_.end()) return;
  found_.push_back(&qp);
  const auto spreading = spreadings_.find(&qp);
  if (spreading == spreadings_.end()) return receivers_.push_back(&qp);
  const auto& queues = spreading->second.table->queues;
  receivers_.push_back(queues[spreading->second.hash.of(fields) & (queues.size() - 1)]);
}

void RawPackets::make_room(std::size_t queue_pairs) {
  ready_.reserve(queue_pairs);
  given_up_.reserve(queue_pairs);
  found_.reserve(queue_pairs);
  receivers_.reserve(queue_pairs);
}

void RawPackets::make_ready(QueuePair& qp) {
  ready_.push_back(&qp);
  qp.scheduled = true;
}

std::span<const transport::OutgoingPacket> RawPackets::pull_frames() {
  while (!ready_.empty()) {
    QueuePair& qp = *ready_.front();
    std::size_t count = 0;
    auto& raw = transport::raw::Engine::of(qp);
    while (count < frames_.size() && raw.pull_frame(qp, frame_bytes_max_, frames_[count])) {
      ++count;
    }
    if (count > 0) return {frames_.data(), count};
    ready_.erase(ready_.begin());
    qp.scheduled = false;
  }
  return {};
}

// A queue pair that has sent a batch goes behind the others.
void RawPackets::sent(std::size_t count) {
  QueuePair& qp = *ready_.front();
  transport::raw::Engine::of(qp).sent(qp, static_cast<std::uint32_t>(count));
  if (count > 0) std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
}

}  // namespace tulle::device
