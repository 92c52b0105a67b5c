#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/split.h"
#include "study/scenario/build.h"
#include "study/workload/csv.h"

namespace tulle::scenario {

using workload::parse_number;
using workload::trimmed;

namespace {

constexpr std::array<std::string_view, 4> enforcement_names = {"off", "in", "out", "both"};

void read_partition(TableReader& table, std::vector<std::vector<Pkey>>& pkeys) {
  const auto hosts = static_cast<std::uint32_t>(pkeys.size());
  const auto partition = static_cast<std::uint16_t>(table.integer("pkey", 0, 1, 0x7FFF));
  if (!table.has("pkey")) table.wrong("pkey", "is needed, the partition's number");
  const auto enrol = [&](std::string_view key, Pkey pkey) {
    for (const std::uint32_t host : read_hosts(table, key, hosts)) {
      const bool is_member = std::ranges::any_of(
          pkeys[host], [pkey](Pkey own) { return wire::is_same_partition(own, pkey); });
      if (is_member) {
        return table.wrong(key, fmt::format("host {} is in partition {} already", host, partition));
      }
      pkeys[host].push_back(pkey);
    }
  };
  enrol("full", wire::full_member(Pkey(partition)));
  enrol("limited", Pkey(partition));
  table.finish();
}

}  // namespace

// Reads host numbers and ranges of them, as in "0-3, 8".
std::vector<std::uint32_t> read_hosts(TableReader& table, std::string_view key, std::uint32_t hosts,
                                      std::string_view things) {
  const std::string text = table.text(key, "");
  std::vector<std::uint32_t> found;
  std::vector<bool> are_there(hosts);
  for (const std::string_view part : split(text, ',')) {
    const std::string_view range = trimmed(part);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = parse_number<std::uint32_t>(trimmed(range.substr(0, dash)));
    const auto last =
        dash == range.size() ? first : parse_number<std::uint32_t>(trimmed(range.substr(dash + 1)));
    if (!first || !last || *first > *last || *last >= hosts) {
      table.wrong(key, fmt::format("must be {} such as \"0-3, 8\", up to {}", things, hosts - 1));
      return {};
    }
    for (std::uint32_t host = *first; host <= *last; ++host) {
      if (are_there[host]) {
        const std::string_view thing = things.substr(0, things.size() - 1);
        table.wrong(key, fmt::format("{} {} is there twice", thing, host));
        return {};
      }
      are_there[host] = true;
      found.push_back(host);
    }
  }
  return found;
}

void build_partitions(TableReader& root, Setup& setup) {
  std::vector<TableReader> partitions = root.tables("partition");
  if (partitions.empty()) return;
  if (setup.network.link_layer != sim::LinkLayer::infiniband) {
    return root.wrong("partition", "needs fabric.kind = \"infiniband\"");
  }
  if (setup.topology.planes > 1) return root.wrong("partition", "goes with one plane");
  std::vector<std::vector<Pkey>>& pkeys = setup.network.pkeys;
  pkeys.resize(setup.topology.hosts);
  for (TableReader& partition : partitions) read_partition(partition, pkeys);
  for (std::vector<Pkey>& of_host : pkeys) {
    if (of_host.empty()) of_host.push_back(default_pkey);
  }
}

void read_enforcement(TableReader& fabric, Setup& setup) {
  const auto chosen = fabric.choice<std::size_t>("partition_enforcement", enforcement_names, 3);
  setup.network.enforce_inbound = (chosen & 1) != 0;
  setup.network.enforce_outbound = (chosen & 2) != 0;
}

}  // namespace tulle::scenario
