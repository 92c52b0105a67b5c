#include "live/fabric/fabrics.h"

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
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/write_best_effort.h"
#include "fabric/machines/placement.h"
#include "fabric/topology.h"
#include "live/fabric/client.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/server.h"
#include "live/security/key_file.h"
#include "os/own_folder.h"
#include "os/service_process.h"
#include "os/trusted_folder.h"
#include "os/unique_fd.h"
#include "rdma/wire/lrh.h"

namespace tulle::live {
namespace {

namespace fs = std::filesystem;

constexpr char usual_links[] =
    "a,b,gbps,delay_ns\n"
    "0,4,100,100\n"
    "1,4,100,100\n"
    "2,5,100,100\n"
    "3,5,100,100\n"
    "4,5,100,100\n";

constexpr std::uint32_t switch_ports_max = 254;  // IBTA 18.2.4.2: port numbers have 8 bits

// A fabric's folder, in the folder of this user, is called by the fabric's name and by the network
// namespace in which it was started, as the host agent's socket belongs to one.
constexpr char folder_prefix[] = "fabric_";

Result<std::string> path_of(Result<OwnFolder> folder, const Warn& warn) {
  if (!folder) return folder.error();
  if (!folder->warning.empty()) warn(folder->warning);
  return std::move(folder->path);
}

// Removes what a fabric left behind that was killed: its folder, and the files by which programs on
// its hosts found their device. One that is just starting holds a lock on its folder, or has no
// socket yet.
void remove_dead(const fs::path& folder) {
  const fs::path socket = fabric_socket(folder);
  const UniqueFd lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code error;
  if (!fs::exists(socket, error)) return;
  const auto process = fabric_process(socket);
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

int& ready_pipe() {
  static int pipe = -1;
  return pipe;
}
void report_ready(const std::string& network) {
  write_best_effort(ready_pipe(), network.data(), network.size());
  close(ready_pipe());
  drop_standard_descriptors();  // nobody reads what a detached process prints
}

}  // namespace

std::string fabric_name(const std::string& name) { return name.empty() ? "default" : name; }

std::string fabrics_namespace() {
  const fs::path socket = fabric_place().socket;
  const std::string folder = socket.parent_path().filename();
  const std::size_t end = folder.rfind('_');
  if (folder.starts_with(folder_prefix) && end != std::string::npos) return folder.substr(end + 1);
  struct stat its {};
  return stat("/proc/self/ns/net", &its) == 0 ? std::to_string(its.st_ino) : "0";
}

Result<std::string> fabric_folder(const std::string& name, const Warn& warn) {
  return path_of(own_folder_for("fabric " + fabric_name(name) + " " + fabrics_namespace()), warn);
}

Result<std::string> fabric_address(const std::string& name, const Warn& warn) {
  const fs::path own = fabric_place().socket;
  if (name.empty() && !own.empty()) {
    auto trusted = trusted_folder(own.parent_path());
    if (trusted) return (fs::path(*trusted) / own.filename()).string();
    if (trusted.error().error_number == ENOENT) return own.string();  // it is down
    return Error{
        fmt::format("the fabric that TULLE_FABRIC names is not used: {}", trusted.error().message),
        trusted.error().error_number};
  }
  auto folder = fabric_folder(name, warn);
  if (!folder) return folder.error();
  return fabric_socket(*folder);
}

std::vector<FoundFabric> find_fabrics(const Warn& warn) {
  std::vector<FoundFabric> found;
  auto own = path_of(own_folder(), warn);
  if (!own) return found;
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(*own, error)) {
    if (entry.path().filename().string().starts_with(folder_prefix))
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    auto process = fabric_process(fabric_socket(folder));
    if (!process) {
      if (process.error().error_number == ECONNREFUSED) remove_dead(folder);
      continue;
    }
    const std::string rest = folder.filename().string().substr(sizeof folder_prefix - 1);
    const std::size_t end = std::min(rest.rfind('_'), rest.size());
    FoundFabric each{rest.substr(0, end), end < rest.size() ? rest.substr(end + 1) : "", *process};
    if (auto status = fabric_status(fabric_socket(folder))) {
      for (const FabricNode& node : status->nodes) ++(node.is_switch ? each.switches : each.hosts);
    }
    found.push_back(std::move(each));
  }
  return found;
}

fabric::Topology usual_topology() { return *fabric::from_csv(usual_links, "the usual topology"); }

Result<void> check_subnet(const fabric::Topology& topology) {
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

Result<void> place_nodes(FabricOptions& options, const std::string& file) {
  if (options.machines.empty()) return {};
  if (!options.key_file.empty()) {
    const auto keys = read_key_file(options.key_file);
    if (!keys) return keys.error();
    std::error_code ignored;
    options.key_file = fs::absolute(options.key_file, ignored).string();
  }
  auto placed = fabric::place(options.topology, options.machines);
  if (!placed) return Error{fmt::format("{}: {}", file, placed.error().message)};
  options.machine_of = std::move(*placed);
  return {};
}

Result<StartedFabric> start_fabric(const FabricOptions& options) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Error{"cannot make a pipe", errno};
  const UniqueFd reads(ends[0]);
  UniqueFd writes(ends[1]);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return Error{"cannot start a process for the fabric", errno};
  if (child == 0) {
    setsid();
    // A pipe of the caller that stayed open here would never reach its end.
    constexpr int kept = 3;
    if (chdir("/") != 0 || dup2(writes.get(), kept) < 0) _exit(1);
    close_range(kept + 1, UINT_MAX, 0);
    ready_pipe() = kept;
    _exit(run_fabric(options, report_ready));
  }
  writes.reset();
  StartedFabric started;
  std::array<char, 512> text{};
  ssize_t count = 0;
  while ((count = read(reads.get(), text.data(), text.size())) > 0) {
    started.network.append(text.data(), static_cast<std::size_t>(count));
  }
  if (!started.network.empty()) return started;
  int status = 0;
  waitpid(child, &status, 0);
  started.status = WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
  return started;
}

}  // namespace tulle::live
