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
                           const std::function<bool(Lid)>& is_of_port) {
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
      subscriptions_, [&](const Subscription& each) { return is_of_port(each.subscriber); });
  if (subscriptions_.size() >= subscriptions_max ||
      static_cast<std::size_t>(of_port) >= subscriptions_of_port_max) {
    return false;
  }
  subscriptions_.push_back({question.source, info});
  return true;
}

void Subscriptions::report(Lid own, const wire::ReportedNotice& notice) {
  for (const Subscription& each : subscriptions_) {
    if (reports_.size() >= reports_max) return;
    if (!is_about(each.info, notice)) continue;
    Packet packet;
    packet.source = own;
    packet.destination = each.subscriber;
    packet.source_qp = packet.destination_qp = wire::general_services_qp;
    packet.qkey = wire::general_services_qkey;
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = wire::administration_version;
    header.method = wire::method_report;
    header.transaction_id = next_transaction_++;
    header.attribute_id = wire::attribute_notice;
    put_attribute(header, 0, packet.mad);
    put_attribute(notice, wire::administration_data_offset, packet.mad);
    reports_.push_back({packet, Time::zero()});
  }
}

void Subscriptions::receive(const Packet& packet) {
  const wire::MadHeader answer = header_of(packet.mad);
  if (answer.method != as_answer(wire::method_report)) return;
  const std::uint64_t transaction = answer.transaction_id;
  std::erase_if(reports_, [&](const Report& each) {
    return header_of(each.packet.mad).transaction_id == transaction &&
           each.packet.destination == packet.source;
  });
}

std::optional<Packet> Subscriptions::take_packet(Time now) {
  for (Report& each : reports_) {
    if (!each.is_to_send) continue;
    each.is_to_send = false;
    each.due = now + timeout;
    --each.tries_left;
    return each.packet;
  }
  return std::nullopt;
}

Time Subscriptions::next_timeout() const {
  Time next = Time::never();
  for (const Report& each : reports_)
    next = std::min(next, each.is_to_send ? Time::zero() : each.due);
  return next;
}

void Subscriptions::expire(Time now) {
  std::erase_if(reports_, [now](const Report& each) {
    return !each.is_to_send && each.due <= now && each.tries_left == 0;
  });
  for (Report& each : reports_) {
    if (!each.is_to_send && each.due <= now) each.is_to_send = true;
  }
}

}  // namespace tulle::management::administration
