#include "ranks/bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/near_names.h"
#include "base/quoted.h"
#include "ranks/median.h"
#include "study/report/quantity.h"

namespace tulle::ranks {
namespace {

using workload::CollectiveSettings;

// More would be silent for long while a rank fills its buffer.
constexpr std::uint64_t bytes_max = std::uint64_t{4} << 30;

std::vector<std::string_view> names_of_collectives() {
  std::vector<std::string_view> names;
  for (const auto& each : workload::named_collectives()) names.push_back(each.name);
  return names;
}

Result<workload::Collective> collective_of(std::string_view name) {
  const auto named =
      std::ranges::find(workload::named_collectives(), name, &workload::NamedCollective::name);
  if (named == workload::named_collectives().end()) {
    return Error{fmt::format("no collective {}{}", tulle::quoted(name),
                             did_you_mean(name, names_of_collectives(),
                                          fmt::format("the collectives are {}",
                                                      fmt::join(names_of_collectives(), ", "))))};
  }
  return named->collective;
}

Result<void> read_algorithm(const std::string& name, const Spelling& spell,
                            CollectiveSettings& settings) {
  if (name.empty()) return {};
  const auto found = std::ranges::find(workload::algorithm_names, name);
  if (found == workload::algorithm_names.end()) {
    const std::string all =
        fmt::format("the algorithms are {}", fmt::join(workload::algorithm_names, ", "));
    return Error{fmt::format("{}: no algorithm {}{}", spell("algorithm"), tulle::quoted(name),
                             did_you_mean(name, workload::algorithm_names, all))};
  }
  settings.algorithm = static_cast<workload::Algorithm>(found - workload::algorithm_names.begin());
  return {};
}

Result<void> read_ranks(const BenchOptions& options, const Spelling& spell,
                        CollectiveSettings& settings) {
  if (options.ranks < 2 || options.ranks > ranks_max) {
    return Error{fmt::format("{}: must be 2 to {}", spell("ranks"), ranks_max)};
  }
  const std::uint32_t per_server = options.per_server == 0 ? options.ranks : options.per_server;
  if (options.ranks % per_server != 0) {
    return Error{fmt::format("{}: {} ranks do not fill servers of {}", spell("per_server"),
                             options.ranks, per_server)};
  }
  if (options.rank && *options.rank >= options.ranks) {
    return Error{fmt::format("{}: must be below {}", spell("rank"), options.ranks)};
  }
  settings.servers.servers = options.ranks / per_server;
  settings.servers.gpus = per_server;
  return {};
}

// Returns an error for an option that the algorithm does not use.
Result<void> check_use(const BenchOptions& options, const Spelling& spell,
                       const CollectiveSettings& settings) {
  using workload::Algorithm;
  const Algorithm algorithm = workload::algorithm_of(settings);
  const bool is_chain = settings.collective == workload::Collective::broadcast;
  const bool has_channels = algorithm == Algorithm::ring || algorithm == Algorithm::tree;
  const std::tuple<const char*, bool, bool> all[] = {
      {"per_server", options.per_server != 0, has_channels || algorithm == Algorithm::hierarchical},
      {"channels", options.channels.has_value(), has_channels},
      {"chunk", !options.chunk.empty(), algorithm == Algorithm::tree || is_chain}};
  for (const auto& [member, is_given, is_used] : all) {
    if (!is_given || is_used) continue;
    return Error{fmt::format("{} has no effect on {} by {}: leave it out", spell(member),
                             workload::name_of(settings.collective), workload::name_of(algorithm))};
  }
  return {};
}

Result<CollectiveSettings> read_settings(const BenchOptions& options, const Spelling& spell) {
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
  const auto chunk = report::parse_bytes(options.chunk.empty() ? "512KiB" : options.chunk);
  if (!chunk || *chunk == 0 || *chunk % sizeof(float) != 0) {
    return Error{fmt::format("{}: must be a multiple of {} B", spell("chunk"), sizeof(float))};
  }
  settings.chunk_bytes = *chunk;
  if (auto right = read_ranks(options, spell, settings); !right) return right.error();
  if (auto right = read_algorithm(options.algorithm, spell, settings); !right) return right.error();
  settings.channels = options.channels.value_or(1);
  const std::uint64_t unit = workload::piece_unit(settings, sizeof(float));
  settings.bytes = (*bytes + unit - 1) / unit * unit;
  if (auto right = check_use(options, spell, settings); !right) return right.error();
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

// Times in seconds, and rates in GB/s.
struct Medians {
  double seconds = 0;
  double processor = 0;
  double algbw = 0;
  double busbw = 0;
};

Medians medians_of(const Bench& bench, const Times& times) {
  Medians medians;
  medians.seconds = median_of(times.seconds);
  medians.processor = median_of(times.processor_seconds);
  medians.algbw = static_cast<double>(bench.settings.bytes) / medians.seconds * 1e-9;
  medians.busbw = medians.algbw * workload::bus_factor(bench.settings.collective, bench.ranks);
  return medians;
}

}  // namespace

Result<Bench> make_bench(const BenchOptions& options, const Spelling& spell) {
  auto settings = read_settings(options, spell);
  if (!settings) return settings.error();
  auto plan = make_plan(options, *settings);
  if (!plan) return plan.error();
  return Bench{std::move(*plan), *settings, options.ranks, number_of(options, *settings)};
}

std::string bench_json(const Bench& bench, const Times& times) {
  const Medians medians = medians_of(bench, times);
  const auto [least, most] = std::ranges::minmax(times.seconds);
  const nlohmann::ordered_json json = {
      {"collective", workload::name_of(bench.settings.collective)},
      {"algorithm", workload::name_of(workload::algorithm_of(bench.settings))},
      {"ranks", bench.ranks},
      {"channels", bench.settings.channels},
      {"bytes", bench.settings.bytes},
      {"iterations", bench.plan.iterations},
      {"time_us", medians.seconds * 1e6},
      {"time_us_min", least * 1e6},
      {"time_us_max", most * 1e6},
      {"processor_us", medians.processor * 1e6},
      {"algbw_gb_per_s", medians.algbw},
      {"busbw_gb_per_s", medians.busbw},
      {"wrong", times.wrong}};
  return json.dump(2) + "\n";
}

std::string bench_text(const Bench& bench, const Times& times) {
  const Medians medians = medians_of(bench, times);
  std::string text = fmt::format(
      "# {} by {} among {} ranks, medians of {} iterations, {:.0f} us of processors each\n",
      workload::name_of(bench.settings.collective),
      workload::name_of(workload::algorithm_of(bench.settings)), bench.ranks, bench.plan.iterations,
      medians.processor * 1e6);
  text += fmt::format("#{:>12} {:>12} {:>7} {:>10} {:>8} {:>8} {:>7}\n", "size", "count", "type",
                      "time", "algbw", "busbw", "#wrong");
  text += fmt::format("#{:>12} {:>12} {:>7} {:>10} {:>8} {:>8}\n", "(B)", "(elements)", "", "(us)",
                      "(GB/s)", "(GB/s)");
  return text + fmt::format("{:>13} {:>12} {:>7} {:>10.1f} {:>8.2f} {:>8.2f} {:>7}\n",
                            bench.settings.bytes, bench.settings.bytes / sizeof(float), "float",
                            medians.seconds * 1e6, medians.algbw, medians.busbw, times.wrong);
}

}  // namespace tulle::ranks
