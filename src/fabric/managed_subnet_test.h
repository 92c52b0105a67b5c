#pragma once

// A subnet that its own managers have set up, in virtual time, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/random.h"
#include "fabric/settle_test.h"
#include "fabric/subnet.h"
#include "fabric/subnet_managers.h"

namespace tulle::fabric {

using management::subnet::ManagerSettings;

// A subnet with its managers. Datagrams that arrive may be lost, by a seed.
struct ManagedSubnet {
  explicit ManagedSubnet(const Topology& topology, ManagerSettings settings = {})
      : subnet(now, topology), managers(now, subnet, std::move(settings)) {}

  // Moves all datagrams at this point in time.
  void settle() {
    fabric::settle(now, subnet, managers, [this] { return random.chance(loss); });
  }
  void run_for(Time span) {
    Time end = now + span;
    for (;;) {
      settle();
      const Time next = std::min(subnet.next_event(), managers.next_timeout());
      if (next > end) break;
      now = std::max(next, now);
      end = end.rebased(move_zero());
    }
    now = end;
  }
  // Moves the clock's zero if that is `kept` ago. Returns by how much.
  Time move_zero() {
    if (now <= kept) return Time::zero();
    const Time by = now - kept;
    now = kept;
    subnet.rebase(by);
    managers.rebase(by);
    if (also_rebase) also_rebase(by);
    return by;
  }

  bool all_links_are(wire::PortState wanted) const {
    const Topology& topology = subnet.topology();
    for (std::uint32_t link = 0; link < topology.links.size(); ++link) {
      const Link& each = topology.links[link];
      if (subnet.is_cut(link)) continue;
      const auto state_at = [&](std::uint32_t node, std::uint16_t port) {
        return subnet.node(node).state(static_cast<std::uint8_t>(port + 1));
      };
      if (state_at(each.a, each.a_port) != wanted || state_at(each.b, each.b_port) != wanted) {
        return false;
      }
    }
    return true;
  }

  std::uint16_t lid(std::uint32_t node) const {
    const auto& agent = subnet.node(node);
    return agent.port_info(agent.addressed_port(1)).lid;
  }
  // Follows the tables from a node. Returns the node where they end, or nothing.
  std::optional<std::uint32_t> follow(std::uint32_t from, Lid to) const {
    std::uint32_t node = from;
    std::uint8_t out = subnet.topology().is_host(from) ? 1 : subnet.node(from).output_port(to);
    for (int hops = 0; hops < 64; ++hops) {
      if (out == 0) return node;
      if (out == management::subnet::Node::no_port) return std::nullopt;
      const auto& peer = subnet.wiring().peer(node, static_cast<std::uint16_t>(out - 1));
      if (peer.link == Wiring::no_link || subnet.is_cut(peer.link)) return std::nullopt;
      node = peer.node;
      const auto& agent = subnet.node(node);
      const auto in = static_cast<std::uint8_t>(peer.port + 1);
      if (agent.has_lid(agent.addressed_port(in), to)) return node;
      if (!agent.is_switch()) return std::nullopt;
      out = agent.output_port(to);
    }
    return std::nullopt;
  }
  void expect_all_pairs(unsigned lmc = 0) const {
    const std::uint32_t nodes = subnet.topology().nodes();
    std::set<std::uint16_t> lids;
    for (std::uint32_t node = 0; node < nodes; ++node) EXPECT_TRUE(lids.insert(lid(node)).second);
    for (std::uint32_t from = 0; from < nodes; ++from) {
      for (std::uint32_t to = 0; to < nodes; ++to) {
        if (from == to) continue;
        const bool is_host = subnet.topology().is_host(to);
        for (std::uint32_t path = 0; path < (is_host ? 1u << lmc : 1u); ++path) {
          const Lid wanted(static_cast<std::uint16_t>(lid(to) + path));
          EXPECT_EQ(follow(from, wanted), to) << from << " to " << to << " path " << path;
        }
      }
    }
  }

  Time now = Time::seconds(1);
  Subnet subnet;
  SubnetManagers managers;
  Random random{1};
  double loss = 0;
  Time kept = Time::never();  // nothing may wait for as long
  std::function<void(Time by)> also_rebase;
};

}  // namespace tulle::fabric
