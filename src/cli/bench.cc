// `tulle bench`: runs a collective live among processes.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/near_names.h"
#include "base/quoted.h"
#include "cli/group.h"
#include "cli/simulations.h"
#include "ranks/launch.h"
#include "study/report/quantity.h"
#include "study/scenario/fabrics.h"

namespace tulle::cli {
namespace {

using ranks::Plan;
using workload::CollectiveSettings;

// More would be silent for long while a rank fills its buffer.
constexpr std::uint64_t bytes_max = std::uint64_t{4} << 30;

std::vector<std::string_view> names_of_collectives() {
  std::vector<std::string_view> names;
  for (const auto& each : scenario::collectives()) names.push_back(each.name);
  return names;
}

Result<workload::Collective> collective_of(std::string_view name) {
  const auto named =
      std::ranges::find(scenario::collectives(), name, &scenario::NamedCollective::name);
  if (named == scenario::collectives().end()) {
    return Error{fmt::format("no collective {}{}", tulle::quoted(name),
                             did_you_mean(name, names_of_collectives(),
                                          fmt::format("the collectives are {}",
                                                      fmt::join(names_of_collectives(), ", "))))};
  }
  const auto found = std::ranges::find(workload::collective_names, named->collective);
  return static_cast<workload::Collective>(found - workload::collective_names.begin());
}

Result<void> read_algorithm(const std::string& name, CollectiveSettings& settings) {
  if (name.empty()) return {};
  const auto found = std::ranges::find(workload::algorithm_names, name);
  if (found == workload::algorithm_names.end()) {
    const std::string all =
        fmt::format("the algorithms are {}", fmt::join(workload::algorithm_names, ", "));
    return Error{fmt::format("--algorithm: no algorithm {}{}", tulle::quoted(name),
                             did_you_mean(name, workload::algorithm_names, all))};
  }
  settings.algorithm = static_cast<workload::Algorithm>(found - workload::algorithm_names.begin());
  return {};
}

Result<void> read_ranks(const BenchOptions& options, CollectiveSettings& settings) {
  if (options.ranks < 2 || options.ranks > ranks::ranks_max) {
    return Error{fmt::format("--ranks: must be 2 to {}", ranks::ranks_max)};
  }
  const std::uint32_t per_server = options.per_server == 0 ? options.ranks : options.per_server;
  if (options.ranks % per_server != 0) {
    return Error{
        fmt::format("--per-server: {} ranks do not fill servers of {}", options.ranks, per_server)};
  }
  if (options.rank && *options.rank >= options.ranks) {
    return Error{fmt::format("--rank: must be below {}", options.ranks)};
  }
  settings.servers.servers = options.ranks / per_server;
  settings.servers.gpus = per_server;
  return {};
}

Result<CollectiveSettings> read_settings(const BenchOptions& options) {
  CollectiveSettings settings;
  const std::size_t colon = options.collective.find(':');
  auto collective = collective_of(options.collective.substr(0, colon));
  if (!collective) return collective.error();
  settings.collective = *collective;
  const std::string size =
      colon == std::string::npos ? "64MiB" : options.collective.substr(colon + 1);
  const auto bytes = report::parse_bytes(size);
  if (!bytes || *bytes == 0 || *bytes > bytes_max) {
    return Error{fmt::format("{} is no amount of 1 B to {}, as in allreduce:64MiB",
                             tulle::quoted(size),
                             report::bytes_text(static_cast<double>(bytes_max)))};
  }
  const auto chunk = report::parse_bytes(options.chunk);
  if (!chunk || *chunk == 0 || *chunk % sizeof(float) != 0) {
    return Error{fmt::format("--chunk: must be a multiple of {} B", sizeof(float))};
  }
  settings.chunk_bytes = *chunk;
  if (auto right = read_ranks(options, settings); !right) return right.error();
  if (auto right = read_algorithm(options.algorithm, settings); !right) return right.error();
  settings.channels = options.channels;
  const std::uint64_t unit = workload::piece_unit(settings, sizeof(float));
  settings.bytes = (*bytes + unit - 1) / unit * unit;
  return settings;
}

Result<Plan> make_plan(const BenchOptions& options, const CollectiveSettings& settings) {
  Plan plan;
  auto graph = workload::make_collective(settings, &plan.pieces);
  if (!graph) return graph.error();
  if (auto right = graph->check(); !right) return right.error();
  plan.graph = std::move(*graph);
  plan.buffer_bytes = settings.bytes;
  plan.collective = settings.collective;
  plan.has_second_buffer = settings.collective == workload::Collective::all_to_all;
  plan.iterations = options.iterations;
  plan.warm_up = options.warm_up;
  struct sysinfo machine {};
  const std::uint64_t here = options.meet.empty() ? options.ranks : 1;
  if (sysinfo(&machine) == 0 && plan.memory_bytes() * here > machine.totalram * machine.mem_unit) {
    return Error{fmt::format("the ranks' buffers of {} each do not fit into this machine's memory",
                             report::bytes_text(static_cast<double>(plan.memory_bytes())))};
  }
  return plan;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Returns a number that differs where the command lines mean different runs (FNV-1a).
std::uint64_t number_of(const BenchOptions& options, const CollectiveSettings& settings) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {}", static_cast<int>(settings.collective),
                  options.algorithm, settings.bytes, options.ranks, settings.servers.gpus,
                  settings.channels, settings.chunk_bytes, options.iterations, options.warm_up);
  for (const char each : text) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100'0000'01B3;
  return hash;
}

void print_times(const BenchOptions& options, const CollectiveSettings& settings,
                 const ranks::Times& times) {
  const double seconds = median_of(times.seconds);
  const double processor = median_of(times.processor_seconds);
  const double algbw = static_cast<double>(settings.bytes) / seconds * 1e-9;
  const double busbw = algbw * workload::bus_factor(settings.collective, options.ranks);
  const auto algorithm = workload::algorithm_of(settings);
  const std::string_view name = workload::name_of(settings.collective);
  if (options.json) {
    const auto [least, most] = std::ranges::minmax(times.seconds);
    const nlohmann::ordered_json json = {
        {"collective", name},        {"algorithm", workload::name_of(algorithm)},
        {"ranks", options.ranks},    {"channels", settings.channels},
        {"bytes", settings.bytes},   {"iterations", options.iterations},
        {"time_us", seconds * 1e6},  {"time_us_min", least * 1e6},
        {"time_us_max", most * 1e6}, {"processor_us", processor * 1e6},
        {"algbw_gb_per_s", algbw},   {"busbw_gb_per_s", busbw},
        {"wrong", times.wrong}};
    fmt::print("{}\n", json.dump(2));
    return;
  }
  fmt::print("# {} by {} among {} ranks, medians of {} iterations, {:.0f} us of processors each\n",
             name, workload::name_of(algorithm), options.ranks, options.iterations,
             processor * 1e6);
  fmt::print("#{:>12} {:>12} {:>7} {:>10} {:>8} {:>8} {:>7}\n", "size", "count", "type", "time",
             "algbw", "busbw", "#wrong");
  fmt::print("#{:>12} {:>12} {:>7} {:>10} {:>8} {:>8}\n", "(B)", "(elements)", "", "(us)", "(GB/s)",
             "(GB/s)");
  fmt::print("{:>13} {:>12} {:>7} {:>10.1f} {:>8.2f} {:>8.2f} {:>7}\n", settings.bytes,
             settings.bytes / sizeof(float), "float", seconds * 1e6, algbw, busbw, times.wrong);
}

}  // namespace

int bench(const BenchOptions& options) {
  auto settings = read_settings(options);
  if (!settings) return fail(as_misuse(settings.error()));
  auto plan = make_plan(options, *settings);
  if (!plan) return fail(as_misuse(plan.error()));
  auto group = make_group(options.timeout_seconds);
  if (!group) return fail(group.error());
  ranks::Meeting meeting{options.meet, "", number_of(options, *settings)};
  if (const char* token = std::getenv("TULLE_BENCH_TOKEN"); token != nullptr) meeting.token = token;
  auto times = options.rank ? ranks::run_rank(*plan, *group, *options.rank, meeting)
                            : ranks::run_here(*plan, *group);
  if (!times) return fail_by_signal(times.error());
  if (times->seconds.empty()) return 0;  // another rank leads
  print_times(options, *settings, *times);
  if (times->wrong > 0) return fail(fmt::format("{} values are wrong", times->wrong));
  return 0;
}

}  // namespace tulle::cli
