// This file has the records that subnet administration makes of the manager's graph.

#include <algorithm>
#include <cstring>

#include "management/administration/components.h"
#include "management/administration/paths.h"
#include "management/administration/rows.h"

namespace tulle::management::administration {
namespace {

constexpr std::uint64_t lid_component = 1;  // the first of all records that begin with a LID
constexpr std::uint32_t matches_capabilities = 0x8000'0000;  // in a PortInfoRecord's modifier
constexpr std::uint64_t capability_component = 1 << 7;

template <typename Record>
bool is_asked_for(std::uint16_t attribute, std::uint64_t mask, const Record& question,
                  const Record& record) {
  return matches(components_of(attribute), mask, question, record);
}

}  // namespace

template <typename Visit>
void Administration::for_each_node(const Question& question, const Rows& rows, Visit visit) const {
  if ((question.mask() & lid_component) != 0) {
    const auto found = view_.find_lid(question.record<be16>());
    if (found) visit(view_.node(*found));
    return;
  }
  for (const subnet::GraphNode& node : view_.graph().nodes) {
    if (!rows.wants_more()) return;
    if (node.lid != 0) visit(node);
  }
}

std::uint16_t Administration::collect(Time now, const Question& question, Rows& rows) const {
  switch (question.header.attribute_id) {
    case wire::attribute_node_record:
      collect_nodes(question, rows);
      return 0;
    case wire::attribute_port_info_record:
      collect_ports(question, rows);
      return 0;
    case wire::attribute_switch_info_record:
      collect_switches(question, rows);
      return 0;
    case wire::attribute_linear_table_record:
      collect_tables(question, rows);
      return 0;
    case wire::attribute_link_record:
      collect_links(question, rows);
      return 0;
    case wire::attribute_sm_info_record:
      collect_managers(question, rows);
      return 0;
    case wire::attribute_service_record:
      collect_services(now, question, rows);
      return 0;
    case wire::attribute_member_record:
      collect_members(question, rows);
      return 0;
    default:
      return static_cast<std::uint16_t>(Status::attribute_not_supported);
  }
}

// The LID of the question has found the node, and may be any of the node's.
void Administration::collect_nodes(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::NodeRecord>();
  for_each_node(question, rows, [&](const subnet::GraphNode& node) {
    wire::NodeRecord record;
    record.lid = node.lid;
    record.info = node.info;
    std::copy_n(node.description.begin(),
                std::min(node.description.size(), record.description.size()),
                record.description.begin());
    if (is_asked_for(wire::attribute_node_record, question.mask() & ~lid_component, wanted,
                     record)) {
      rows.add(record);
    }
  });
}

void Administration::collect_ports(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::PortInfoRecord>();
  std::uint64_t mask = question.mask() & ~lid_component;
  const bool by_bits = (question.header.attribute_modifier & matches_capabilities) != 0 &&
                       (mask & capability_component) != 0;
  const std::uint32_t bits = wanted.info.capability_mask;
  if (by_bits) mask &= ~capability_component;
  for_each_node(question, rows, [&](const subnet::GraphNode& node) {
    for (std::size_t place = 0; place < node.ports.size(); ++place) {
      if (!node.ports[place].is_known) continue;
      wire::PortInfoRecord record;
      record.lid = node.lid;
      record.port = node.number(place);
      record.info = node.ports[place].info;
      record.info.management_key = 0;  // IBTA 15.4.1: keys are for those who are trusted
      if (by_bits && (record.info.capability_mask & bits) != bits) continue;
      if (is_asked_for(wire::attribute_port_info_record, mask, wanted, record)) rows.add(record);
    }
  });
}

void Administration::collect_switches(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::SwitchInfoRecord>();
  for_each_node(question, rows, [&](const subnet::GraphNode& node) {
    if (!node.is_switch()) return;
    wire::SwitchInfoRecord record;
    record.lid = node.lid;
    record.info = node.switch_info;
    if (is_asked_for(wire::attribute_switch_info_record, question.mask(), wanted, record)) {
      rows.add(record);
    }
  });
}

void Administration::collect_tables(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::LinearTableRecord>();
  constexpr std::size_t in_block = wire::linear_entries_in_block;
  for_each_node(question, rows, [&](const subnet::GraphNode& node) {
    for (std::size_t first = 0; first < node.linear.size(); first += in_block) {
      wire::LinearTableRecord record;
      record.lid = node.lid;
      record.block = static_cast<std::uint16_t>(first / in_block);
      record.ports.fill(subnet::KnownTables::no_port);
      std::copy_n(node.linear.begin() + static_cast<std::ptrdiff_t>(first),
                  std::min(in_block, node.linear.size() - first), record.ports.begin());
      if (is_asked_for(wire::attribute_linear_table_record, question.mask(), wanted, record)) {
        rows.add(record);
      }
    }
  });
}

void Administration::collect_links(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::LinkRecord>();
  for_each_node(question, rows, [&](const subnet::GraphNode& node) {
    for (std::size_t place = node.first_link(); place < node.ports.size(); ++place) {
      const subnet::GraphPort& port = node.ports[place];
      if (!port.has_peer()) continue;
      wire::LinkRecord record;
      record.from_lid = node.lid;
      record.from_port = node.number(place);
      record.to_port = port.peer_port;
      record.to_lid = view_.node(port.peer).lid;
      if (is_asked_for(wire::attribute_link_record, question.mask() & ~lid_component, wanted,
                       record)) {
        rows.add(record);
      }
    }
  });
}

void Administration::collect_managers(const Question& question, Rows& rows) const {
  wire::SmInfoRecord record;
  record.lid = own_lid_.value;
  record.info = manager_info_;
  record.info.key = 0;  // IBTA 15.4.1: keys are for those who are trusted
  const auto wanted = question.record<wire::SmInfoRecord>();
  if (is_asked_for(wire::attribute_sm_info_record, question.mask(), wanted, record)) {
    rows.add(record);
  }
}

void Administration::collect_services(Time now, const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::ServiceRecord>();
  for (wire::ServiceRecord& record : services_.records(now)) {
    if (!is_asked_for(wire::attribute_service_record, question.mask(), wanted, record)) continue;
    // IBTA 15.2.5.14: nobody is told the key.
    record.key.fill(0);
    rows.add(record);
  }
}

void Administration::collect_members(const Question& question, Rows& rows) const {
  const auto wanted = question.record<wire::MemberRecord>();
  const bool is_trusted = question.administration.key == trusted_key;
  for (const wire::MemberRecord& record : groups_.records(view_, is_trusted)) {
    if (is_asked_for(wire::attribute_member_record, question.mask(), wanted, record)) {
      rows.add(record);
    }
  }
}

std::optional<std::uint16_t> Administration::collect_paths(const Question& question, Rows& rows,
                                                           PathCursor& cursor,
                                                           std::size_t& budget) const {
  const auto wanted = question.record<wire::PathRecord>();
  const bool wants_one = !question.wants_table();
  const auto take = [&](const auto& record) {
    // A question for one path gets the first, although there may be others.
    return rows.add(record) && !wants_one;
  };
  switch (find_paths(view_, question.mask(), wanted, cursor, budget, take)) {
    case PathOutcome::unknown_gid:
      return wire::administration_unknown_gid;
    case PathOutcome::bad_question:
      return wire::administration_bad_request;
    case PathOutcome::unfinished:
      return std::nullopt;
    case PathOutcome::ok:
    case PathOutcome::enough:
      return 0;
  }
  return 0;
}

}  // namespace tulle::management::administration
