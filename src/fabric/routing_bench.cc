#include "fabric/routing.h"

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "fabric/deadlock.h"

namespace tulle::fabric {
namespace {

Topology tree(std::uint32_t k) { return std::move(fat_tree({.k = k}).value()); }

void set_up(benchmark::State& state, RoutingKind kind) {
  const Topology topology = tree(static_cast<std::uint32_t>(state.range(0)));
  std::size_t bytes = 0;
  for ([[maybe_unused]] auto _ : state) {
    auto routes = compute_routes(topology, {.kind = kind});
    bytes = routes->bytes();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK_CAPTURE(set_up, shortest, RoutingKind::shortest)->Arg(16)->Arg(32);
BENCHMARK_CAPTURE(set_up, up_down, RoutingKind::up_down)->Arg(32);
BENCHMARK_CAPTURE(set_up, fat_tree, RoutingKind::fat_tree)->Arg(32);

// Looks up random switches and hosts, so that each look-up misses the nearest caches.
template <typename LookUp>
void look_up(benchmark::State& state, RoutingKind kind, LookUp look_up) {
  const Topology topology = tree(32);
  auto routes = compute_routes(topology, {.kind = kind});
  Random random(1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs(4096);
  for (auto& [node, host] : pairs) {
    node = topology.hosts + static_cast<std::uint32_t>(random.below(topology.switches));
    host = static_cast<std::uint32_t>(random.below(topology.hosts));
  }
  std::size_t i = 0;
  for ([[maybe_unused]] auto _ : state) {
    const auto [node, host] = pairs[i++ % pairs.size()];
    benchmark::DoNotOptimize(look_up(*routes, node, host));
  }
}
void candidates(benchmark::State& state) {
  look_up(state, RoutingKind::shortest,
          [](const Routes& routes, std::uint32_t node, std::uint32_t host) {
            return routes.candidates(node, host).front();
          });
}
BENCHMARK(candidates);
void port(benchmark::State& state) {
  look_up(state, RoutingKind::fat_tree,
          [](const Routes& routes, std::uint32_t node, std::uint32_t host) {
            return routes.port(node, host);
          });
}
BENCHMARK(port);

void deadlock(benchmark::State& state) {
  const Topology topology = tree(static_cast<std::uint32_t>(state.range(0)));
  auto routes = compute_routes(topology, {});
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(check_deadlock(topology, *routes));
}
BENCHMARK(deadlock)->Arg(16)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tulle::fabric
