#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "live/process/agent_client.h"

namespace tulle::cli {
namespace {

void print_json(const std::vector<live::DeviceInfo>& devices) {
  auto list = nlohmann::ordered_json::array();
  for (const live::DeviceInfo& device : devices) {
    auto gids = nlohmann::ordered_json::array();
    for (const live::GidEntry& entry : device.gids) {
      if (!entry.in_use()) {
        gids.push_back(nullptr);  // a place in the list is an index
        continue;
      }
      gids.push_back({{"gid", text_of(entry.gid)},
                      {"type", entry.is_roce_v1 ? "IB/RoCE v1" : "RoCE v2"},
                      {"interface", entry.interface}});
    }
    list.push_back({{"name", device.name},
                    {"node_guid", guid_text(device.node_guid)},
                    {"mtu_bytes", device.mtu_bytes},
                    {"port_active", device.port_active},
                    {"gids", gids}});
  }
  fmt::print("{}\n", list.dump(2));
}

void print_text(const std::vector<live::DeviceInfo>& devices) {
  for (const live::DeviceInfo& device : devices) {
    fmt::print("{}  node GUID {}  MTU {} bytes  port {}\n", device.name,
               guid_text(device.node_guid), device.mtu_bytes,
               device.port_active ? "active" : "down");
    for (std::size_t i = 0; i < device.gids.size(); ++i) {
      if (!device.gids[i].in_use()) continue;
      fmt::print("  GID {:<2} {:<39}  {}  {}\n", i, text_of(device.gids[i].gid),
                 device.gids[i].is_roce_v1 ? "RoCE v1" : "RoCE v2", device.gids[i].interface);
    }
  }
}

}  // namespace

int devices(const live::Settings& settings, bool json) {
  live::Hello hello;
  hello.purpose = live::Purpose::list;
  hello.command = "tulle devices";
  hello.device = settings.device;
  auto answer = live::ask_agent(settings, hello, live::IfAbsent::start);
  if (!answer) return fail(answer.error());
  live::Devices list;
  if (!decode(answer->message.bytes, list)) return fail("cannot decode the host agent's answer");
  json ? print_json(list.devices) : print_text(list.devices);
  return 0;
}

}  // namespace tulle::cli
