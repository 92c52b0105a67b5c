#include "live/views/fabrics.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/quoted.h"
#include "base/terminal_text.h"

namespace tulle::live {
namespace {

using json_t = nlohmann::ordered_json;

std::string count_text(std::size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

std::string state_name(std::uint8_t state) {
  constexpr std::array<std::string_view, 5> names = {"none", "down", "initialise", "armed",
                                                     "active"};
  return std::string(state < names.size() ? names[state] : "unknown");
}

json_t to_json(const FabricNode& node) {
  json_t ports = json_t::array();
  for (const FabricPort& port : node.ports) {
    json_t entry = {{"port", port.number},
                    {"state", state_name(port.state)},
                    {"link_up", port.physical_state == 5},
                    {"gbps", port.gigabits_per_second}};
    if (!port.peer.empty()) {
      entry["peer"] = port.peer;
      entry["peer_port"] = port.peer_port;
      entry["cut"] = port.is_cut;
    }
    ports.push_back(std::move(entry));
  }
  json_t lids = json_t::array();
  for (unsigned i = 0; node.lid != 0 && i < 1u << node.lmc; ++i) lids.push_back(node.lid + i);
  json_t out = {{"name", node.name},
                {"description", node.description},
                {"guid", fmt::format("0x{:016x}", node.guid)},
                {"lids", lids}};
  out["subnet_manager"] = node.is_manager;
  out["master"] = node.is_master;
  if (!node.machine.empty()) out["machine"] = node.machine;
  if (!node.address.empty()) out["address"] = node.address;
  for (const FabricInterface& each : node.interfaces) {
    json_t interface = {{"name", each.name}, {"running", each.is_running}};
    if (!each.problem.empty()) interface["problem"] = each.problem;
    out["interfaces"].push_back(std::move(interface));
  }
  if (!node.is_switch) out["programs"] = node.programs;
  if (!node.is_switch) out["listeners"] = node.listeners;
  out["ports"] = ports;
  return out;
}

void append_node(std::string& text, const FabricNode& node) {
  std::string line = fmt::format("{:<12} {:<8} {:016x} {:>5}  {:<11}  {}", node.name,
                                 node.is_switch ? "switch" : "host", node.guid,
                                 node.lid == 0 ? "-" : std::to_string(node.lid), node.address,
                                 node.is_master    ? "subnet manager"
                                 : node.is_manager ? "subnet manager, waits"
                                                   : "");
  if (!node.machine.empty()) line += fmt::format(" on {}", node.machine);
  line.erase(line.find_last_not_of(' ') + 1);
  text += one_line(line) + "\n";
  for (const FabricInterface& each : node.interfaces) {
    text += fmt::format("  {:<8} {}\n", one_line(each.name),
                        !each.problem.empty() ? one_line(each.problem)
                        : each.is_running     ? "running"
                                              : "waits for the subnet manager");
  }
  for (const FabricPort& port : node.ports) {
    const std::string peer =
        port.peer.empty() ? "" : fmt::format("{}:{}", port.peer, port.peer_port);
    text +=
        fmt::format("  port {:<3} {:<11} {:>4} Gb/s  {}{}\n", port.number, state_name(port.state),
                    port.gigabits_per_second, one_line(peer), port.is_cut ? " (cut)" : "");
  }
}

}  // namespace

std::string started_text(const FabricOptions& options, const std::string& network) {
  const fabric::Topology& topology = options.topology;
  const std::uint32_t hosts = topology.adapters();
  std::string text =
      fmt::format("The fabric \"{}\" is up: {}, {} hosts (h0 to h{}), {}.\n",
                  one_line(options.name), count_text(topology.switches, "switch", "switches"),
                  hosts, hosts - 1, count_text(topology.links.size(), "cable", "cables"));
  if (options.keeps_rates) text += "Its links keep to their rates.\n";
  if (!options.has_manager) {
    text +=
        "Run a subnet manager on a host, such as `tulle run --host h0 -- opensm -f "
        "$PWD/opensm.log`.\n";
  } else if (options.machines.empty()) {
    text += "Its own subnet manager has made the ports active.\n";
  } else {
    text += "Its own subnet manager makes ports active as the other machines come up.\n";
  }
  if (!options.machines.empty() && options.key_file.empty()) {
    text +=
        "Datagrams between the machines are not sealed (--secure): all their users are trusted.\n";
  }
  return text + terminal_text(network) + "\n";
}

std::string fabrics_text(std::span<const FoundFabric> fabrics,
                         const std::string& network_namespace) {
  if (fabrics.empty()) return "No fabric is up; `tulle fabric up` starts one.\n";
  std::string text = fmt::format("{:<16} {:>8} {:>6} {:>8}  {}\n", "NAME", "SWITCHES", "HOSTS",
                                 "PROCESS", "NETWORK NAMESPACE");
  for (const FoundFabric& each : fabrics) {
    text += fmt::format(
        "{:<16} {:>8} {:>6} {:>8}  {}\n", each.name, each.switches, each.hosts, each.process,
        each.network_namespace == network_namespace ? "this one" : each.network_namespace);
  }
  return text;
}

std::string fabrics_json(std::span<const FoundFabric> fabrics,
                         const std::string& network_namespace) {
  json_t all = json_t::array();
  for (const FoundFabric& each : fabrics) {
    all.push_back({{"name", each.name},
                   {"switches", each.switches},
                   {"hosts", each.hosts},
                   {"process", each.process},
                   {"network_namespace", each.network_namespace},
                   {"is_here", each.network_namespace == network_namespace}});
  }
  return all.dump(2) + "\n";
}

std::string fabric_text(const FabricNodes& nodes, const FabricMachines& machines) {
  std::string text;
  for (const FabricMachine& each : machines.machines) {
    text += fmt::format("machine {:<12} {:<20} {}\n", one_line(each.name), one_line(each.address),
                        one_line(each.state));
  }
  text += fmt::format("{:<12} {:<8} {:<16} {:>5}  {}\n", "NAME", "KIND", "GUID", "LID", "ADDRESS");
  for (const FabricNode& node : nodes.nodes) append_node(text, node);
  if (nodes.discarded > 0) {
    text += fmt::format("\n{} {} found no way.\n", nodes.discarded,
                        nodes.discarded == 1 ? "datagram" : "datagrams");
  }
  return text;
}

std::string fabric_json(const std::string& name, const FabricNodes& nodes,
                        const FabricMachines& machines) {
  json_t hosts = json_t::array(), switches = json_t::array();
  for (const FabricNode& node : nodes.nodes) {
    (node.is_switch ? switches : hosts).push_back(to_json(node));
  }
  json_t all = {{"name", name},
                {"hosts", hosts},
                {"switches", switches},
                {"discarded_datagrams", nodes.discarded}};
  for (const FabricMachine& each : machines.machines) {
    all["machines"].push_back(
        {{"name", each.name}, {"address", each.address}, {"state", each.state}});
  }
  return all.dump(2) + "\n";
}

}  // namespace tulle::live
