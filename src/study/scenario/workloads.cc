#include "study/scenario/workloads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/near_names.h"
#include "base/quoted.h"
#include "fabric/topology.h"
#include "study/report/quantity.h"
#include "study/scenario/build.h"
#include "study/scenario/document.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/reading.h"
#include "study/scenario/toml_text.h"
#include "study/workload/collectives.h"
#include "study/workload/experts.h"

namespace tulle::scenario {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view usual_servers = "dgx-h100";

void put(toml::table& keys, std::string_view key, const Workload::Value& value) {
  std::visit([&](const auto& each) { keys.insert(key, each); }, value);
}

// --- networks -----------------------------------------------------------------------------------

// Returns the hosts per leaf of a network in which each leaf has as many hosts as there are spines
// and all links have one rate, so that nothing is oversubscribed. The network is as square as the
// hosts can be dealt out. Returns nothing if they cannot.
std::optional<std::uint32_t> hosts_per_leaf(std::uint32_t hosts) {
  constexpr std::uint32_t switch_hosts = 8;  // most hosts of a single switch
  if (hosts <= switch_hosts) return hosts;
  const double square = std::sqrt(hosts);
  std::uint32_t best = 1;
  for (std::uint32_t n = 2; n <= hosts / 2; ++n) {
    if (hosts % n == 0 && std::abs(n - square) < std::abs(best - square)) best = n;
  }
  return best == 1 ? std::nullopt : std::optional(best);
}

// The rate of an adapter, and of its links: it has one in each plane.
struct Planes {
  std::uint32_t count = 1;
  std::string rate;
  std::string link_rate;

  // Adds the keys of links of 20 m of cable, at 5 ns/m.
  void add_links_to(toml::table& topology) const {
    topology.insert("link_rate", link_rate);
    topology.insert("link_delay", "100ns");
    if (count > 1) topology.insert("planes", count);
  }
  // Returns the rate for people, as in "800Gbps by 4 planes".
  std::string words() const {
    return count > 1 ? fmt::format("{} by {} planes", rate, count) : rate;
  }
};

std::string topology_words(std::uint32_t hosts, const std::string& link_rate) {
  const std::uint32_t per_leaf = hosts_per_leaf(hosts).value_or(hosts);
  if (per_leaf == hosts) return fmt::format("{} hosts at one switch, {}", hosts, link_rate);
  return fmt::format("{} hosts, {} leaves and {} spines, {}", hosts, hosts / per_leaf, per_leaf,
                     link_rate);
}

// Returns a network that never blocks: the adapters of one number in up to 32 servers share a leaf
// switch, and each leaf has as many spines as servers.
toml::table rails_topology(std::string_view kind, std::uint32_t servers, std::uint32_t adapters,
                           const Planes& planes) {
  constexpr std::uint32_t leaf_servers = 32;
  const std::uint32_t group = std::min(servers, leaf_servers);
  toml::table topology{{"kind", kind},
                       {"servers", servers},
                       {"rails", adapters},
                       {"servers_per_group", group},
                       {"spines", group}};
  planes.add_links_to(topology);
  return topology;
}

// --- jobs of GPUs -------------------------------------------------------------------------------

// The GPUs and adapters of a server's profile.
struct ServerShape {
  std::uint32_t gpus = 1;
  std::uint32_t adapters = 1;
};

// The title of a job of GPUs, or of several; the table [traffic] of their scenario; and their
// tables [[jobs]], if there are several.
struct JobTables {
  std::string title;
  toml::table traffic;
  toml::array jobs;
};

// The key of a job for its algorithm; empty if its kind has none.
std::string_view algorithm_key(const JobKeys& job) {
  const std::string_view pattern = job.keys.front().second;
  return pattern == "collective" ? "algorithm" : pattern == "experts" ? "route" : "";
}

toml::table table_of(const JobKeys& job) {
  toml::table table;
  for (const auto& [key, value] : job.keys) table.insert(key, value);
  return table;
}

// --- choices ------------------------------------------------------------------------------------

// Reads the choice of a workload.
class Choice {
 public:
  Choice(const WorkloadOptions& options, const std::string& folder, const Spelling& spelling)
      : options_(options), folder_(folder), spelling_(spelling) {}

  Result<Scenario> scenario();

 private:
  std::string spelled(std::string_view member) const { return spelling_(member); }
  Error wrong(std::string_view member, std::string_view what) const {
    return Error{fmt::format("{}: {}", spelled(member), what)};
  }

  Result<void> check_texts() const;
  Result<void> check_quantities() const;
  Result<void> refuse_topology() const;
  Result<void> check_gpu_members() const;
  Result<void> check_file_members() const;
  Result<void> find_prices();
  Result<std::string> whole_path(std::string_view member, const std::string& file) const;

  Result<Planes> planes(const char* usual_rate) const;
  Result<toml::table> topology(std::uint32_t hosts, const Planes& planes) const;
  Result<std::string_view> rails_kind() const;
  Result<ServerShape> read_server_shape(const std::string& path) const;
  Result<std::optional<JobKeys>> job_of(const std::string& workload) const;

  Result<Scenario> from_name(const Workload& workload) const;
  Result<Scenario> from_one_job(const JobKeys& job) const;
  Result<Scenario> from_jobs() const;
  Result<Scenario> from_job(JobTables job, std::uint64_t gpus) const;
  Result<Scenario> from_flows() const;
  Result<Scenario> from_file() const;
  Result<Scenario> scenario_of(toml::table keys, const std::string& folder) const;
  std::string no_such_workload() const;

  const WorkloadOptions& options_;
  const std::string& folder_;
  const Spelling& spelling_;
  Overrides overrides_;
};

// These members become values of keys, and TOML is UTF-8.
Result<void> Choice::check_texts() const {
  const std::array<std::pair<const char*, const std::string*>, 6> texts = {
      {{"servers", &options_.servers},
       {"placement", &options_.placement},
       {"algorithm", &options_.algorithm},
       {"protocol", &options_.protocol},
       {"bytes", &options_.bytes},
       {"link_rate", &options_.link_rate}}};
  for (const auto& [member, text] : texts) {
    if (is_utf8(*text)) continue;
    return wrong(member, fmt::format("{} is not UTF-8; save it again as UTF-8, or rename the file",
                                     tulle::quoted(*text)));
  }
  return {};
}

Result<void> Choice::check_quantities() const {
  if (!options_.bytes.empty() && !report::parse_bytes(options_.bytes)) {
    return wrong("bytes", fmt::format("must be an amount such as 64KB, in {}", report::byte_units));
  }
  if (!options_.link_rate.empty() && !report::parse_rate(options_.link_rate)) {
    return wrong("link_rate",
                 fmt::format("must be a rate such as 400Gbps, in {}", report::rate_units));
  }
  return {};
}

Result<void> Choice::refuse_topology() const {
  if (options_.topology.empty()) return {};
  return wrong("topology", fmt::format("goes with a table of flows, {} FILE.csv, or with a job of "
                                       "GPUs",
                                       spelled("workload")));
}

Result<void> Choice::check_gpu_members() const {
  const char* given = options_.gpus                 ? "gpus"
                      : !options_.servers.empty()   ? "servers"
                      : !options_.algorithm.empty() ? "algorithm"
                      : !options_.protocol.empty()  ? "protocol"
                                                    : nullptr;
  if (given == nullptr) return {};
  return wrong(given, "goes with a job of GPUs, such as allreduce:256MiB");
}

Result<void> Choice::check_file_members() const {
  const char* given = options_.hosts                ? "hosts"
                      : !options_.bytes.empty()     ? "bytes"
                      : !options_.link_rate.empty() ? "link_rate"
                      : options_.planes             ? "planes"
                                                    : nullptr;
  if (given == nullptr) return {};
  return wrong(given,
               fmt::format("goes with a named workload; change a file's with {}", spelled("set")));
}

Result<std::string> Choice::whole_path(std::string_view member, const std::string& file) const {
  const std::string path = fs::absolute(file).string();
  if (is_utf8(path)) return path;
  return wrong(member,
               fmt::format("the path {} is not UTF-8; rename the file or its folders, or link to "
                           "it",
                           tulle::quoted(path)));
}

Result<void> Choice::find_prices() {
  if (options_.prices.empty()) return {};
  if (auto named = whole_path("prices", options_.prices); !named) return named.error();
  auto found = find_named_or_file("", "prices", options_.prices, "price list");
  if (!found) return wrong("prices", found.error().message);
  auto path = whole_path("prices", *found);
  if (!path) return path.error();
  overrides_.prices = std::move(*path);
  return {};
}

// The rates were checked.
Result<Planes> Choice::planes(const char* usual_rate) const {
  constexpr std::uint32_t planes_max = 16;
  Planes planes;
  planes.rate = planes.link_rate = options_.link_rate.empty() ? usual_rate : options_.link_rate;
  planes.count = options_.planes.value_or(1);
  if (planes.count < 1 || planes.count > planes_max) {
    return wrong("planes", fmt::format("must be 1 to {}", planes_max));
  }
  const std::int64_t rate = *report::parse_rate(planes.rate);
  if (rate % planes.count != 0) {
    return wrong("planes", fmt::format("{} cannot be split over {} planes evenly", planes.rate,
                                       planes.count));
  }
  if (planes.count > 1) planes.link_rate = fmt::format("{}bps", rate / planes.count);
  return planes;
}

Result<toml::table> Choice::topology(std::uint32_t hosts, const Planes& planes) const {
  constexpr std::uint32_t hosts_max = 65'536;
  if (hosts < 2 || hosts > hosts_max) {
    return wrong("hosts", fmt::format("must be 2 to {}", hosts_max));
  }
  const auto per_leaf = hosts_per_leaf(hosts);
  if (!per_leaf) {
    return wrong("hosts", fmt::format("{} cannot be dealt over leaf switches evenly; take {} or {}",
                                      hosts, hosts - 1, hosts + 1));
  }
  toml::table topology;
  if (*per_leaf == hosts) {
    topology = toml::table{{"kind", "single-switch"}, {"hosts", hosts}};
  } else {
    topology = toml::table{{"kind", "leaf-spine"},
                           {"leaves", hosts / *per_leaf},
                           {"spines", *per_leaf},
                           {"hosts_per_leaf", *per_leaf}};
  }
  planes.add_links_to(topology);
  return topology;
}

Result<Scenario> Choice::scenario_of(toml::table keys, const std::string& folder) const {
  if (!overrides_.seed) keys.insert("seed", 1);
  return Scenario::of({std::move(keys)},
                      fmt::format("{} {}", spelled("workload"), one_line(options_.workload)),
                      folder, options_.set, overrides_);
}

Result<Scenario> Choice::from_name(const Workload& workload) const {
  if (auto right = refuse_topology(); !right) return right.error();
  if (!options_.bytes.empty() && workload.bytes.empty()) {
    return wrong("bytes", fmt::format("{} draws its sizes", workload.name));
  }
  if (auto right = check_quantities(); !right) return right.error();
  const std::uint32_t hosts = options_.hosts.value_or(64);
  auto split = planes("200Gbps");
  if (!split) return split.error();
  const std::string bytes = options_.bytes.empty() ? std::string(workload.bytes) : options_.bytes;
  auto network = topology(hosts, *split);
  if (!network) return network.error();
  toml::table traffic;
  for (const auto& [key, value] : workload.traffic) put(traffic, key, value);
  std::string title(workload.title);
  if (!bytes.empty()) {
    traffic.insert("bytes", bytes);
    title += ", " + bytes;
  }
  title += ": " + topology_words(hosts, split->words());
  toml::table keys{{"title", title}, {"topology", *network}, {"traffic", traffic}};
  return scenario_of(std::move(keys), folder_);
}

Result<ServerShape> Choice::read_server_shape(const std::string& path) const {
  auto text = read_file(path);
  if (!text) return wrong("servers", text.error().message);
  auto root = parse_toml(*text, path);
  if (!root) return root.error();
  const auto number = [&](const char* key) {
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>((*root)[key].value_or(std::int64_t{1}), 1, 1'024));
  };
  return ServerShape{number("gpus"), number("adapters")};
}

Result<std::string_view> Choice::rails_kind() const {
  if (options_.topology.empty()) return rail_topologies.front();
  const auto found = std::ranges::find(rail_topologies, options_.topology);
  if (found != rail_topologies.end()) return *found;
  return wrong("topology",
               fmt::format("a job's is {}, and not {}", fmt::join(rail_topologies, " or "),
                           tulle::quoted(options_.topology)));
}

Result<Scenario> Choice::from_job(JobTables job, std::uint64_t gpus) const {
  auto kind = rails_kind();
  if (!kind) return kind.error();
  if (options_.hosts) return wrong("hosts", "a job runs on " + spelled("gpus"));
  if (!options_.bytes.empty()) {
    return wrong("bytes", "a collective has its bytes behind a colon, as in allreduce:256MiB");
  }
  if (auto right = check_quantities(); !right) return right.error();
  const std::string servers =
      options_.servers.empty() ? std::string(usual_servers) : options_.servers;
  auto found = servers.ends_with(".toml")
                   ? find_file("", servers)
                   : find_named(folder_, "profiles/servers", servers, "profile");
  if (!found) return wrong("servers", found.error().message);
  const fs::path path = fs::absolute(*found);
  auto shape = read_server_shape(path.string());
  if (!shape) return shape.error();
  constexpr std::uint32_t gpus_max = 65'536;
  if (gpus < 2 || gpus > gpus_max || gpus % shape->gpus != 0) {
    return wrong("gpus", fmt::format("{} do not fill servers of {}: take a multiple, from 2 to {}",
                                     gpus, shape->gpus, gpus_max));
  }
  auto split = planes("400Gbps");
  if (!split) return split.error();
  const auto count = static_cast<std::uint32_t>(gpus / shape->gpus);
  std::string title =
      fmt::format("{}: {} GPUs in {} server{} ({}), {} adapters of {} each{}", job.title, gpus,
                  count, count == 1 ? "" : "s", path.stem().string(), shape->adapters,
                  split->words(), *kind == rail_topologies.front() ? "" : ", rails apart");
  if (options_.storage > 0) {
    title += fmt::format(", and {} storage server{}", options_.storage,
                         options_.storage == 1 ? "" : "s");
  }
  toml::table profile{{"profile", (path.parent_path() / path.stem()).string()}};
  profile.is_inline(true);
  job.traffic.insert("servers", std::move(profile));
  toml::table keys{
      {"title", title},
      {"topology", rails_topology(*kind, count + options_.storage, shape->adapters, *split)},
      {"traffic", std::move(job.traffic)}};
  if (!job.jobs.empty()) keys.insert("jobs", std::move(job.jobs));
  return scenario_of(std::move(keys), folder_);
}

// More keys of a job come from `set`.
Result<Scenario> Choice::from_one_job(const JobKeys& job) const {
  const std::string_view key = algorithm_key(job);
  if (!options_.algorithm.empty() && key.empty()) {
    return wrong("algorithm", "goes with a collective");
  }
  const auto& routes = workload::expert_route_names;
  if (!options_.algorithm.empty() && key == "route" &&
      std::ranges::find(routes, options_.algorithm) == routes.end()) {
    return wrong("algorithm", fmt::format("tokens go {}", fmt::join(routes, " or ")));
  }
  if (!options_.protocol.empty() && key != "algorithm") {
    return wrong("protocol", "goes with a collective");
  }
  toml::table traffic = table_of(job);
  if (!options_.protocol.empty()) traffic.insert("protocol", options_.protocol);
  if (!options_.algorithm.empty()) traffic.insert(key, options_.algorithm);
  if (options_.storage > 0) {
    toml::table checkpoint{{"storage", options_.storage}};
    checkpoint.is_inline(true);
    traffic.insert("checkpoint", std::move(checkpoint));
  }
  return from_job({job.title, std::move(traffic), {}}, options_.gpus.value_or(64));
}

// Returns the keys of a job, with whole paths.
Result<std::optional<JobKeys>> Choice::job_of(const std::string& workload) const {
  std::error_code error;
  const fs::path models = fs::absolute(fs::path(folder_) / "models", error);
  auto keys = keys_of_job(workload, {models, fs::current_path(error), true});
  if (!keys) return wrong("workload", keys.error().message);
  if (!*keys) return keys;
  for (const auto& [key, value] : (*keys)->keys) {
    if (is_utf8(value)) continue;
    if (auto path = whole_path("workload", workload); !path) return path.error();
  }
  return keys;
}

// Returns the scenario of several jobs side by side, each with its own GPUs.
Result<Scenario> Choice::from_jobs() const {
  if (!options_.algorithm.empty() || !options_.protocol.empty()) {
    return wrong(options_.algorithm.empty() ? "protocol" : "algorithm",
                 "goes with one job; write a scenario with [[jobs]] for several");
  }
  std::vector<JobOption> all = {{options_.workload, options_.gpus}};
  all.insert(all.end(), options_.others.begin(), options_.others.end());
  JobTables together;
  std::vector<std::string> names;
  std::uint64_t gpus = 0;
  for (const JobOption& each : all) {
    auto job = job_of(each.workload);
    if (!job) return job.error();
    if (!*job) {
      return wrong("workload", fmt::format("{} is no job, and several workloads are jobs: {}",
                                           tulle::quoted(each.workload), job_names()));
    }
    if (!each.gpus) return wrong("gpus", "is needed once for each " + spelled("workload"));
    gpus += *each.gpus;
    together.title += fmt::format("{}{} on {} GPUs", together.title.empty() ? "" : "; ",
                                  (*job)->title, *each.gpus);
    std::string name = one_line(fs::path(each.workload).filename().string());
    if (std::ranges::find(names, name) != names.end()) {
      name += fmt::format(" #{}", names.size() + 1);
    }
    names.push_back(name);
    toml::table table = table_of(**job);
    table.insert("name", name);
    table.insert("gpus", *each.gpus);
    if (!options_.placement.empty()) table.insert("placement", options_.placement);
    together.jobs.push_back(std::move(table));
  }
  return from_job(std::move(together), gpus);
}

// Returns the keys of a network and its flows that are in tables.
Result<toml::table> keys_of_tables(std::string_view topology_member, const std::string& topology,
                                   std::string_view flows_member, const std::string& flows,
                                   const Spelling& spelling) {
  for (const auto& [member, file] :
       {std::pair(flows_member, &flows), {topology_member, &topology}}) {
    if (is_utf8(*file)) continue;
    return Error{fmt::format("{}: the name {} is not UTF-8; rename the file, or link to it",
                             spelling(member), tulle::quoted(*file))};
  }
  return toml::table{{"title", "Flows from a table"},
                     {"topology", toml::table{{"kind", "file"}, {"file", topology}}},
                     {"traffic", toml::table{{"pattern", "file"}, {"file", flows}}}};
}

Result<Scenario> Choice::from_flows() const {
  if (options_.topology.empty()) {
    return Error{fmt::format("{} {}: a table of flows needs {}, a table of links",
                             spelled("workload"), one_line(options_.workload),
                             spelled("topology"))};
  }
  auto keys =
      keys_of_tables("topology", options_.topology, "workload", options_.workload, spelling_);
  if (!keys) return keys.error();
  return scenario_of(std::move(*keys), "");
}

Result<Scenario> Choice::from_file() const {
  if (auto right = check_file_members(); !right) return right.error();
  if (options_.workload.ends_with(".csv")) return from_flows();
  if (auto right = refuse_topology(); !right) return right.error();
  auto path = find_file("", options_.workload);
  if (!path) return wrong("workload", path.error().message);
  return Scenario::read(*path, options_.set, overrides_);
}

std::string Choice::no_such_workload() const {
  const std::string& typed = options_.workload;
  std::vector<std::string_view> names;
  for (const Workload& workload : workloads()) names.push_back(workload.name);
  const std::string all =
      fmt::format("the workloads are {}; {}; and files: a scenario's .toml, or a .csv of flows",
                  fmt::join(names, ", "), job_names());
  for (const workload::NamedCollective& each : workload::named_collectives())
    names.push_back(each.name);
  // What comes before a colon is the workload's name: alreduce:256MiB.
  const std::string name = typed.substr(0, typed.find(':'));
  return fmt::format("no workload {}{}", tulle::quoted(typed), did_you_mean(name, names, all));
}

Result<Scenario> Choice::scenario() {
  const std::string& name = options_.workload;
  if (auto right = check_texts(); !right) return right.error();
  overrides_.is_alone = options_.is_alone;
  overrides_.seed = options_.seed;
  if (auto found = find_prices(); !found) return found.error();
  if (options_.storage > 0 && (!options_.others.empty() || !name.starts_with("step:"))) {
    return wrong("storage", "goes with one training step, whose checkpoints these servers store");
  }
  if (!options_.others.empty()) return from_jobs();
  if (!options_.placement.empty()) {
    return wrong("placement", fmt::format("goes with several jobs, each a {} with its {}",
                                          spelled("workload"), spelled("gpus")));
  }
  const auto known = std::ranges::find(workloads(), name, &Workload::name);
  if (known == workloads().end()) {
    auto job = job_of(name);
    if (!job) return job.error();
    if (*job) return from_one_job(**job);
  }
  if (auto right = check_gpu_members(); !right) return right.error();
  if (known != workloads().end()) return from_name(*known);
  if (name.ends_with(".toml") || name.ends_with(".csv")) return from_file();
  return wrong("workload", no_such_workload());
}

// --- tables -------------------------------------------------------------------------------------

// HPCC's simulator calls this set "dcqcn" (its rates are for 25 Gb/s, and scaled by the link's).
// That simulator counts its one round of fast recovery from 0. Here it is two rounds, because Tulle
// counts as the paper does: the second increase is the additive one.
toml::table dcqcn_of_hpcc(std::int64_t bits_per_second) {
  const std::int64_t mbps = bits_per_second / 1'000'000;
  return toml::table{{"control", "dcqcn"},
                     {"alpha_interval", "1us"},
                     {"decrease_interval", "4us"},
                     {"increase_interval", "300us"},
                     {"increase_bytes", "0B"},
                     {"fast_recovery_rounds", 2},
                     {"clamp_target", false},
                     {"least", "1Gbps"},
                     {"notification_interval", "1us"},
                     {"additive", fmt::format("{}Kbps", mbps * 1'000 / 5'000)},
                     {"hyper", fmt::format("{}Kbps", mbps * 1'000 / 500)}};
}

Result<toml::table> dcqcn_for(const std::string& topology_file) {
  auto path = find_file("", topology_file);
  if (!path) return path.error();
  auto table = read_file(*path);
  if (!table) return table.error();
  auto topology = fabric::from_csv(*table, *path);
  if (!topology) return topology.error();
  return dcqcn_of_hpcc(host_bits_per_second(*topology));
}

}  // namespace

std::string as_member(std::string_view member) { return std::string(member); }

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"incast",
       "All to one at once",
       "1MB",
       {{"pattern", "incast"}, {"receiver", std::int64_t{0}}}},
      {"permutation", "Each host to one other", "1MB", {{"pattern", "permutation"}}},
      {"all-to-all", "All to all, in rounds", "64KB", {{"pattern", "all-to-all"}}},
      {"ring-all-reduce", "A ring all-reduce", "4MB", {{"pattern", "ring-all-reduce"}}},
      {"web-search",
       "Web search's flows at half load, for 1 ms",
       "",
       {{"pattern", "poisson"}, {"sizes", "web-search"}, {"load", 0.5}, {"duration", "1ms"}}}};
  return all;
}

Result<Scenario> workload_scenario(const WorkloadOptions& options, const std::string& folder,
                                   const Spelling& spelling) {
  return Choice(options, folder, spelling).scenario();
}

Result<Scenario> tables_scenario(const TableOptions& options, const Spelling& spelling) {
  auto keys = keys_of_tables("topology", options.topology, "flows", options.flows, spelling);
  if (!keys) return keys.error();
  keys->insert("fabric", toml::table{{"kind", options.is_infiniband ? "infiniband" : "roce"}});
  if (options.has_dcqcn_of_hpcc) {
    auto congestion = dcqcn_for(options.topology);
    if (!congestion) return congestion.error();
    (*keys)["fabric"].as_table()->insert("ecn", toml::table{});
    keys->insert("congestion", std::move(*congestion));
  }
  return Scenario::of({std::move(*keys)},
                      fmt::format("{} and {}", spelling("topology"), spelling("flows")), "",
                      options.set, options.overrides);
}

}  // namespace tulle::scenario
