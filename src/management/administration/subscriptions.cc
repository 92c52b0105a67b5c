#include "management/administration/subscriptions.h"

#include <algorithm>
#include <cstring>

namespace tulle::management::administration {
namespace {

constexpr std::uint32_t all_producers = 0xFF'FFFF;
constexpr std::uint8_t generic_bit = wire::Notice::generic;

std::uint8_t as_answer(std::uint8_t method) { return method | response_bit; }

// IBTA 13.4.8.3: what a subscription says about the notices that it is for.
bool is_about(const wire::InformInfo& info, const wire::ReportedNotice& reported) {
  const wire::Notice& notice = reported.notice;
  const bool is_generic = (notice.generic_and_type & generic_bit) != 0;
  const unsigned type = notice.generic_and_type & 0x7Fu;
  if (info.is_generic != is_generic) return false;
  if (info.type != wire::InformInfo::all && info.type != type) return false;
  if (info.trap != wire::InformInfo::all && info.trap != notice.trap) return false;
  if (info.producer != all_producers && info.producer != notice.producer) return false;
  if (info.gid != wire::GidBytes{}) return info.gid == reported.issuer_gid;
  if (info.first_lid == wire::InformInfo::all) return true;
  return notice.issuer_lid >= info.first_lid && notice.issuer_lid <= info.last_lid;
}

bool is_same(const wire::InformInfo& a, const wire::InformInfo& b) {
  return a.gid == b.gid && a.first_lid == b.first_lid && a.last_lid == b.last_lid &&
         a.is_generic == b.is_generic && a.type == b.type && a.trap == b.trap &&
         a.producer == b.producer;
}

}  // namespace

bool Subscriptions::change(const Packet& question, const wire::InformInfo& info,
                           std::uint64_t port) {
  const auto found =
      std::find_if(subscriptions_.begin(), subscriptions_.end(), [&](const Subscription& each) {
        return each.subscriber == question.source && is_same(each.info, info);
      });
  const bool is_known = found != subscriptions_.end();
  if (info.subscribes == 0) {
    if (is_known) subscriptions_.erase(found);
    return is_known;
  }
  if (is_known) return true;
  const auto of_port = std::ranges::count_if(
      subscriptions_, [port](const Subscription& each) { return each.port == port; });
  if (subscriptions_.size() >= subscriptions_max ||
      static_cast<std::size_t>(of_port) >= subscriptions_of_port_max) {
    return false;
  }
  subscriptions_.push_back({question.source, port, info});
  return true;
}

void Subscriptions::report(Lid own, const wire::ReportedNotice& notice) {
  for (const Subscription& each : subscriptions_) {
    if (!is_about(each.info, notice)) continue;
    const auto waiting = of_port_.find(each.port);
    const std::size_t of_port = waiting == of_port_.end() ? 0 : waiting->second;
    if (reports_.size() >= reports_max || of_port >= reports_of_port_max) {
      ++dropped_reports_;
      continue;
    }
    ++of_port_[each.port];
    Packet packet;
    packet.source = own;
    packet.destination = each.subscriber;
    packet.source_qp = packet.destination_qp = wire::general_services_qp;
    packet.qkey = wire::general_services_qkey;
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = wire::administration_version;
    header.method = wire::method_report;
    header.transaction_id = next_transaction_;
    header.attribute_id = wire::attribute_notice;
    put_attribute(header, 0, packet.mad);
    put_attribute(notice, wire::administration_data_offset, packet.mad);
    reports_.emplace(next_transaction_, Report{packet, each.port});
    unsent_.push_back(next_transaction_++);
  }
}

void Subscriptions::end(Reports::iterator report) {
  const auto of_port = of_port_.find(report->second.port);
  if (--of_port->second == 0) of_port_.erase(of_port);
  reports_.erase(report);
  while (!unsent_.empty() && !reports_.contains(unsent_.front())) unsent_.pop_front();
  while (!waiting_.empty() && !reports_.contains(waiting_.front().transaction)) {
    waiting_.pop_front();
  }
}

void Subscriptions::receive(const Packet& packet) {
  const wire::MadHeader answer = header_of(packet.mad);
  if (answer.method != as_answer(wire::method_report)) return;
  const auto found = reports_.find(answer.transaction_id);
  const bool is_of_subscriber =
      found != reports_.end() && found->second.packet.destination == packet.source;
  if (is_of_subscriber) end(found);
}

std::optional<Packet> Subscriptions::take_packet(Time now) {
  while (!unsent_.empty()) {
    const std::uint64_t transaction = unsent_.front();
    unsent_.pop_front();
    const auto found = reports_.find(transaction);
    if (found == reports_.end()) continue;
    --found->second.tries_left;
    waiting_.push_back({transaction, now + timeout});
    return found->second.packet;
  }
  return std::nullopt;
}

Time Subscriptions::next_timeout() const {
  if (!unsent_.empty()) return Time::zero();
  return waiting_.empty() ? Time::never() : waiting_.front().due;
}

void Subscriptions::expire(Time now) {
  while (!waiting_.empty() && waiting_.front().due <= now) {
    const std::uint64_t transaction = waiting_.front().transaction;
    waiting_.pop_front();
    const auto found = reports_.find(transaction);
    if (found == reports_.end()) continue;
    if (found->second.tries_left == 0) {
      end(found);
    } else {
      unsent_.push_back(transaction);
    }
  }
}

}  // namespace tulle::management::administration
