#include "live/views/devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quoted.h"
#include "live/message/protocol.h"
#include "live/process/agent_client.h"

namespace tulle::live {
namespace {

std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof(text));
  return text;
}

std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xFFFF,
                     guid >> 16 & 0xFFFF, guid & 0xFFFF);
}

}  // namespace

Result<std::vector<DeviceInfo>> ask_devices(const Settings& settings, const std::string& command) {
  Hello hello;
  hello.purpose = Purpose::list;
  hello.command = command;
  hello.device = settings.device;
  auto answer = ask_agent(settings, hello, IfAbsent::start);
  if (!answer) return answer.error();
  Devices list;
  if (!decode(answer->message.bytes, list)) return Error{"cannot decode the host agent's answer"};
  return std::move(list.devices);
}

std::string devices_text(std::span<const DeviceInfo> devices) {
  std::string text;
  for (const DeviceInfo& device : devices) {
    text += fmt::format("{}  node GUID {}  MTU {} bytes  port {}\n", one_line(device.name),
                        guid_text(device.node_guid), device.mtu_bytes,
                        device.port_active ? "active" : "down");
    for (std::size_t i = 0; i < device.gids.size(); ++i) {
      if (!device.gids[i].in_use()) continue;
      text += fmt::format("  GID {:<2} {:<39}  {}  {}\n", i, text_of(device.gids[i].gid),
                          device.gids[i].is_roce_v1 ? "RoCE v1" : "RoCE v2",
                          one_line(device.gids[i].interface));
    }
  }
  return text;
}

std::string devices_json(std::span<const DeviceInfo> devices) {
  auto list = nlohmann::ordered_json::array();
  for (const DeviceInfo& device : devices) {
    auto gids = nlohmann::ordered_json::array();
    for (const GidEntry& entry : device.gids) {
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
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tulle::live
