#include "study/scenario/fabrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/near_names.h"
#include "base/quoted.h"
#include "base/split.h"
#include "study/report/quantity.h"
#include "study/scenario/document.h"
#include "study/scenario/job_keys.h"
#include "study/scenario/reading.h"
#include "study/scenario/tables.h"
#include "study/workload/csv.h"
#include "study/workload/experts.h"

namespace tulle::scenario {
namespace {

namespace fs = std::filesystem;

// Replaces the names of profiles next to a fabric by their paths, wherever the scenario comes from.
// Others are looked up when the fabric is built.
void name_profiles(toml::table& keys, const fs::path& folder) {
  for (const auto& [table, profiles] : {std::pair{"host", "hosts"}, {"fabric", "switches"}}) {
    toml::value<std::string>* name = keys[table]["profile"].as_string();
    if (name == nullptr || (*name)->empty()) continue;
    std::error_code error;
    const fs::path path = fs::absolute(folder / profiles / **name, error);
    if (fs::exists(path.string() + ".toml", error)) *name = path.string();
  }
}

// --- workloads ----------------------------------------------------------------------------------

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

  std::string text() const { return count > 1 ? fmt::format("planes = {}\n", count) : ""; }
  // Returns the rate for people, as in "800Gbps by 4 planes".
  std::string words() const {
    return count > 1 ? fmt::format("{} by {} planes", rate, count) : rate;
  }
};

// The options were checked.
Result<Planes> planes_of(const WorkloadOptions& options, const char* usual_rate) {
  constexpr std::uint32_t planes_max = 16;
  Planes planes;
  planes.rate = planes.link_rate = options.link_rate.empty() ? usual_rate : options.link_rate;
  planes.count = options.planes.value_or(1);
  if (planes.count < 1 || planes.count > planes_max) {
    return Error{fmt::format("--planes: must be 1 to {}", planes_max)};
  }
  const std::int64_t rate = *report::parse_rate(planes.rate);
  if (rate % planes.count != 0) {
    return Error{fmt::format("--planes: {} cannot be split over {} planes evenly", planes.rate,
                             planes.count)};
  }
  if (planes.count > 1) planes.link_rate = fmt::format("{}bps", rate / planes.count);
  return planes;
}

Result<std::string> topology_text(std::uint32_t hosts, const Planes& planes) {
  constexpr std::uint32_t hosts_max = 65'536;
  if (hosts < 2 || hosts > hosts_max) {
    return Error{fmt::format("--hosts: must be 2 to {}", hosts_max)};
  }
  const auto per_leaf = hosts_per_leaf(hosts);
  if (!per_leaf) {
    return Error{fmt::format("--hosts: {} cannot be dealt over leaf switches evenly; take {} or {}",
                             hosts, hosts - 1, hosts + 1)};
  }
  // 20 m of cable, at 5 ns/m.
  const std::string links = fmt::format("link_rate = {}\nlink_delay = \"100ns\"\n{}",
                                        toml_text(planes.link_rate), planes.text());
  if (*per_leaf == hosts) {
    return fmt::format("[topology]\nkind = \"single-switch\"\nhosts = {}\n{}", hosts, links);
  }
  return fmt::format(
      "[topology]\nkind = \"leaf-spine\"\nleaves = {}\nspines = {}\nhosts_per_leaf = {}\n{}",
      hosts / *per_leaf, *per_leaf, *per_leaf, links);
}

std::string topology_words(std::uint32_t hosts, const std::string& link_rate) {
  const std::uint32_t per_leaf = hosts_per_leaf(hosts).value_or(hosts);
  if (per_leaf == hosts) return fmt::format("{} hosts at one switch, {}", hosts, link_rate);
  return fmt::format("{} hosts, {} leaves and {} spines, {}", hosts, hosts / per_leaf, per_leaf,
                     link_rate);
}

Result<void> refuse_topology(const WorkloadOptions& options) {
  if (options.topology.empty()) return {};
  return Error{
      "--topology: goes with a table of flows, --workload FILE.csv, or with a job of GPUs"};
}

Result<void> check_quantities(const WorkloadOptions& options) {
  if (!options.bytes.empty() && !report::parse_bytes(options.bytes)) {
    return Error{fmt::format("--bytes: must be an amount such as 64KB, in {}", report::byte_units)};
  }
  if (!options.link_rate.empty() && !report::parse_rate(options.link_rate)) {
    return Error{
        fmt::format("--link-rate: must be a rate such as 400Gbps, in {}", report::rate_units)};
  }
  return {};
}

Result<Scenario> from_name(const Workload& workload, const WorkloadOptions& options,
                           const std::string& folder) {
  if (auto right = refuse_topology(options); !right) return right.error();
  if (!options.bytes.empty() && workload.bytes.empty()) {
    return Error{fmt::format("--bytes: {} draws its sizes", workload.name)};
  }
  if (auto right = check_quantities(options); !right) return right.error();
  const std::uint32_t hosts = options.hosts.value_or(64);
  auto planes = planes_of(options, "200Gbps");
  if (!planes) return planes.error();
  const std::string bytes = options.bytes.empty() ? std::string(workload.bytes) : options.bytes;
  auto topology = topology_text(hosts, *planes);
  if (!topology) return topology.error();
  std::string title(workload.title);
  if (!bytes.empty()) title += ", " + bytes;
  title += ": " + topology_words(hosts, planes->words());
  std::string text = fmt::format("title = {}\nseed = {}\n{}[traffic]\n{}", toml_text(title),
                                 options.seed.value_or(1), *topology, workload.traffic);
  if (!bytes.empty()) text += fmt::format("bytes = {}\n", toml_text(bytes));
  return Scenario::parse(text, fmt::format("--workload {}", workload.name), folder, options.set);
}

// --- collectives --------------------------------------------------------------------------------

constexpr std::string_view usual_servers = "dgx-h100";

// Returns the GPUs and adapters of a server's profile.
struct ServerShape {
  std::uint32_t gpus = 1;
  std::uint32_t adapters = 1;
};
Result<ServerShape> read_server_shape(const std::string& path) {
  auto text = read_file(path);
  if (!text) return Error{fmt::format("--servers: {}", text.error().message)};
  auto root = parse_toml(*text, path);
  if (!root) return root.error();
  const auto number = [&](const char* key) {
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>((*root)[key].value_or(std::int64_t{1}), 1, 1'024));
  };
  return ServerShape{number("gpus"), number("adapters")};
}

// Returns a network that never blocks: the adapters of one number in up to 32 servers share a leaf
// switch, and each leaf has as many spines as servers.
std::string rails_text(std::string_view kind, std::uint32_t servers, std::uint32_t adapters,
                       const Planes& planes) {
  constexpr std::uint32_t leaf_servers = 32;
  const std::uint32_t group = std::min(servers, leaf_servers);
  return fmt::format(
      "[topology]\nkind = {}\nservers = {}\nrails = {}\nservers_per_group = {}\n"
      "spines = {}\nlink_rate = {}\nlink_delay = \"100ns\"\n{}",
      toml_text(kind), servers, adapters, group, group, toml_text(planes.link_rate), planes.text());
}

Result<std::string_view> rails_kind(const WorkloadOptions& options) {
  if (options.topology.empty()) return rail_topologies.front();
  const auto found = std::ranges::find(rail_topologies, options.topology);
  if (found != rail_topologies.end()) return *found;
  return Error{fmt::format("--topology: a job's is {}, and not {}",
                           fmt::join(rail_topologies, " or "), tulle::quoted(options.topology))};
}

// The title of a job of GPUs, or of several; the table [traffic] of their scenario; and the tables
// behind it.
struct JobText {
  std::string title;
  std::string traffic;
  std::string more;
};

Result<Scenario> from_job(const JobText& job, const WorkloadOptions& options,
                          const std::string& folder) {
  auto kind = rails_kind(options);
  if (!kind) return kind.error();
  if (options.hosts) return Error{"--hosts: a job runs on --gpus"};
  if (!options.bytes.empty()) {
    return Error{"--bytes: a collective has its bytes behind a colon, as in allreduce:256MiB"};
  }
  if (auto right = check_quantities(options); !right) return right.error();
  const std::string servers =
      options.servers.empty() ? std::string(usual_servers) : options.servers;
  auto found = servers.ends_with(".toml")
                   ? find_file("", servers)
                   : find_named(folder, "profiles/servers", servers, "profile");
  if (!found) return Error{"--servers: " + found.error().message};
  const fs::path path = fs::absolute(*found);
  auto shape = read_server_shape(path.string());
  if (!shape) return shape.error();
  const std::uint32_t gpus = options.gpus.value_or(64);
  constexpr std::uint32_t gpus_max = 65'536;
  if (gpus < 2 || gpus > gpus_max || gpus % shape->gpus != 0) {
    return Error{fmt::format("--gpus: {} do not fill servers of {}: take a multiple, from 2 to {}",
                             gpus, shape->gpus, gpus_max)};
  }
  auto planes = planes_of(options, "400Gbps");
  if (!planes) return planes.error();
  const std::uint32_t count = gpus / shape->gpus;
  std::string title =
      fmt::format("{}: {} GPUs in {} server{} ({}), {} adapters of {} each{}", job.title, gpus,
                  count, count == 1 ? "" : "s", path.stem().string(), shape->adapters,
                  planes->words(), *kind == rail_topologies.front() ? "" : ", rails apart");
  if (options.storage > 0) {
    title +=
        fmt::format(", and {} storage server{}", options.storage, options.storage == 1 ? "" : "s");
  }
  const std::string text =
      fmt::format("title = {}\nseed = {}\n{}{}servers = {{ profile = {} }}\n{}", toml_text(title),
                  options.seed.value_or(1),
                  rails_text(*kind, count + options.storage, shape->adapters, *planes), job.traffic,
                  toml_text((path.parent_path() / path.stem()).string()), job.more);
  return Scenario::parse(text, fmt::format("--workload {}", one_line(options.workload)), folder,
                         options.set);
}

constexpr char storage_is_of_a_step[] =
    "--storage: goes with one training step, whose checkpoints these servers store";

// The key of a job that --algorithm sets; empty if its kind has none.
std::string_view algorithm_key(const JobKeys& job) {
  const std::string_view pattern = job.keys.front().second;
  return pattern == "collective" ? "algorithm" : pattern == "experts" ? "route" : "";
}

std::string text_of(const JobKeys& job) {
  std::string text;
  for (const auto& [key, value] : job.keys) text += fmt::format("{} = {}\n", key, toml_text(value));
  return text;
}

// More keys of a job come from `--set traffic.KEY=…`.
Result<Scenario> from_one_job(const JobKeys& job, const WorkloadOptions& options,
                              const std::string& folder) {
  const std::string_view key = algorithm_key(job);
  if (!options.algorithm.empty() && key.empty()) {
    return Error{"--algorithm: goes with a collective"};
  }
  const auto& routes = workload::expert_route_names;
  if (!options.algorithm.empty() && key == "route" &&
      std::ranges::find(routes, options.algorithm) == routes.end()) {
    return Error{fmt::format("--algorithm: tokens go {}", fmt::join(routes, " or "))};
  }
  if (!options.protocol.empty() && key != "algorithm") {
    return Error{"--protocol: goes with a collective"};
  }
  std::string traffic = "[traffic]\n" + text_of(job);
  if (!options.protocol.empty()) {
    traffic += fmt::format("protocol = {}\n", toml_text(options.protocol));
  }
  if (!options.algorithm.empty()) {
    traffic += fmt::format("{} = {}\n", key, toml_text(options.algorithm));
  }
  if (options.storage > 0) {
    traffic += fmt::format("checkpoint = {{ storage = {} }}\n", options.storage);
  }
  return from_job({job.title, traffic, ""}, options, folder);
}

// These options become parts of a scenario, and TOML is UTF-8.
Result<void> check_texts(const WorkloadOptions& options) {
  const std::array<std::pair<const char*, const std::string*>, 6> texts = {
      {{"--servers", &options.servers},
       {"--placement", &options.placement},
       {"--algorithm", &options.algorithm},
       {"--protocol", &options.protocol},
       {"--bytes", &options.bytes},
       {"--link-rate", &options.link_rate}}};
  for (const auto& [option, text] : texts) {
    if (is_utf8(*text)) continue;
    return Error{fmt::format("{}: {} is not UTF-8; save it again as UTF-8, or rename the file",
                             option, tulle::quoted(*text))};
  }
  return {};
}

// Returns the whole path of a file.
Result<std::string> path_in_text(const char* option, const std::string& file) {
  const std::string path = fs::absolute(file).string();
  if (is_utf8(path)) return path;
  return Error{
      fmt::format("{}: the path {} is not UTF-8; rename the file or its folders, or link to it",
                  option, tulle::quoted(path))};
}

// Returns the keys of a job that an option names, with whole paths.
Result<std::optional<JobKeys>> job_of_option(const std::string& workload,
                                             const std::string& folder) {
  std::error_code error;
  const fs::path models = fs::absolute(fs::path(folder) / "models", error);
  auto keys = keys_of_job(workload, {models, fs::current_path(error), true});
  if (!keys) return Error{"--workload: " + keys.error().message};
  if (!*keys) return keys;
  for (const auto& [key, value] : (*keys)->keys) {
    if (is_utf8(value)) continue;
    if (auto path = path_in_text("--workload", workload); !path) return path.error();
  }
  return keys;
}

// Returns the scenario of several jobs side by side, each with its own GPUs.
Result<Scenario> from_jobs(const WorkloadOptions& options, const std::string& folder) {
  if (!options.algorithm.empty() || !options.protocol.empty()) {
    return Error{fmt::format("{}: goes with one job; write a scenario with [[jobs]] for several",
                             options.algorithm.empty() ? "--protocol" : "--algorithm")};
  }
  std::vector<JobOption> all = {{options.workload, options.gpus}};
  all.insert(all.end(), options.others.begin(), options.others.end());
  WorkloadOptions together = options;
  std::string title, jobs;
  std::vector<std::string> names;
  std::uint64_t gpus = 0;
  for (const JobOption& each : all) {
    auto job = job_of_option(each.workload, folder);
    if (!job) return job.error();
    if (!*job) {
      return Error{fmt::format("--workload: {} is no job, and several workloads are jobs: {}",
                               tulle::quoted(each.workload), job_names())};
    }
    if (!each.gpus) return Error{"--gpus: is needed once for each --workload"};
    gpus += *each.gpus;
    title += fmt::format("{}{} on {} GPUs", title.empty() ? "" : "; ", (*job)->title, *each.gpus);
    std::string name = one_line(fs::path(each.workload).filename().string());
    if (std::ranges::find(names, name) != names.end()) {
      name += fmt::format(" #{}", names.size() + 1);
    }
    names.push_back(name);
    jobs += fmt::format("[[jobs]]\nname = {}\n{}gpus = {}\n", toml_text(name), text_of(**job),
                        *each.gpus);
    if (!options.placement.empty()) {
      jobs += fmt::format("placement = {}\n", toml_text(options.placement));
    }
  }
  together.gpus = static_cast<std::uint32_t>(std::min<std::uint64_t>(gpus, 1u << 31));
  return from_job({title, "[traffic]\n", jobs}, together, folder);
}

Result<void> check_gpu_options(const WorkloadOptions& options) {
  const char* given = options.gpus                 ? "--gpus"
                      : !options.servers.empty()   ? "--servers"
                      : !options.algorithm.empty() ? "--algorithm"
                      : !options.protocol.empty()  ? "--protocol"
                                                   : nullptr;
  if (given == nullptr) return {};
  return Error{fmt::format("{}: goes with a job of GPUs, such as allreduce:256MiB", given)};
}

Result<void> check_file_options(const WorkloadOptions& options) {
  const char* given = options.hosts                ? "--hosts"
                      : !options.bytes.empty()     ? "--bytes"
                      : !options.link_rate.empty() ? "--link-rate"
                      : options.planes             ? "--planes"
                                                   : nullptr;
  if (given == nullptr) return {};
  return Error{fmt::format("{}: goes with a named workload; change a file's with --set", given)};
}

Result<Scenario> from_flows(const WorkloadOptions& options) {
  if (options.topology.empty()) {
    return Error{fmt::format("--workload {}: a table of flows needs --topology, a table of links",
                             one_line(options.workload))};
  }
  auto tables =
      scenario_of_tables({"--topology", options.topology}, {"--workload", options.workload});
  if (!tables) return tables.error();
  const std::string text = fmt::format("seed = {}\n{}", options.seed.value_or(1), *tables);
  return Scenario::parse(text, "tulle compare", "", options.set);
}

Result<Scenario> from_file(const WorkloadOptions& options) {
  if (auto right = check_file_options(options); !right) return right.error();
  if (options.workload.ends_with(".csv")) return from_flows(options);
  if (auto right = refuse_topology(options); !right) return right.error();
  std::vector<std::string> set = options.set;
  if (options.seed) set.insert(set.begin(), fmt::format("seed = {}", *options.seed));
  auto path = find_file("", options.workload);
  if (!path) return Error{"--workload: " + path.error().message};
  return Scenario::read(*path, set);
}

}  // namespace

Result<Fabric> parse_fabric(std::string_view text, const std::string& file) {
  const fs::path path(file);
  Fabric fabric;
  fabric.name = path.stem().string();
  auto root = parse_toml(text, file);
  if (!root) return root.error();
  Findings findings(file);
  TableReader reader({&*root}, "", 0, findings);
  fabric.title = reader.text("title", "");
  fabric.sources = reader.text("sources", "");
  fabric.by_default = reader.boolean("default", false);
  fabric.one_plane = reader.boolean("one_plane", false);
  for (const char* table : {"fabric", "host", "congestion", "routing", "recovery"}) {
    reader.table(table);
  }
  if (fabric.title.empty()) findings.add(0, "title", "is needed, for people");
  reader.finish();
  if (findings.any()) return Error{findings.first()};
  for (const std::string_view key : {"title", "sources", "default", "one_plane"}) root->erase(key);
  name_profiles(*root, path.parent_path().parent_path() / "profiles");
  fabric.keys = std::make_shared<const FabricKeys>(FabricKeys{std::move(*root)});
  return fabric;
}

Result<std::vector<Fabric>> read_fabrics(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path());
  }
  if (paths.empty()) return Error{fmt::format("{}: there are no fabrics", folder)};
  std::ranges::sort(paths, {}, [](const fs::path& path) { return path.stem(); });
  std::vector<Fabric> fabrics;
  for (const fs::path& path : paths) {
    auto text = read_file(path.string());
    if (!text) return text.error();
    auto fabric = parse_fabric(*text, path.string());
    if (!fabric) return fabric.error();
    fabrics.push_back(std::move(*fabric));
  }
  return fabrics;
}

namespace {

Result<Fabric> fabric_in_file(const std::string& file) {
  auto path = find_file("", file);
  if (!path) return path.error();
  auto text = read_file(*path);
  if (!text) return text.error();
  return parse_fabric(*text, *path);
}

Result<Fabric> fabric_named(const std::vector<Fabric>& fabrics, const std::string& name) {
  const auto found = std::ranges::find(fabrics, name, &Fabric::name);
  if (found != fabrics.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(fabrics.size());
  for (const Fabric& fabric : fabrics) names.push_back(fabric.name);
  const std::string all = fmt::format("the fabrics are {}, and all", fmt::join(names, ", "));
  return Error{fmt::format("no fabric {}{}", tulle::quoted(name), did_you_mean(name, names, all))};
}

}  // namespace

Result<std::vector<Fabric>> choose_fabrics(const std::vector<Fabric>& fabrics,
                                           const std::string& names, std::uint32_t planes) {
  if (names == "all") return fabrics;
  std::vector<Fabric> chosen;
  if (names.empty()) {
    std::ranges::copy_if(fabrics, std::back_inserter(chosen), [&](const Fabric& fabric) {
      return fabric.by_default && fabric.goes_with(planes);
    });
    return chosen;
  }
  for (const std::string_view part : split(names, ',')) {
    const std::string name(workload::trimmed(part));
    auto fabric = name.ends_with(".toml") ? fabric_in_file(name) : fabric_named(fabrics, name);
    if (!fabric) return Error{"--fabrics: " + fabric.error().message};
    if (std::ranges::find(chosen, fabric->name, &Fabric::name) != chosen.end()) {
      return Error{fmt::format("--fabrics: {} is there twice", fabric->name)};
    }
    chosen.push_back(std::move(*fabric));
  }
  return chosen;
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"incast", "All to one at once", "1MB", "pattern = \"incast\"\nreceiver = 0\n"},
      {"permutation", "Everyone to one other", "1MB", "pattern = \"permutation\"\n"},
      {"all-to-all", "All to all, in rounds", "64KB", "pattern = \"all-to-all\"\n"},
      {"ring-all-reduce", "A ring all-reduce", "4MB", "pattern = \"ring-all-reduce\"\n"},
      {"web-search", "Web search's flows at half load, for 1 ms", "",
       "pattern = \"poisson\"\nsizes = \"web-search\"\nload = 0.5\nduration = \"1ms\"\n"}};
  return all;
}

std::vector<std::pair<std::string, std::string>> titles_in(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> profiles;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".toml") continue;
    const std::string path = entry.path().string();
    auto text = read_file(path);
    auto root = text ? parse_toml(*text, path) : Result<toml::table>(text.error());
    if (root) {
      profiles.emplace_back(entry.path().stem().string(), (*root)["title"].value_or(std::string()));
    }
  }
  std::ranges::sort(profiles);
  return profiles;
}

namespace {

std::string no_such_workload(const std::string& typed) {
  std::vector<std::string_view> names;
  for (const Workload& workload : workloads()) names.push_back(workload.name);
  const std::string all =
      fmt::format("the workloads are {}; {}; and files: a scenario's .toml, or a .csv of flows",
                  fmt::join(names, ", "), job_names());
  for (const NamedCollective& each : collectives()) names.push_back(each.name);
  // What comes before a colon is the workload's name: alreduce:256MiB.
  const std::string name = typed.substr(0, typed.find(':'));
  return fmt::format("--workload: no workload {}{}", tulle::quoted(typed),
                     did_you_mean(name, names, all));
}

}  // namespace

Result<Scenario> workload_scenario(const WorkloadOptions& given, const std::string& folder) {
  if (auto right = check_texts(given); !right) return right.error();
  WorkloadOptions options = given;
  if (!options.prices.empty()) {
    if (auto named = path_in_text("--prices", options.prices); !named) return named.error();
    auto found = find_named_or_file("", "prices", options.prices, "price list");
    if (!found) return Error{"--prices: " + found.error().message};
    auto path = path_in_text("--prices", *found);
    if (!path) return path.error();
    options.set.push_back(fmt::format("prices = {}", toml_text(*path)));
  }
  if (options.storage > 0 && (!options.others.empty() || !options.workload.starts_with("step:"))) {
    return Error{storage_is_of_a_step};
  }
  if (!options.others.empty()) return from_jobs(options, folder);
  if (!options.placement.empty()) {
    return Error{"--placement: goes with several jobs, each a --workload with its --gpus"};
  }
  const auto known = std::ranges::find(workloads(), options.workload, &Workload::name);
  if (known == workloads().end()) {
    auto job = job_of_option(options.workload, folder);
    if (!job) return job.error();
    if (*job) return from_one_job(**job, options, folder);
  }
  const bool is_file = options.workload.ends_with(".toml") || options.workload.ends_with(".csv");
  if (auto right = check_gpu_options(options); !right) return right.error();
  if (known != workloads().end()) return from_name(*known, options, folder);
  if (is_file) return from_file(options);
  return Error{no_such_workload(options.workload)};
}

}  // namespace tulle::scenario
