#include "management/subnet/exchange.h"

#include <algorithm>

#include "management/subnet/header.h"

namespace tulle::management::subnet {
namespace {

// Transaction IDs of programs carry the number of a registration in their upper half, which never
// has this bit.
constexpr std::uint64_t managers_own = std::uint64_t{1} << 63;

}  // namespace

void Exchange::clear() {
  waiting_.clear();
  asked_.clear();
}

Packet Exchange::packet_of(const Asked& asked) const {
  const Question& question = asked.question;
  Packet packet;
  packet.source = packet.destination = Lid(wire::permissive_lid);
  packet.source_qp = packet.destination_qp = subnet_management_qp;
  wire::MadHeader header;
  header.management_class = wire::subnet_directed_class;
  header.class_version = wire::subnet_class_version;
  header.method = question.method;
  header.class_specific = question.route.hops;
  header.transaction_id = asked.transaction;
  header.attribute_id = question.attribute;
  header.attribute_modifier = question.modifier;
  put_attribute(header, 0, packet.mad);
  wire::SubnetHeader subnet;
  subnet.management_key =
      question.attribute == wire::attribute_sm_info ? managers_key_ : question.key.value_or(key_);
  subnet.directed_source = subnet.directed_destination = wire::permissive_lid;
  put_attribute(subnet, wire::subnet_header_offset, packet.mad);
  put_attribute(question.data, wire::subnet_data_offset, packet.mad);
  put_attribute(question.route.ports, wire::initial_path_offset, packet.mad);
  return packet;
}

// Programs that are managers see the questions for SMInfo. They could work out the random numbers
// that follow one, and so these questions have others.
std::uint64_t Exchange::next_transaction(const Question& question) {
  if (question.attribute != wire::attribute_sm_info) return random_.next() | managers_own;
  return (draw_ ? draw_() : ++shown_) | managers_own;
}

std::optional<Packet> Exchange::take_packet(Time now) {
  auto next =
      std::find_if(asked_.begin(), asked_.end(), [](const Asked& each) { return each.is_to_send; });
  if (next == asked_.end()) {
    if (waiting_.empty() || asked_.size() >= on_the_wire_max) return std::nullopt;
    const std::uint64_t transaction = next_transaction(waiting_.front());
    asked_.push_back({waiting_.front(), transaction, {}});
    waiting_.pop_front();
    next = std::prev(asked_.end());
  }
  next->is_to_send = false;
  next->due = now + timeout;
  --next->tries_left;
  return packet_of(*next);
}

std::optional<Reply> Exchange::receive(const Packet& packet) {
  const wire::MadHeader header = header_of(packet.mad);
  if (header.management_class != wire::subnet_directed_class ||
      header.method != method_get_response) {
    return std::nullopt;
  }
  const std::uint64_t transaction = header.transaction_id;
  const auto asked = std::find_if(asked_.begin(), asked_.end(), [&](const Asked& each) {
    return each.transaction == transaction && each.question.attribute == header.attribute_id;
  });
  if (asked == asked_.end()) return std::nullopt;
  Reply reply;
  reply.question = asked->question;
  asked_.erase(asked);
  reply.has_come = true;
  reply.status = static_cast<Status>(header.status & ~wire::directed_route_returns);
  std::memcpy(reply.data.data(), packet.mad.data() + wire::subnet_data_offset, reply.data.size());
  return reply;
}

std::optional<Reply> Exchange::expire(Time now) {
  for (auto asked = asked_.begin(); asked != asked_.end(); ++asked) {
    if (asked->is_to_send || asked->due > now) continue;
    if (asked->tries_left > 0) {
      asked->is_to_send = true;
      continue;
    }
    Reply reply;
    reply.question = asked->question;
    asked_.erase(asked);
    return reply;
  }
  return std::nullopt;
}

Time Exchange::next_timeout() const {
  const bool can_send = !waiting_.empty() && asked_.size() < on_the_wire_max;
  Time next = can_send ? Time::zero() : Time::never();
  for (const Asked& each : asked_) next = std::min(next, each.is_to_send ? Time::zero() : each.due);
  return next;
}

}  // namespace tulle::management::subnet
