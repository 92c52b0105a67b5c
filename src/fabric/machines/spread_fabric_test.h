#pragma once

// A fabric that is spread over machines, in virtual time, for tests. Each machine has its own
// subnet, traffic and tunnels, and datagrams between machines take time, and may be lost, doubled
// or overtaken.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "fabric/machines/placement.h"
#include "fabric/machines/tunnels.h"
#include "fabric/settle_test.h"
#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"
#include "fabric/subnet_traffic.h"

namespace tulle::fabric {

// Returns the settings of a manager that has an M_Key of its own in each life.
inline management::subnet::ManagerSettings with_key(std::uint64_t key) {
  management::subnet::ManagerSettings settings;
  settings.ports.key = key;
  return settings;
}

// One machine's process.
struct SpreadMachine {
  SpreadMachine(Time now, const Topology& topology, const Tunnels::Settings& settings,
                SubnetTraffic::SlotOf slot_of)
      : subnet(now, topology, Tunnels::elsewhere(settings)),
        managers(now, subnet, with_key(settings.session)),
        traffic(now, subnet, slot_of),
        tunnels(now, settings, subnet, traffic) {}

  Subnet subnet;
  SubnetManagers managers;
  SubnetTraffic traffic;
  Tunnels tunnels;
};

struct SpreadFabric {
  SpreadFabric(const Topology& of, std::uint32_t count, SubnetTraffic::SlotOf slots)
      : topology(of), slot_of(slots) {
    std::vector<Machine> wanted(count);
    for (std::uint32_t i = 0; i < count; ++i) wanted[i].name = "m" + std::to_string(i);
    auto placed = place(topology, wanted);
    machine_of = *placed;
    machines.resize(count);
    for (std::uint32_t machine = 0; machine < count; ++machine) start(machine);
  }

  // Starts a machine's process, in place of the last one.
  void start(std::uint32_t machine) {
    Tunnels::Settings settings{machine_of, static_cast<std::uint32_t>(machines.size()), machine,
                               random.next()};
    machines[machine] = std::make_unique<SpreadMachine>(now, topology, settings, slot_of);
  }
  void stop(std::uint32_t machine) { machines[machine].reset(); }
  SpreadMachine& at(std::uint32_t node) { return *machines[machine_of[node]]; }

  // Lets each machine do all that it can, and what it sends be under way.
  void turn() {
    for (std::uint32_t from = 0; from < machines.size(); ++from) {
      if (machines[from] == nullptr || standing_still == from) continue;
      SpreadMachine& of = *machines[from];
      settle(now, of.subnet, of.managers);
      of.traffic.follow(now);
      while (!of.traffic.run(now)) continue;
      of.tunnels.follow();
      of.tunnels.run(now);
      while (!of.tunnels.waiting().empty()) {
        const Tunnels::Outgoing& out = of.tunnels.waiting().front();
        const bool is_lost = from == mute || random.chance(loss);
        const int copies = is_lost ? 0 : random.chance(doubled) ? 2 : 1;
        for (int i = 0; i < copies; ++i) {
          const Time late = random.chance(overtaken) ? Time::milliseconds(3) : Time::zero();
          under_way.insert(
              {now + Time::microseconds(20) + late, std::tuple(from, out.machine, out.datagram)});
        }
        of.tunnels.pop();
        while (!of.traffic.run(now)) continue;
      }
    }
  }
  // Moves the clocks' zero if that is `kept` ago. Returns by how much.
  Time move_zero() {
    if (now <= kept) return Time::zero();
    const Time by = now - kept;
    now = kept;
    for (const auto& of : machines) {
      if (of == nullptr) continue;
      of->subnet.rebase(by);
      of->managers.rebase(by);
      of->traffic.rebase(by);
      of->tunnels.rebase(by);
    }
    decltype(under_way) moved;
    for (auto& [at, datagram] : under_way) moved.insert({at.rebased(by), std::move(datagram)});
    under_way = std::move(moved);
    return by;
  }
  void run_for(Time span) {
    Time end = now + span;
    for (;;) {
      turn();
      if (each_turn) each_turn();
      Time next = under_way.empty() ? Time::never() : under_way.begin()->first;
      for (std::uint32_t i = 0; i < machines.size(); ++i) {
        if (machines[i] == nullptr || standing_still == i) continue;
        SpreadMachine& of = *machines[i];
        next = std::min({next, of.subnet.next_event(), of.managers.next_timeout(),
                         of.tunnels.next_event(), of.traffic.next_event()});
      }
      if (next > end) break;
      now = std::max(now + Time::microseconds(1), next);
      while (!under_way.empty() && under_way.begin()->first <= now) {
        const auto [from, to, datagram] = std::move(under_way.begin()->second);
        under_way.erase(under_way.begin());
        if (machines[to] == nullptr || standing_still == to) continue;
        machines[to]->tunnels.receive(now, from, datagram);
      }
      end = end.rebased(move_zero());
    }
    now = end;
  }
  // Returns true if all links that are here, or lead elsewhere, are active on each machine.
  bool is_up() {
    for (const Link& link : topology.links) {
      for (const auto& [node, port] :
           {std::pair(link.a, link.a_port), std::pair(link.b, link.b_port)}) {
        if (machines[machine_of[node]] == nullptr) return false;
        const auto state = at(node).subnet.node(node).state(static_cast<std::uint8_t>(port + 1));
        if (state != wire::PortState::active) return false;
      }
    }
    return true;
  }
  std::uint16_t lid(std::uint32_t node) {
    const auto& agent = at(node).subnet.node(node);
    return agent.port_info(agent.addressed_port(1)).lid;
  }

  Topology topology;
  SubnetTraffic::SlotOf slot_of;
  std::vector<std::uint32_t> machine_of;  // by node
  std::vector<std::unique_ptr<SpreadMachine>> machines;
  Time now = Time::seconds(1);
  Random random{1};
  double loss = 0, doubled = 0, overtaken = 0;
  std::uint32_t mute = 0xFFFF;            // a machine whose datagrams are lost
  std::uint32_t standing_still = 0xFFFF;  // a machine whose process does nothing
  std::function<void()> each_turn;        // null: nothing
  Time kept = Time::never();              // nothing may wait for as long
  std::multimap<Time, std::tuple<std::uint32_t, std::uint32_t, std::vector<std::byte>>> under_way;
};

}  // namespace tulle::fabric
