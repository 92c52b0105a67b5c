#include "management/administration/administration.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tulle::management::administration {
namespace {

// Traps of subnet administration itself (IBTA 14.2.5.1): their details are six reserved bytes and a
// GID.
constexpr std::uint16_t trap_in_service = 64;
constexpr std::uint16_t trap_out_of_service = 65;
constexpr std::uint16_t trap_group_created = 66;
constexpr std::uint16_t trap_group_ended = 67;
constexpr std::uint32_t class_manager = 4;  // a producer of notices

constexpr std::uint16_t multicast_supported = 0x0200;  // in ClassPortInfo, IBTA 15.2.4.1

std::uint16_t status_of(GroupOutcome outcome) {
  switch (outcome) {
    case GroupOutcome::ok:
      return 0;
    case GroupOutcome::bad_question:
      return wire::administration_bad_request;
    case GroupOutcome::unknown_gid:
      return wire::administration_unknown_gid;
    case GroupOutcome::too_little:
      return wire::administration_too_little;
    case GroupOutcome::no_room:
      return wire::administration_no_resources;
  }
  return wire::administration_bad_request;
}

std::uint16_t status_of(ServiceOutcome outcome) {
  switch (outcome) {
    case ServiceOutcome::ok:
      return 0;
    case ServiceOutcome::not_allowed:
      return wire::administration_bad_request;
    case ServiceOutcome::unknown:
      return wire::administration_no_records;
    case ServiceOutcome::no_room:
      return wire::administration_no_resources;
  }
  return wire::administration_bad_request;
}

std::uint8_t answering_method(std::uint8_t method) {
  return method == method_set ? method_get_response
                              : static_cast<std::uint8_t>(method | response_bit);
}

}  // namespace

// --- the subnet ---

void Administration::forget_subnet() {
  is_up_ = false;
  sweeps_ = 0;
  ports_.clear();
  subscriptions_.clear();
  tables_.clear();
  searches_.clear();
  outgoing_.clear();
  records_.groups() = Groups();
}

void Administration::follow(subnet::Manager& manager) {
  if (!manager.is_up()) {
    while (manager.take_notice()) {
    }
    if (is_up_) forget_subnet();
    return;
  }
  is_up_ = true;
  records_.set_manager(manager.info());
  secret_key_ = manager.secret_key();
  const bool is_first = sweeps_ == 0;
  if (manager.sweeps() != sweeps_) {
    sweeps_ = manager.sweeps();
    searches_.clear();  // who asked asks again
    records_.show(manager.graph());
    subscriptions_.keep_only([this](Lid lid) { return view().find_lid(lid.value).has_value(); });
    if (is_first) ports_.clear();
    report_changes();
  }
  if (is_first || records_.groups().changes() != group_changes_) {
    group_changes_ = records_.groups().changes();
    manager.want_groups();
  }
  while (const auto notice = manager.take_notice()) report_from_node(*notice);
}

// Tells subscribers which ports have come and gone since the last sweep.
void Administration::report_changes() {
  std::map<std::uint64_t, wire::GidBytes> now;
  for (std::uint32_t node = 0; node < view().size(); ++node) {
    if (view().node(node).lid != 0) now.emplace(view().node(node).port_guid(), view().gid(node));
  }
  if (!ports_.empty()) {
    for (const auto& [guid, gid] : now) {
      if (!ports_.contains(guid)) report(trap_in_service, gid);
    }
    for (const auto& [guid, gid] : ports_) {
      if (!now.contains(guid)) report(trap_out_of_service, gid);
    }
  }
  ports_ = std::move(now);
}

void Administration::report(std::uint16_t trap, const wire::GidBytes& about) {
  wire::ReportedNotice reported;
  wire::Notice& notice = reported.notice;
  notice.generic_and_type = wire::Notice::generic | wire::Notice::informational;
  notice.producer = class_manager;
  notice.trap = trap;
  notice.issuer_lid = records_.manager_lid().value;
  constexpr std::size_t gid_offset = 6;
  std::copy(about.begin(), about.end(), notice.details.begin() + gid_offset);
  reported.issuer_gid = view().gid(0);
  subscriptions_.report(records_.manager_lid(), reported);
}

void Administration::report_from_node(const wire::Notice& notice) {
  wire::ReportedNotice reported;
  reported.notice = notice;
  if (const auto node = view().find_lid(notice.issuer_lid)) reported.issuer_gid = view().gid(*node);
  subscriptions_.report(records_.manager_lid(), reported);
}

// --- datagrams ---

void Administration::receive(Time now, const Packet& packet) {
  const wire::MadHeader header = header_of(packet.mad);
  const bool is_ours = header.management_class == wire::subnet_administration_class &&
                       header.base_version == wire::MadHeader::current_base_version;
  if (!is_ours || !is_up_) return;
  if (is_rmpp(packet.mad)) {
    for (RmppSender& table : tables_) {
      if (table.owns(packet)) return table.receive(now, packet);
    }
    return;
  }
  if ((header.method & response_bit) != 0) return subscriptions_.receive(packet);
  Question question{packet, header, {}};
  std::memcpy(&question.administration, packet.mad.data() + wire::administration_header_offset,
              sizeof question.administration);
  if (header.class_version != wire::administration_version) {
    return send_status(question, static_cast<std::uint16_t>(Status::bad_version));
  }
  answer(now, question);
}

void Administration::answer(Time now, const Question& question) {
  const std::uint8_t method = question.header.method;
  const bool changes = method == method_set || method == wire::method_delete;
  const std::uint16_t attribute = question.header.attribute_id;
  if (!changes && method != method_get && method != wire::method_get_table) {
    return send_status(question, static_cast<std::uint16_t>(Status::method_not_supported));
  }
  switch (attribute) {
    case wire::attribute_class_port_info:
      if (method == method_get) return answer_class_port_info(question);
      break;
    case wire::attribute_inform_info:
      if (method == method_set) return change_subscription(question);
      break;
    case wire::attribute_service_record:
      return changes ? change_service(now, question) : answer_query(now, question);
    case wire::attribute_member_record:
      return changes ? change_member(question) : answer_query(now, question);
    default:
      if (!changes) return answer_query(now, question);
      break;
  }
  send_status(question, static_cast<std::uint16_t>(Status::attribute_not_supported));
}

void Administration::answer_class_port_info(const Question& question) {
  wire::ClassPortInfo info;
  info.class_version = wire::administration_version;
  info.capability_mask = multicast_supported;
  info.capability_mask2_response_time = 18;  // 4.096 us * 2^18
  send_record(question, info);
}

// A port may have several LIDs.
bool Administration::is_same_port(Lid a, Lid b) const {
  return a == b ||
         (view().find_lid(a.value) && view().find_lid(a.value) == view().find_lid(b.value));
}

// Anybody may ask for all records or paths of a large subnet, and again.
void Administration::answer_query(Time now, const Question& question) {
  const Taken taken = taken_by(question);
  if (refuses_table(question, taken)) return;
  Search search{
      question.packet, question.header, question.administration, {}, rows_for(question, taken)};
  const auto is_of_port = [&](const Search& each) {
    return is_same_port(each.packet.source, question.packet.source);
  };
  const auto is_same = [&](const Search& each) {
    return is_of_port(each) && each.header.transaction_id == question.header.transaction_id;
  };
  if (std::ranges::any_of(searches_, is_same)) return;
  if (searches_.empty()) begin_turn(now);
  const bool is_one = records_.is_lookup(question);
  Budget one{1, 1};
  // Who comes when others wait, waits behind them.
  const bool waits = !is_one && !searches_.empty();
  const auto status =
      waits ? std::nullopt
            : records_.collect({now, question, search.rows, search.cursor, is_one ? one : left_});
  if (status) {
    return *status != 0 ? send_status(question, *status) : send_rows(now, question, search.rows);
  }
  const auto of_port = std::ranges::count_if(searches_, is_of_port);
  if (searches_.size() >= searches_max ||
      static_cast<std::size_t>(of_port) >= searches_of_port_max) {
    return send_status(question, wire::administration_no_resources);
  }
  searches_.push_back(std::move(search));
}

// Returns false if no time has passed since the last turn began: all that one pass of the fabric's
// process does has the same time.
bool Administration::begin_turn(Time now) {
  if (now <= turn_began_) return false;
  turn_began_ = now;
  left_ = {paths_in_a_turn, records_in_a_turn};
  return true;
}

// Each search has a turn.
void Administration::search_on(Time now) {
  if (searches_.empty()) return;
  Search search = std::move(searches_.front());
  searches_.pop_front();
  const Question question{search.packet, search.header, search.administration};
  const auto status = records_.collect({now, question, search.rows, search.cursor, left_});
  // Others may have taken what there was when it began.
  const bool has_room =
      !question.wants_table() || search.rows.bytes().size() <= room_beside(taken_by(question));
  if (!status && has_room) return searches_.push_back(std::move(search));
  const std::uint16_t outcome = status ? *status : wire::administration_no_resources;
  if (outcome != 0) return send_status(question, outcome);
  send_rows(now, question, search.rows);
}

Administration::Taken Administration::taken_by(const Question& question) const {
  const Lid asker = question.packet.source;
  const std::uint64_t transaction = question.header.transaction_id;
  Taken taken;
  const auto add = [&](Lid port, std::size_t tables, std::size_t bytes) {
    taken.tables += tables;
    taken.bytes += bytes;
    if (!is_same_port(port, asker)) return;
    taken.tables_of_port += tables;
    taken.bytes_of_port += bytes;
  };
  for (const RmppSender& table : tables_) {
    add(table.destination(), 1, table.bytes());
    taken.is_sending = taken.is_sending || table.is_for(asker, transaction);
  }
  for (const Search& each : searches_) add(each.packet.source, 0, each.rows.bytes().size());
  return taken;
}

// Returns how many bytes a table of the same port may have.
std::size_t Administration::room_beside(const Taken& taken) const {
  const std::size_t share = table_bytes_ / ports_share;
  return std::min(table_bytes_ - std::min(taken.bytes, table_bytes_),
                  share - std::min(taken.bytes_of_port, share));
}

// An answer that is no table takes nothing of a share. Two records are too many for it.
Rows Administration::rows_for(const Question& question, const Taken& taken) const {
  if (question.wants_table()) return Rows(room_beside(taken));
  constexpr std::size_t count = 2;
  return Rows(count * wire::administration_data_bytes, count);
}

// Returns true if a question for a table is done with before its records are looked for: its answer
// is under way already, or its port has as many tables as it may have.
bool Administration::refuses_table(const Question& question, const Taken& taken) {
  if (!question.wants_table()) return false;
  if (taken.is_sending) return true;
  const bool has_place = taken.tables < tables_max && taken.tables_of_port < tables_of_port_max;
  if (!has_place) send_status(question, wire::administration_no_resources);
  return !has_place;
}

void Administration::send_rows(Time now, const Question& question, const Rows& rows) {
  if (rows.is_full()) return send_status(question, wire::administration_no_resources);
  Packet packet = begin(question, 0);
  wire::AdministrationHeader administration = question.administration;
  administration.attribute_offset = static_cast<std::uint16_t>(rows.row_bytes() / 8);
  put_attribute(administration, wire::administration_header_offset, packet.mad);
  if (!question.wants_table()) {
    if (rows.count() == 0) return send_status(question, wire::administration_no_records);
    if (rows.count() > 1) return send_status(question, wire::administration_too_many_records);
    std::memcpy(packet.mad.data() + wire::administration_data_offset, rows.bytes().data(),
                std::min(rows.bytes().size(), wire::administration_data_bytes));
    return send(packet);
  }
  const Taken taken = taken_by(question);
  if (refuses_table(question, taken)) return;
  if (rows.bytes().size() > room_beside(taken)) {
    return send_status(question, wire::administration_no_resources);
  }
  std::vector<std::byte> whole(packet.mad.begin(),
                               packet.mad.begin() + wire::administration_data_offset);
  whole.insert(whole.end(), rows.bytes().begin(), rows.bytes().end());
  tables_.emplace_back(now, packet, std::move(whole));
}

Packet Administration::begin(const Question& question, std::uint16_t status) const {
  Packet packet = answer_to(question.packet);
  if (packet.source.value == wire::permissive_lid) packet.source = records_.manager_lid();
  packet.mad.fill(std::byte{0});
  wire::MadHeader header = question.header;
  header.method = answering_method(header.method);
  header.status = status;
  put_attribute(header, 0, packet.mad);
  put_attribute(question.administration, wire::administration_header_offset, packet.mad);
  return packet;
}

void Administration::send_status(const Question& question, std::uint16_t status) {
  Packet packet = begin(question, status);
  const auto data = question.packet.mad.begin() + wire::administration_data_offset;
  std::copy(data, question.packet.mad.end(), packet.mad.begin() + wire::administration_data_offset);
  send(packet);
}

template <typename Record>
void Administration::send_record(const Question& question, const Record& record) {
  Packet packet = begin(question, 0);
  wire::AdministrationHeader administration = question.administration;
  administration.attribute_offset = static_cast<std::uint16_t>((sizeof record + 7) / 8);
  put_attribute(administration, wire::administration_header_offset, packet.mad);
  put_attribute(record, wire::administration_data_offset, packet.mad);
  send(packet);
}

// --- what programs change ---

// Returns the GUID of the port that asks, for what each may have.
std::uint64_t Administration::owner_of(const Question& question) const {
  const auto node = view().find_lid(question.packet.source.value);
  return node ? view().node(*node).port_guid() : 0;
}

bool Administration::has_secret_key(const Question& question) const {
  return secret_key_ != 0 && question.administration.key == secret_key_;
}

// The fabric sees to it that no port sends from another's LID.
bool Administration::is_of_asker(const Question& question, const wire::GidBytes& gid) const {
  const auto asker = view().find_lid(question.packet.source.value);
  return asker && view().find_gid(gid) == asker;
}

void Administration::change_service(Time now, const Question& question) {
  const auto record = question.record<wire::ServiceRecord>();
  const ServiceAsker asker{owner_of(question),
                           has_secret_key(question) || is_of_asker(question, record.gid)};
  const bool sets = question.header.method == method_set;
  const auto outcome = sets ? records_.services().set(now, record, asker)
                            : records_.services().remove(record, asker);
  if (outcome != ServiceOutcome::ok) return send_status(question, status_of(outcome));
  send_record(question, record);
}

void Administration::change_subscription(const Question& question) {
  const auto info = question.record<wire::InformInfo>();
  const bool is_changed = subscriptions_.change(question.packet, info, owner_of(question));
  if (is_changed) return send_record(question, info);
  send_status(question, info.subscribes != 0 ? wire::administration_no_resources
                                             : wire::administration_bad_request);
}

void Administration::change_member(const Question& question) {
  auto record = question.record<wire::MemberRecord>();
  // IBTA 15.2.5.17 lets a port join for others of its partition (ProxyJoin), which this one does
  // not: a port could then end any membership. OpenSM, too, answers a stranger so.
  const bool is_of_another =
      view().find_gid(record.port_gid) && !is_of_asker(question, record.port_gid);
  if (is_of_another && !has_secret_key(question)) {
    return send_status(question, wire::administration_bad_request);
  }
  bool is_other = false;  // the group is new, or has ended
  const bool joins = question.header.method == method_set;
  const GroupOutcome outcome =
      joins ? records_.groups().join(view(), question.mask(), record, is_other, owner_of(question))
            : records_.groups().leave(view(), question.mask(), record, is_other);
  if (outcome != GroupOutcome::ok) return send_status(question, status_of(outcome));
  send_record(question, record);
  if (is_other) report(joins ? trap_group_created : trap_group_ended, record.group_gid);
}

// --- time ---

std::optional<Packet> Administration::take_packet(Time now) {
  if (!outgoing_.empty()) {
    const Packet packet = outgoing_.front();
    outgoing_.pop_front();
    return packet;
  }
  for (RmppSender& table : tables_) {
    if (auto packet = table.take_packet()) return packet;
  }
  std::erase_if(tables_, [](const RmppSender& each) { return each.is_over(); });
  return subscriptions_.take_packet(now);
}

Time Administration::next_timeout() const {
  if (!outgoing_.empty()) return Time::zero();
  Time next = std::min(records_.services().next_timeout(), subscriptions_.next_timeout());
  if (!searches_.empty()) next = std::min(next, turn_began_ + Time::picoseconds(1));
  for (const RmppSender& each : tables_) next = std::min(next, each.deadline());
  return next;
}

void Administration::expire(Time now) {
  records_.services().expire(now);
  subscriptions_.expire(now);
  if (begin_turn(now)) search_on(now);
  for (RmppSender& each : tables_) each.expire(now);
}

void Administration::rebase(Time by) {
  records_.services().rebase(by);
  subscriptions_.rebase(by);
  for (RmppSender& table : tables_) table.rebase(by);
  tulle::rebase(by, turn_began_);
}

}  // namespace tulle::management::administration
