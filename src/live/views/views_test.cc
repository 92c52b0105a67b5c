// What people and scripts read of devices, agents and fabrics.

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "live/views/devices.h"
#include "live/views/fabrics.h"
#include "live/views/status.h"

namespace tulle::live {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(DevicesView, AnUnusedIndexIsNoEntry) {
  DeviceInfo device;
  device.name = "tulle0";
  device.node_guid = 0x0123'4567'89AB'CDEF;
  device.gids.resize(2);
  device.gids[1].gid.bytes[15] = 1;
  device.gids[1].interface = "eth0";
  const std::vector<DeviceInfo> devices = {device};
  EXPECT_EQ(devices_text(devices),
            "tulle0  node GUID 0123:4567:89ab:cdef  MTU 1024 bytes  port active\n"
            "  GID 1  ::1                                      RoCE v2  eth0\n");
  const auto json = nlohmann::json::parse(devices_json(devices));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_TRUE(json[0]["gids"][0].is_null());
  EXPECT_EQ(json[0]["gids"][1]["gid"], "::1");
  EXPECT_EQ(devices_json({}), "[]\n");
}

// The kernel lets an interface have almost any bytes in its name.
TEST(DevicesView, NamesOfInterfacesDoNotControlTheTerminal) {
  DeviceInfo device;
  device.name = "tulle0";
  device.gids.resize(2);
  device.gids[1].gid.bytes[15] = 1;
  device.gids[1].interface = "a\033\xFF";
  const std::vector<DeviceInfo> devices = {device};
  EXPECT_TRUE(devices_text(devices).ends_with("  a??\n"));
  const auto json = nlohmann::json::parse(devices_json(devices));
  EXPECT_EQ(json[0]["gids"][1]["interface"], "a\033\uFFFD");
}

TEST(StatusView, NoAgentIsNoError) {
  EXPECT_EQ(status_text({}, "@tulle"),
            "No host agent is running at @tulle: no program has a device open.\n");
  const auto json = nlohmann::json::parse(status_json({}));
  EXPECT_TRUE(json["agent"].is_null());
  EXPECT_TRUE(json["processes"].empty());
}

TEST(StatusView, AProcessHasALine) {
  HostStatus status;
  status.agent.version = "1.2";
  status.agent.uptime_seconds = 3'700;
  status.agent.listeners = 2;
  EXPECT_TRUE(contains(status_text(status, ""), "No process has a device open.\n"));
  ProcessStatus process;
  process.pid = 77;
  process.command = "pro\ngram";  // a process may have any name
  process.counters[0] = 3;
  process.refusal = "no";
  status.processes.push_back(process);
  const std::string text = status_text(status, "");
  EXPECT_TRUE(contains(text, "up 1 h 1 min")) << text;
  EXPECT_TRUE(contains(text, "Connection manager: 2 listeners\n")) << text;
  EXPECT_TRUE(contains(text, "pro?gram")) << text;
  EXPECT_TRUE(contains(text, "refused: no\n")) << text;
  process.command = "\xFF";
  status.processes.push_back(process);
  const auto json = nlohmann::json::parse(status_json(status));
  EXPECT_EQ(json["processes"][0]["pid"], 77);
  EXPECT_EQ(json["agent"]["version"], "1.2");
}

TEST(FabricsView, ThoseOfThisNamespaceAreMarked) {
  const std::vector<FoundFabric> found = {{"default", "42", 7, 4, 2}, {"lab", "43", 8, 1, 1}};
  const std::string text = fabrics_text(found, "42");
  EXPECT_TRUE(contains(text, "default                 2      4        7  this one\n")) << text;
  EXPECT_TRUE(contains(text, "8  43\n")) << text;
  const auto json = nlohmann::json::parse(fabrics_json(found, "42"));
  EXPECT_EQ(json[0]["is_here"], true);
  EXPECT_EQ(json[1]["is_here"], false);
  EXPECT_EQ(fabrics_text({}, "42"), "No fabric is up; `tulle fabric up` starts one.\n");
}

TEST(FabricsView, ANodeHasItsPorts) {
  FabricNodes nodes;
  nodes.discarded = 1;
  nodes.nodes.resize(1);
  FabricNode& host = nodes.nodes[0];
  host.name = "h0";
  host.lid = 4;
  host.lmc = 1;
  host.ports.push_back({1, 4, 5, 100, true, "switch0", 3});
  const std::string text = fabric_text(nodes, {});
  EXPECT_TRUE(contains(text, "h0           host     0000000000000000     4\n")) << text;
  EXPECT_TRUE(contains(text, "  port 1   active       100 Gb/s  switch0:3 (cut)\n")) << text;
  EXPECT_TRUE(contains(text, "\n1 datagram found no way.\n")) << text;
  const auto json = nlohmann::json::parse(fabric_json("lab", nodes, {}));
  EXPECT_EQ(json["hosts"][0]["lids"], (std::vector<int>{4, 5}));
  EXPECT_EQ(json["hosts"][0]["ports"][0]["state"], "active");
}

TEST(FabricsView, WhatHasBegunIsSaid) {
  FabricOptions options;
  options.topology = usual_topology();
  EXPECT_EQ(started_text(options, "The hosts share it."),
            "The fabric \"default\" is up: 2 switches, 4 hosts (h0 to h3), 5 cables.\n"
            "Run a subnet manager on a host, such as `tulle run --host h0 -- opensm -f "
            "$PWD/opensm.log`.\n"
            "The hosts share it.\n");
}

}  // namespace
}  // namespace tulle::live
