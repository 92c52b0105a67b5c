// Several jobs on one network: which servers each of them has, and when it arrives.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "base/random.h"
#include "study/report/quantity.h"
#include "study/scenario/build.h"
#include "study/scenario/job_keys.h"
#include "study/workload/jobs_player.h"

namespace tulle::scenario {
namespace {

constexpr std::array<std::string_view, 3> placement_names = {"packed", "spread", "random"};
enum class Placement : std::uint8_t { packed, spread, random };

// A job of [[jobs]] before its graph is made.
struct Request {
  TableReader table;
  std::string name;
  std::size_t pattern = 0;            // index in all_job_patterns()
  std::uint32_t servers = 0;          // how many it has
  std::vector<std::uint32_t> places;  // their numbers; empty: they are to be chosen
  Placement placement = Placement::packed;
  std::uint64_t seed = 1;
  Time arrival;
};

// The servers of the cluster, and the job that has each of them.
class Cluster {
 public:
  Cluster(std::uint32_t servers, std::uint64_t seed) : job_of_(servers), random_(seed) {}

  // Returns the name of the job that has the server; nothing if none has.
  const std::optional<std::string>& job_of(std::uint32_t server) const { return job_of_[server]; }
  void give(std::uint32_t server, const std::string& job) { job_of_[server] = job; }
  std::vector<std::uint32_t> free() const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t server = 0; server < job_of_.size(); ++server) {
      if (!job_of_[server]) found.push_back(server);
    }
    return found;
  }
  // Returns some of the free servers, of which there are enough, in the order of their numbers.
  std::vector<std::uint32_t> choose(Placement placement, std::uint32_t count) {
    const std::vector<std::uint32_t> from = free();
    std::vector<std::uint32_t> chosen;
    for (std::uint64_t i = 0; i < count; ++i) {
      chosen.push_back(from[placement == Placement::spread ? i * from.size() / count : i]);
    }
    if (placement != Placement::random) return chosen;
    // Each of those that are left takes the place of a chosen one as often as of any other (Vitter
    // 1985, algorithm R).
    for (std::uint64_t i = count; i < from.size(); ++i) {
      const std::uint64_t place = random_.below(i + 1);
      if (place < count) chosen[place] = from[i];
    }
    std::ranges::sort(chosen);
    return chosen;
  }

 private:
  std::vector<std::optional<std::string>> job_of_;
  Random random_;
};

// Reads what the job does. The keys that a short name abbreviates are put under its own, and are
// kept in `derived`.
void read_workload(Request& job, std::deque<toml::table>& derived) {
  TableReader& table = job.table;
  const std::string workload = table.text("workload", "");
  job.name = workload;
  if (!workload.empty() && table.has("pattern")) {
    return table.wrong("pattern", "goes without workload, which names a pattern");
  }
  if (!workload.empty()) {
    auto keys = keys_of_job(workload, {"models", ""});
    if (!keys) return table.wrong("workload", keys.error().message);
    if (!*keys) {
      return table.wrong("workload", fmt::format("there is no {}; there are {}",
                                                 tulle::quoted(workload), job_names()));
    }
    toml::table& under = derived.emplace_back();
    for (const auto& [key, value] : (*keys)->keys) under.insert(key, value);
    table.put_under(under);
  } else if (!table.has("pattern")) {
    return table.wrong("workload", fmt::format("is needed, or pattern: {}", job_names()));
  }
  std::array<std::string_view, job_patterns> names{};
  std::ranges::transform(all_job_patterns(), names.begin(), &JobPattern::name);
  job.pattern = table.choice<std::size_t>("pattern", names, 0);
  if (job.name.empty()) job.name = names[job.pattern];
}

// Gives the job its own name, or one that tells it from those before.
void read_name(Request& job, std::size_t number, const std::deque<Request>& before) {
  const auto is_there = [&](const std::string& name) {
    return std::ranges::find(before, name, &Request::name) != before.end();
  };
  const std::string own = job.table.text("name", "");
  if (!own.empty()) job.name = own;
  if (job.name.find_first_of(",\"\r\n") != std::string::npos) {
    job.table.wrong("name", "is a column of flows.csv: it has no comma, quote or line break");
  }
  if (!is_there(job.name)) return;
  if (own.empty()) {
    job.name += fmt::format(" #{}", number + 1);
  } else {
    job.table.wrong("name", fmt::format("{} is there twice", tulle::quoted(own)));
  }
}

// Reads how many servers the job has and, if the file says so, which.
void read_servers_of(Request& job, const workload::Servers& cluster) {
  TableReader& table = job.table;
  const auto gpus = static_cast<std::uint32_t>(
      table.integer("gpus", 0, 1, std::int64_t{cluster.servers} * cluster.gpus));
  job.places = read_hosts(table, "servers", cluster.servers, "servers");
  job.placement = table.choice("placement", placement_names, Placement::packed);
  if (table.findings().any()) return;
  if (!job.places.empty() && table.has("placement")) {
    return table.wrong("placement", "cannot be used with servers, which places the job");
  }
  if (gpus == 0 && job.places.empty()) {
    return table.wrong("gpus", "is needed, or servers: a list of them");
  }
  if (gpus % cluster.gpus != 0) {
    return table.wrong(
        "gpus", fmt::format("{} do not fill servers of {}: take a multiple", gpus, cluster.gpus));
  }
  // Servers that store checkpoints come behind those that compute.
  std::uint32_t storage = 0;
  if (all_job_patterns()[job.pattern].name == "step") {
    TableReader checkpoint = table.table("checkpoint");
    storage = read_storage_servers(checkpoint);
  }
  job.servers =
      gpus == 0 ? static_cast<std::uint32_t>(job.places.size()) : gpus / cluster.gpus + storage;
  if (!job.places.empty() && job.places.size() != job.servers) {
    table.wrong("gpus", fmt::format("{} are not those of {} servers of {}{}: leave gpus out", gpus,
                                    job.places.size(), cluster.gpus,
                                    storage > 0 ? ", of which some store" : ""));
  }
}

void read_arrival(Request& job, Time stop_at) {
  job.arrival = job.table.time("arrival", Time::zero(), last_moment);
  if (job.arrival <= stop_at) return;
  job.table.wrong("arrival", fmt::format("is after stop_at, {}: the job would never begin",
                                         report::time_text(stop_at)));
}

// Places the job on servers that no other one has.
void place(Request& job, Cluster& cluster, const workload::Servers& all) {
  if (job.places.empty()) {
    const std::size_t free = cluster.free().size();
    if (job.servers > free) {
      return job.table.wrong(
          "gpus", fmt::format("the job needs {} servers of {} GPUs, but {} of {} are free: take "
                              "fewer GPUs, or a larger topology",
                              job.servers, all.gpus, free, all.servers));
    }
    job.places = cluster.choose(job.placement, job.servers);
  }
  for (const std::uint32_t server : job.places) {
    if (const auto& other = cluster.job_of(server)) {
      return job.table.wrong("servers",
                             fmt::format("server {} is there twice, in {} and in {}: a server has "
                                         "one job",
                                         server, tulle::quoted(*other), tulle::quoted(job.name)));
    }
    cluster.give(server, job.name);
  }
}

void add_job(Request& job, const JobSettings& cluster, Setup& setup) {
  workload::Servers servers = cluster.servers;
  servers.servers = job.servers;
  servers.places = job.places;
  const std::size_t before = setup.jobs.size();
  const std::size_t first_message = setup.first_parts.empty() ? 0 : setup.first_parts.size() - 1;
  all_job_patterns()[job.pattern].build(job.table, {cluster.folder, servers, job.seed}, setup);
  job.table.finish();
  if (setup.jobs.size() == before) return;
  setup.jobs.back().name = job.name;
  setup.jobs.back().arrival = job.arrival;
  setup.kinds.push_back({job.name, first_message});
}

}  // namespace

void build_jobs(std::vector<TableReader> tables, const JobSettings& cluster, Setup& setup) {
  if (tables.size() > workload::jobs_max) {
    return tables.back().wrong(
        "workload", fmt::format("is in more than {} jobs, the most of a run", workload::jobs_max));
  }
  std::deque<toml::table> derived;
  std::deque<Request> jobs;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    Findings& findings = tables[i].findings();
    if (findings.any()) return;
    Request job{std::move(tables[i]), "", 0, 0, {}, Placement::packed, 1, {}};
    read_workload(job, derived);
    read_name(job, i, jobs);
    read_servers_of(job, cluster.servers);
    read_arrival(job, setup.stop_at);
    // Jobs that are alike do not draw alike.
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    job.seed = static_cast<std::uint64_t>(
        job.table.integer("seed", static_cast<std::int64_t>((cluster.seed + i) & most), 0, most));
    if (findings.any()) return;
    jobs.push_back(std::move(job));
  }
  constexpr std::uint64_t placements = 0x9A00'0000'0000'0000;  // its own draws
  Cluster free(cluster.servers.servers, cluster.seed ^ placements);
  for (const bool is_explicit : {true, false}) {
    for (Request& job : jobs) {
      if (job.places.empty() != is_explicit) place(job, free, cluster.servers);
      if (job.table.findings().any()) return;
    }
  }
  for (Request& job : jobs) {
    add_job(job, cluster, setup);
    if (job.table.findings().any()) return;
  }
}

}  // namespace tulle::scenario
