#include "fabric/recovery.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "fabric/lids.h"

namespace tulle::fabric {
namespace {

// IBTA 14.2.5.10: LinearForwardingTable.
constexpr std::uint32_t entries_per_block = 64;

Time later(Time time, Time by) { return time.is_never() ? time : time + by; }

class Planner {
 public:
  Planner(const Topology& topology, const RoutingSettings& routing,
          const RecoverySettings& settings, std::vector<Outage> outages)
      : topology_(topology), routing_(routing), settings_(settings), outages_(std::move(outages)) {
    routing_.partial = true;
  }

  Result<Recovery> plan() {
    auto planned = settings_.subnet_manager ? plan_sweeps() : plan_routing();
    if (!planned) return planned.error();
    return std::move(recovery_);
  }

 private:
  // An outage that ends before it is noticed changes nothing.
  Result<void> plan_routing() {
    recovery_.outages = outages_;
    std::vector<Outage> noticed;
    for (const Outage& outage : outages_) {
      if (!is_between_switches(outage.link)) continue;
      if (later(outage.from, settings_.detection) >= outage.until) continue;
      noticed.push_back({outage.link, outage.from + settings_.detection,
                         later(outage.until, settings_.detection)});
    }
    noticed = merged(std::move(noticed));
    for (const Outage& outage : noticed) avoid(outage);
    std::ranges::stable_sort(recovery_.avoidances, {}, &PortAvoidance::at);
    for (const Time at : changes(noticed)) {
      auto version = version_without(failed_at(noticed, at));
      if (!version) return version.error();
      for (std::uint32_t node = topology_.hosts; node < topology_.nodes(); ++node) {
        recovery_.route_changes.push_back({at + settings_.routing, node, *version});
      }
    }
    return {};
  }

  Result<void> plan_sweeps() {
    std::vector<Outage> with_sweeps;
    for (const Outage& outage : outages_) {
      with_sweeps.push_back({outage.link, outage.from, active_after(outage.until)});
    }
    recovery_.outages = merged(std::move(with_sweeps));
    std::vector<Time> sweeps;
    for (const Time at : changes(outages_)) sweeps.push_back(sweep_after(at));
    sweeps.erase(std::unique(sweeps.begin(), sweeps.end()), sweeps.end());
    for (const Time sweep : sweeps) {
      auto version = version_without(failed_at(outages_, sweep));
      if (!version) return version.error();
      for (std::uint32_t i = 0; i < topology_.switches; ++i) {
        recovery_.route_changes.push_back({programmed(sweep, i), topology_.hosts + i, *version});
      }
    }
    std::ranges::stable_sort(recovery_.route_changes, {}, &RouteChange::at);
    return {};
  }

  Time sweep_after(Time change) const {
    if (settings_.traps) return change + settings_.trap_delay;
    const std::int64_t interval = settings_.sweep_interval.ps;
    return Time{(change.ps + interval - 1) / interval * interval};
  }
  // Returns the time at which the tables of a switch have been written.
  Time programmed(Time sweep, std::uint32_t index) const {
    const std::uint64_t entries = last_lid(topology_.hosts, topology_.switches, settings_.lmc) + 1;
    const auto blocks =
        static_cast<std::int64_t>((entries + entries_per_block - 1) / entries_per_block);
    return sweep + settings_.computing +
           Time{settings_.programming.ps * blocks * (std::int64_t{index} + 1)};
  }
  Time active_after(Time up) const {
    if (up.is_never() || topology_.switches == 0) return up;
    return programmed(sweep_after(up), topology_.switches - 1);
  }

  bool is_between_switches(std::uint32_t link) const {
    const Link& of = topology_.links[link];
    return !topology_.is_host(of.a) && !topology_.is_host(of.b);
  }

  void avoid(const Outage& outage) {
    const Link& link = topology_.links[outage.link];
    for (const auto& [node, port] : {std::pair{link.a, link.a_port}, {link.b, link.b_port}}) {
      recovery_.avoidances.push_back({outage.from, node, port, true});
      if (outage.until.is_never()) continue;
      recovery_.avoidances.push_back({outage.until, node, port, false});
    }
  }

  // Returns the times at which links between switches go down or come up, each time once.
  std::vector<Time> changes(const std::vector<Outage>& outages) const {
    std::vector<Time> times;
    for (const Outage& outage : outages) {
      if (!is_between_switches(outage.link)) continue;
      times.push_back(outage.from);
      if (!outage.until.is_never()) times.push_back(outage.until);
    }
    std::ranges::sort(times);
    times.erase(std::unique(times.begin(), times.end()), times.end());
    return times;
  }

  std::vector<std::uint32_t> failed_at(const std::vector<Outage>& outages, Time now) const {
    std::vector<std::uint32_t> failed;
    for (const Outage& outage : outages) {
      const bool is_down = outage.from <= now && now < outage.until;
      if (is_down && is_between_switches(outage.link)) failed.push_back(outage.link);
    }
    return failed;
  }

  Result<std::uint32_t> version_without(const std::vector<std::uint32_t>& failed) {
    if (const auto known = known_.find(failed); known != known_.end()) return known->second;
    Topology rest = topology_;
    for (auto link = failed.rbegin(); link != failed.rend(); ++link) {
      rest.links.erase(rest.links.begin() + *link);
    }
    auto routes = compute_routes(rest, routing_);
    // The rest of a tree may not be a tree. OpenSM then also takes routes that work on any
    // topology.
    if (!routes && routing_.kind == RoutingKind::fat_tree) {
      RoutingSettings any = routing_;
      any.kind = RoutingKind::up_down;
      routes = compute_routes(rest, any);
    }
    if (!routes) return routes.error();
    recovery_.versions.push_back(std::move(*routes));
    recovery_.failed.push_back(failed);
    const auto version = static_cast<std::uint32_t>(recovery_.versions.size() - 1);
    known_.emplace(failed, version);
    return version;
  }

  const Topology& topology_;
  RoutingSettings routing_;
  const RecoverySettings& settings_;
  std::vector<Outage> outages_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> known_;  // versions by links down
  Recovery recovery_;
};

}  // namespace

std::vector<Outage> merged(std::vector<Outage> outages) {
  std::ranges::sort(outages, {}, [](const Outage& outage) {
    return std::tuple(outage.link, outage.from, outage.until);
  });
  std::vector<Outage> found;
  for (const Outage& outage : outages) {
    const bool goes_on =
        !found.empty() && found.back().link == outage.link && outage.from <= found.back().until;
    if (goes_on) {
      found.back().until = std::max(found.back().until, outage.until);
    } else {
      found.push_back(outage);
    }
  }
  return found;
}

Result<Recovery> plan_recovery(const Topology& topology, const RoutingSettings& routing,
                               const RecoverySettings& settings, std::vector<Outage> outages) {
  return Planner(topology, routing, settings, merged(std::move(outages))).plan();
}

}  // namespace tulle::fabric
