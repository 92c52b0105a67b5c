#include "management/administration/records.h"

#include <algorithm>
#include <cstring>

#include "management/administration/components.h"
#include "management/administration/paths.h"
#include "management/subnet/plan.h"

namespace tulle::management::administration {
namespace {

constexpr std::uint64_t lid_component = 1;         // the first of all records that begin with a LID
constexpr std::uint64_t place_component = 1 << 1;  // the port or the block behind such a LID
constexpr std::uint64_t service_id_component = 1 << 0;
constexpr std::uint64_t service_gid_component = 1 << 1;
constexpr std::uint64_t service_pkey_component = 1 << 2;
constexpr std::uint32_t matches_capabilities = 0x8000'0000;  // in a PortInfoRecord's modifier
constexpr std::uint64_t capability_component = 1 << 7;

template <typename Record>
bool is_asked_for(std::uint16_t attribute, std::uint64_t mask, const Record& question,
                  const Record& record) {
  return matches(components_of(attribute), mask, question, record);
}

// The ports or blocks of a node from `first` to before `end`, of each of which there is a record.
struct Places {
  std::size_t first = 0;
  std::size_t end = 0;

  // Returns those of them that a question may ask for: one, if it names one.
  Places asked_for(std::uint64_t mask, std::size_t named) const {
    if ((mask & place_component) == 0) return *this;
    return named >= first && named < end ? Places{named, named + 1} : Places{};
  }
};

ServiceKeys keys_asked_for(std::uint64_t mask, const wire::ServiceRecord& wanted) {
  ServiceKeys keys;
  if ((mask & service_id_component) == 0) return keys;
  std::get<0>(keys.first) = std::get<0>(keys.last) = wanted.id;
  if ((mask & service_gid_component) == 0) return keys;
  std::get<1>(keys.first) = std::get<1>(keys.last) = wanted.gid;
  if ((mask & service_pkey_component) == 0) return keys;
  std::get<2>(keys.first) = std::get<2>(keys.last) = wanted.pkey;
  return keys;
}

}  // namespace

void Records::show(const subnet::Graph& graph) {
  view_.show(graph);
  manager_lid_ = Lid(graph.nodes[0].lid);
  groups_.forget_absent(view_);
}

bool Records::is_lookup(const Question& question) const {
  const auto has = [mask = question.mask()](std::uint64_t components) {
    return (mask & components) == components;
  };
  switch (question.header.attribute_id) {
    case wire::attribute_node_record:
    case wire::attribute_switch_info_record:
      return has(lid_component);
    case wire::attribute_port_info_record:
    case wire::attribute_linear_table_record:
    case wire::attribute_link_record:
      return has(lid_component | place_component);
    case wire::attribute_service_record:
      return has(service_id_component | service_gid_component | service_pkey_component);
    case wire::attribute_member_record: {
      const MemberQuestion members = member_question(question);
      return members.group && (!members.is_trusted || members.port);
    }
    case wire::attribute_path_record:
      return (has(PathComponents::source_gid) || has(PathComponents::source_lid)) &&
             (has(PathComponents::destination_gid) || has(PathComponents::destination_lid));
    default:
      return true;
  }
}

template <typename PlacesOf, typename Visit>
bool Records::for_each_place(Walk& walk, PlacesOf places_of, Visit visit) const {
  std::uint32_t& index = walk.cursor.node;
  std::size_t& place = walk.cursor.place;
  std::uint32_t end = view_.size();
  if ((walk.question.mask() & lid_component) != 0) {
    const auto found = view_.find_lid(walk.question.record<be16>());
    if (!found) return true;
    index = *found;
    end = index + 1;
  }
  for (; index < end; ++index, place = 0) {
    const subnet::GraphNode& node = view_.node(index);
    const Places places = node.lid == 0 ? Places{} : places_of(node);
    place = std::max(place, places.first);
    // A node costs a record, even if it has none.
    do {
      if (!walk.rows.wants_more()) return true;
      if (walk.budget.records == 0) return false;
      --walk.budget.records;
      if (place < places.end) visit(node, place);
    } while (++place < places.end);
  }
  return true;
}

std::optional<std::uint16_t> Records::collect(Walk walk) const {
  const auto status = [](bool is_done) {
    return is_done ? std::optional<std::uint16_t>(0) : std::nullopt;
  };
  switch (walk.question.header.attribute_id) {
    case wire::attribute_node_record:
      return status(collect_nodes(walk));
    case wire::attribute_port_info_record:
      return status(collect_ports(walk));
    case wire::attribute_switch_info_record:
      return status(collect_switches(walk));
    case wire::attribute_linear_table_record:
      return status(collect_tables(walk));
    case wire::attribute_link_record:
      return status(collect_links(walk));
    case wire::attribute_sm_info_record:
      return status(collect_managers(walk));
    case wire::attribute_service_record:
      return status(collect_services(walk));
    case wire::attribute_member_record:
      return status(collect_members(walk));
    case wire::attribute_path_record:
      return collect_paths(walk);
    default:
      return static_cast<std::uint16_t>(Status::attribute_not_supported);
  }
}

// The LID of the question has found the node, and may be any of the node's.
bool Records::collect_nodes(Walk& walk) const {
  const auto wanted = walk.question.record<wire::NodeRecord>();
  const std::uint64_t mask = walk.question.mask() & ~lid_component;
  const auto places = [](const subnet::GraphNode&) { return Places{0, 1}; };
  return for_each_place(walk, places, [&](const subnet::GraphNode& node, std::size_t) {
    wire::NodeRecord record;
    record.lid = node.lid;
    record.info = node.info;
    std::copy_n(node.description.begin(),
                std::min(node.description.size(), record.description.size()),
                record.description.begin());
    if (is_asked_for(wire::attribute_node_record, mask, wanted, record)) walk.rows.add(record);
  });
}

bool Records::collect_ports(Walk& walk) const {
  const auto wanted = walk.question.record<wire::PortInfoRecord>();
  std::uint64_t mask = walk.question.mask() & ~lid_component;
  const bool by_bits = (walk.question.header.attribute_modifier & matches_capabilities) != 0 &&
                       (mask & capability_component) != 0;
  const std::uint32_t bits = wanted.info.capability_mask;
  if (by_bits) mask &= ~capability_component;
  const auto places = [&](const subnet::GraphNode& node) {
    return Places{0, node.ports.size()}.asked_for(mask, node.place(wanted.port));
  };
  return for_each_place(walk, places, [&](const subnet::GraphNode& node, std::size_t place) {
    if (!node.ports[place].is_known) return;
    wire::PortInfoRecord record;
    record.lid = node.lid;
    record.port = node.number(place);
    record.info = node.ports[place].info;
    record.info.management_key = 0;  // IBTA 15.4.1: keys are for those who are trusted
    if (by_bits && (record.info.capability_mask & bits) != bits) return;
    if (is_asked_for(wire::attribute_port_info_record, mask, wanted, record)) {
      walk.rows.add(record);
    }
  });
}

bool Records::collect_switches(Walk& walk) const {
  const auto wanted = walk.question.record<wire::SwitchInfoRecord>();
  const auto places = [](const subnet::GraphNode& node) {
    return Places{0, node.is_switch() ? 1u : 0u};
  };
  return for_each_place(walk, places, [&](const subnet::GraphNode& node, std::size_t) {
    wire::SwitchInfoRecord record;
    record.lid = node.lid;
    record.info = node.switch_info;
    if (is_asked_for(wire::attribute_switch_info_record, walk.question.mask(), wanted, record)) {
      walk.rows.add(record);
    }
  });
}

bool Records::collect_tables(Walk& walk) const {
  const auto wanted = walk.question.record<wire::LinearTableRecord>();
  constexpr std::size_t in_block = wire::linear_entries_in_block;
  const auto places = [&](const subnet::GraphNode& node) {
    const std::size_t blocks = (node.linear.size() + in_block - 1) / in_block;
    return Places{0, blocks}.asked_for(walk.question.mask(), wanted.block);
  };
  return for_each_place(walk, places, [&](const subnet::GraphNode& node, std::size_t block) {
    const std::size_t first = block * in_block;
    wire::LinearTableRecord record;
    record.lid = node.lid;
    record.block = static_cast<std::uint16_t>(block);
    record.ports.fill(subnet::KnownTables::no_port);
    std::copy_n(node.linear.begin() + static_cast<std::ptrdiff_t>(first),
                std::min(in_block, node.linear.size() - first), record.ports.begin());
    if (is_asked_for(wire::attribute_linear_table_record, walk.question.mask(), wanted, record)) {
      walk.rows.add(record);
    }
  });
}

bool Records::collect_links(Walk& walk) const {
  const auto wanted = walk.question.record<wire::LinkRecord>();
  const std::uint64_t mask = walk.question.mask() & ~lid_component;
  const auto places = [&](const subnet::GraphNode& node) {
    return Places{node.first_link(), node.ports.size()}.asked_for(mask,
                                                                  node.place(wanted.from_port));
  };
  return for_each_place(walk, places, [&](const subnet::GraphNode& node, std::size_t place) {
    const subnet::GraphPort& port = node.ports[place];
    if (!port.has_peer()) return;
    wire::LinkRecord record;
    record.from_lid = node.lid;
    record.from_port = node.number(place);
    record.to_port = port.peer_port;
    record.to_lid = view_.node(port.peer).lid;
    if (is_asked_for(wire::attribute_link_record, mask, wanted, record)) walk.rows.add(record);
  });
}

bool Records::collect_managers(Walk& walk) const {
  wire::SmInfoRecord record;
  record.lid = manager_lid_.value;
  record.info = manager_;
  record.info.key = 0;  // IBTA 15.4.1: keys are for those who are trusted
  const auto wanted = walk.question.record<wire::SmInfoRecord>();
  if (is_asked_for(wire::attribute_sm_info_record, walk.question.mask(), wanted, record)) {
    walk.rows.add(record);
  }
  return true;
}

bool Records::collect_services(Walk& walk) const {
  const auto wanted = walk.question.record<wire::ServiceRecord>();
  const std::uint64_t mask = walk.question.mask();
  const auto take = [&](wire::ServiceRecord record) {
    if (!is_asked_for(wire::attribute_service_record, mask, wanted, record)) return true;
    // IBTA 15.2.5.14: nobody is told the key.
    record.key.fill(0);
    walk.rows.add(record);
    return walk.rows.wants_more();
  };
  return services_.visit(walk.now, keys_asked_for(mask, wanted), walk.cursor.service,
                         walk.budget.records, take);
}

// Returns the memberships among which the answer is.
MemberQuestion Records::member_question(const Question& question) const {
  const auto wanted = question.record<wire::MemberRecord>();
  MemberQuestion members;
  members.is_trusted = question.administration.key == trusted_key;
  if ((question.mask() & MemberComponents::group_gid) != 0) members.group = wanted.group_gid;
  if ((question.mask() & MemberComponents::port_gid) == 0) return members;
  const auto port = view_.find_gid(wanted.port_gid);
  if (port) members.port = view_.node(*port).port_guid();
  return members;
}

bool Records::collect_members(Walk& walk) const {
  const auto wanted = walk.question.record<wire::MemberRecord>();
  const auto take = [&](const wire::MemberRecord& record) {
    const std::uint64_t mask = walk.question.mask();
    if (is_asked_for(wire::attribute_member_record, mask, wanted, record)) walk.rows.add(record);
    return walk.rows.wants_more();
  };
  return groups_.visit(view_, member_question(walk.question), walk.cursor.member,
                       walk.budget.records, take);
}

std::optional<std::uint16_t> Records::collect_paths(Walk& walk) const {
  const auto wanted = walk.question.record<wire::PathRecord>();
  const bool wants_one = !walk.question.wants_table();
  const auto take = [&](const auto& record) {
    // A question for one path gets the first, although there may be others.
    return walk.rows.add(record) && !wants_one;
  };
  switch (
      find_paths(view_, walk.question.mask(), wanted, walk.cursor.paths, walk.budget.paths, take)) {
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
