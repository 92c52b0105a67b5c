// The commands of software fabrics.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/quoted.h"
#include "base/write_best_effort.h"
#include "cli/commands.h"
#include "cli/own_files.h"
#include "fabric/topology.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/server.h"
#include "live/security/key_file.h"
#include "os/service_process.h"
#include "os/trusted_folder.h"
#include "os/unique_fd.h"
#include "rdma/wire/lrh.h"
#include "study/config/files.h"
#include "study/config/network.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

// Two switches with a cable between them, and two hosts at each.
constexpr char usual_topology[] =
    "a,b,gbps,delay_ns\n"
    "0,4,100,100\n"
    "1,4,100,100\n"
    "2,5,100,100\n"
    "3,5,100,100\n"
    "4,5,100,100\n";

constexpr std::uint32_t switch_ports_max = 254;  // IBTA 18.2.4.2: port numbers have 8 bits

std::string name_or_default(const std::string& name) { return name.empty() ? "default" : name; }

// A fabric's folder, in the folder of this user, is called by the fabric's name and by the network
// namespace in which it was started, as the host agent's socket belongs to one.
constexpr char folder_prefix[] = "fabric_";

// Returns the number of the network namespace whose fabrics this process knows by name. On a host
// of a fabric, which is a namespace itself, it is that of the fabric.
std::string home_namespace() {
  const fs::path socket = live::fabric_place().socket;
  const std::string folder = socket.parent_path().filename();
  const std::size_t end = folder.rfind('_');
  if (folder.starts_with(folder_prefix) && end != std::string::npos) return folder.substr(end + 1);
  struct stat its {};
  return stat("/proc/self/ns/net", &its) == 0 ? std::to_string(its.st_ino) : "0";
}

Result<std::string> folder_of(const std::string& name) {
  return own_folder_for("fabric " + name_or_default(name) + " " + home_namespace());
}

// A fabric of this user whose folder is there.
struct Found {
  std::string name;
  std::string network_namespace;
  int process = 0;
  std::size_t hosts = 0;
  std::size_t switches = 0;
};

// Removes what a fabric left behind that was killed: its folder, and the files by which programs on
// its hosts found their device. One that is just starting holds a lock on its folder, or has no
// socket yet.
void remove_dead(const fs::path& folder) {
  const fs::path socket = live::fabric_socket(folder);
  const UniqueFd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code error;
  if (!fs::exists(socket, error)) return;
  const auto process = live::fabric_process(socket);
  if (process || process.error().error_number != ECONNREFUSED) return;
  std::string mark = socket;
  for (char& letter : mark) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  std::vector<fs::path> trees;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), error)) {
    const std::string name = entry.path().filename();
    if (name.find(mark + "_") != std::string::npos) trees.push_back(entry.path());
  }
  for (const fs::path& tree : trees) fs::remove_all(tree, error);
  fs::remove_all(folder, error);
}

// Returns this user's fabrics, of all network namespaces, and removes what dead ones left behind.
std::vector<Found> find_all() {
  std::vector<Found> found;
  auto own = own_folder();
  if (!own) return found;
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(*own, error)) {
    if (entry.path().filename().string().starts_with(folder_prefix))
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    auto process = live::fabric_process(live::fabric_socket(folder));
    if (!process) {
      if (process.error().error_number == ECONNREFUSED) remove_dead(folder);
      continue;
    }
    const std::string rest = folder.filename().string().substr(sizeof folder_prefix - 1);
    const std::size_t end = std::min(rest.rfind('_'), rest.size());
    Found each{rest.substr(0, end), end < rest.size() ? rest.substr(end + 1) : "", *process};
    if (auto status = live::fabric_status(live::fabric_socket(folder))) {
      for (const live::FabricNode& node : status->nodes)
        ++(node.is_switch ? each.switches : each.hosts);
    }
    found.push_back(std::move(each));
  }
  return found;
}

// Reads a scenario's topology, and its list of machines.
// The name is that of a file, or of a scenario that comes with Tulle.
Result<void> read_file(const std::string& name, live::FabricOptions& out) {
  const bool is_name = name.find('/') == std::string::npos && !name.ends_with(".toml");
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(name, error);
  auto path = is_file   ? Result<std::string>(name)
              : is_name ? config::find_named(config::shipped_folder(), "", name, "scenario")
                        : config::find_file("", name);
  if (!path) return path.error();
  auto network = config::read_network(*path);
  if (!network) return network.error();
  out.topology = std::move(network->topology);
  out.machines = std::move(network->machines);
  return {};
}

Result<void> read_usual(live::FabricOptions& out) {
  auto topology = fabric::from_csv(usual_topology, "the usual topology");
  if (!topology) return topology.error();
  out.topology = std::move(*topology);
  return {};
}

// Gives each node to a machine, if there are several.
Result<void> place_nodes(const FabricUpOptions& options, live::FabricOptions& out) {
  if (out.machines.empty()) {
    if (options.machine.empty() && options.secure.empty()) return {};
    return Error{fmt::format("{} needs a file with a list of machines: [[machine]]",
                             options.machine.empty() ? "--secure" : "--machine")};
  }
  out.machine = options.machine;
  out.key_file = options.secure.empty() ? live::read_settings().secure : options.secure;
  if (!out.key_file.empty()) {
    const auto keys = live::read_key_file(out.key_file);
    if (!keys) return keys.error();
    std::error_code ignored;
    out.key_file = fs::absolute(out.key_file, ignored).string();
  }
  auto placed = fabric::place(out.topology, out.machines);
  if (!placed) return Error{fmt::format("{}: {}", options.topology, placed.error().message)};
  out.machine_of = std::move(*placed);
  return {};
}

// Returns an error if the topology is none that a subnet can be.
Result<void> check(const fabric::Topology& topology) {
  if (topology.nodes() > wire::unicast_lid_max) {
    return Error{fmt::format("a subnet has at most 49,151 LIDs, and this topology {} nodes",
                             topology.nodes())};
  }
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    if (topology.ports[node] <= switch_ports_max) continue;
    return Error{fmt::format("{} has {} ports; a switch of InfiniBand has at most {}",
                             topology.name(node), topology.ports[node], switch_ports_max)};
  }
  return {};
}

std::string state_name(std::uint8_t state) {
  constexpr std::array<std::string_view, 5> names = {"none", "down", "initialise", "armed",
                                                     "active"};
  return std::string(state < names.size() ? names[state] : "unknown");
}

int command(const std::string& name, const live::FabricHello& hello) {
  auto address = fabric_address(name);
  if (!address) return fail(address.error().message);
  const auto done = live::command_fabric(*address, hello);
  if (done) return 0;
  return fail_at_fabric(done.error());
}

void say_nothing(const std::string&) {}
int& ready_pipe() {
  static int pipe = -1;
  return pipe;
}
void say_ready(const std::string& network) {
  write_best_effort(ready_pipe(), network.data(), network.size());
  close(ready_pipe());
  drop_standard_descriptors();  // nobody reads what a detached process prints
}

// Starts the fabric in a separate process. Returns an exit status when programs may connect, with
// a sentence about the hosts' network, or when it has failed.
int start_detached(const live::FabricOptions& options, std::string& network) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail("cannot make a pipe");
  const UniqueFd reads(ends[0]);
  UniqueFd writes(ends[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return fail("cannot start a process for the fabric");
  if (child == 0) {
    setsid();
    // A pipe of the caller that stayed open here would never reach its end.
    constexpr int kept = 3;
    if (chdir("/") != 0 || dup2(writes.get(), kept) < 0) _exit(1);
    close_range(kept + 1, UINT_MAX, 0);
    ready_pipe() = kept;
    _exit(live::run_fabric(options, say_ready));
  }
  writes.reset();
  std::array<char, 512> text{};
  ssize_t count = 0;
  while ((count = read(reads.get(), text.data(), text.size())) > 0) {
    network.append(text.data(), static_cast<std::size_t>(count));
  }
  if (!network.empty()) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
}

json_t to_json(const live::FabricNode& node) {
  json_t ports = json_t::array();
  for (const live::FabricPort& port : node.ports) {
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
  for (const live::FabricInterface& each : node.interfaces) {
    json_t interface = {{"name", each.name}, {"running", each.is_running}};
    if (!each.problem.empty()) interface["problem"] = each.problem;
    out["interfaces"].push_back(std::move(interface));
  }
  if (!node.is_switch) out["programs"] = node.programs;
  if (!node.is_switch) out["listeners"] = node.listeners;
  out["ports"] = ports;
  return out;
}

void print_node(const live::FabricNode& node) {
  std::string line = fmt::format("{:<12} {:<8} {:016x} {:>5}  {:<11}  {}", node.name,
                                 node.is_switch ? "switch" : "host", node.guid,
                                 node.lid == 0 ? "-" : std::to_string(node.lid), node.address,
                                 node.is_master    ? "subnet manager"
                                 : node.is_manager ? "subnet manager, waits"
                                                   : "");
  if (!node.machine.empty()) line += fmt::format(" on {}", node.machine);
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print("{}\n", one_line(line));
  for (const live::FabricInterface& each : node.interfaces) {
    fmt::print("  {:<8} {}\n", one_line(each.name),
               !each.problem.empty() ? one_line(each.problem)
               : each.is_running     ? "running"
                                     : "waits for the subnet manager");
  }
  for (const live::FabricPort& port : node.ports) {
    const std::string peer =
        port.peer.empty() ? "" : fmt::format("{}:{}", port.peer, port.peer_port);
    fmt::print("  port {:<3} {:<11} {:>4} Gb/s  {}{}\n", port.number, state_name(port.state),
               port.gigabits_per_second, one_line(peer), port.is_cut ? " (cut)" : "");
  }
}

}  // namespace

Result<std::string> fabric_address(const std::string& name) {
  const fs::path own = live::fabric_place().socket;
  if (name.empty() && !own.empty()) {
    auto trusted = trusted_folder(own.parent_path());
    if (trusted) return (fs::path(*trusted) / own.filename()).string();
    if (trusted.error().error_number == ENOENT) return own.string();  // it is down
    return Error{
        fmt::format("the fabric that TULLE_FABRIC names is not used: {}", trusted.error().message),
        trusted.error().error_number};
  }
  auto folder = folder_of(name);
  if (!folder) return folder.error();
  return live::fabric_socket(*folder);
}

int fail_at_fabric(const Error& error) {
  return error.error_number == EINVAL ? refuse(error.message) : fail(error.message);
}

namespace {

std::string counted(std::size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

}  // namespace

int fabric_up(const FabricUpOptions& options) {
  live::FabricOptions live_options;
  auto read = options.topology.empty() ? read_usual(live_options)
                                       : read_file(options.topology, live_options);
  if (!read) return refuse(read.error().message);
  const fabric::Topology& topology = live_options.topology;
  if (auto fits = check(topology); !fits) return refuse(fits.error().message);
  if (auto placed = place_nodes(options, live_options); !placed) {
    return refuse(placed.error().message);
  }
  find_all();  // removes what dead ones left behind
  auto folder = folder_of(options.name);
  if (!folder) return fail(folder.error().message);
  live_options.name = name_or_default(options.name);
  live_options.folder = *folder;
  live_options.has_manager = !options.no_manager;
  if (options.manager_key == "none") {
    live_options.manager_key = 0;
  } else if (!options.manager_key.empty()) {
    auto key = live::read_manager_key(options.manager_key);
    if (!key) return refuse(key.error().message);
    live_options.manager_key = *key;
  }
  live_options.has_networks = !options.shared_network;
  live_options.keeps_rates = options.keeps_rates;
  if (options.foreground) return live::run_fabric(live_options, say_nothing);
  std::string network;
  if (const int status = start_detached(live_options, network); status != 0) return status;
  const std::uint32_t hosts = topology.adapters();
  fmt::print("The fabric \"{}\" is up: {}, {} hosts (h0 to h{}), {}.\n", live_options.name,
             counted(topology.switches, "switch", "switches"), hosts, hosts - 1,
             counted(topology.links.size(), "cable", "cables"));
  if (options.keeps_rates) fmt::print("Its links keep to their rates.\n");
  if (options.no_manager) {
    fmt::print(
        "Run a subnet manager on a host, such as `tulle run --host h0 -- opensm -f "
        "$PWD/opensm.log`.\n");
  } else if (live_options.machines.empty()) {
    fmt::print("Its own subnet manager has made the ports active.\n");
  } else {
    fmt::print("Its own subnet manager makes ports active as the other machines come up.\n");
  }
  if (!live_options.machines.empty() && live_options.key_file.empty()) {
    fmt::print(
        "Datagrams between the machines are not sealed (--secure): all their users are trusted.\n");
  }
  fmt::print("{}\n", network);
  return 0;
}

int fabric_down(const std::string& name) {
  live::FabricHello hello;
  hello.purpose = live::FabricPurpose::stop;
  const int status = command(name, hello);
  find_all();  // removes what dead ones left behind
  return status;
}

int fabric_list(bool json) {
  const std::vector<Found> found = find_all();
  const std::string own = home_namespace();
  if (json) {
    json_t all = json_t::array();
    for (const Found& each : found) {
      all.push_back({{"name", each.name},
                     {"switches", each.switches},
                     {"hosts", each.hosts},
                     {"process", each.process},
                     {"network_namespace", each.network_namespace},
                     {"is_here", each.network_namespace == own}});
    }
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  if (found.empty()) {
    fmt::print("No fabric is up; `tulle fabric up` starts one.\n");
    return 0;
  }
  fmt::print("{:<16} {:>8} {:>6} {:>8}  {}\n", "NAME", "SWITCHES", "HOSTS", "PROCESS",
             "NETWORK NAMESPACE");
  for (const Found& each : found) {
    fmt::print("{:<16} {:>8} {:>6} {:>8}  {}\n", each.name, each.switches, each.hosts, each.process,
               each.network_namespace == own ? "this one" : each.network_namespace);
  }
  return 0;
}

int fabric_cable(const std::string& name, bool cuts, const std::array<std::string, 2>& ends) {
  live::FabricHello hello;
  hello.purpose = cuts ? live::FabricPurpose::cut : live::FabricPurpose::join;
  hello.ends = ends;
  return command(name, hello);
}

int fabric_status(const std::string& name, bool json) {
  auto address = fabric_address(name);
  if (!address) return fail(address.error().message);
  auto found = live::fabric_status(*address);
  if (!found) return fail(found.error().message);
  auto machines = live::fabric_machines(*address);
  if (!machines) return fail(machines.error().message);
  if (json) {
    json_t hosts = json_t::array(), switches = json_t::array();
    for (const live::FabricNode& node : found->nodes) {
      (node.is_switch ? switches : hosts).push_back(to_json(node));
    }
    json_t all = {{"name", name_or_default(name)},
                  {"hosts", hosts},
                  {"switches", switches},
                  {"discarded_datagrams", found->discarded}};
    for (const live::FabricMachine& each : machines->machines) {
      all["machines"].push_back(
          {{"name", each.name}, {"address", each.address}, {"state", each.state}});
    }
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  for (const live::FabricMachine& each : machines->machines) {
    fmt::print("machine {:<12} {:<20} {}\n", one_line(each.name), one_line(each.address),
               one_line(each.state));
  }
  fmt::print("{:<12} {:<8} {:<16} {:>5}  {}\n", "NAME", "KIND", "GUID", "LID", "ADDRESS");
  for (const live::FabricNode& node : found->nodes) print_node(node);
  if (found->discarded > 0) {
    fmt::print("\n{} {} found no way.\n", found->discarded,
               found->discarded == 1 ? "datagram" : "datagrams");
  }
  return 0;
}

}  // namespace tulle::cli
