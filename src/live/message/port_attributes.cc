#include "live/message/port_attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "rdma/wire/smp.h"

namespace tulle::live {
namespace {

constexpr std::string_view pkey_folder = "pkeys/";
constexpr std::string_view gid_folder = "gids/";
constexpr std::string_view type_folder = "gid_attrs/types/";
constexpr std::string_view interface_folder = "gid_attrs/ndevs/";

std::string gid_text(const Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.bytes.size(); i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i > 0 ? ":" : "", gid.bytes[i], gid.bytes[i + 1]);
  }
  return text;
}

std::optional<std::size_t> index_in(std::string_view file, std::string_view folder) {
  if (!file.starts_with(folder)) return std::nullopt;
  const std::string_view digits = file.substr(folder.size());
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
  return is_number ? std::optional(index) : std::nullopt;
}

// The names that Linux gives states (drivers/infiniband/core/sysfs.c). A port in a state that IBTA
// does not know has no text.
std::optional<std::string> state_text(wire::PortState number) {
  const auto state = static_cast<unsigned>(number);
  constexpr auto names =
      std::to_array<std::string_view>({"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"});
  if (state >= names.size()) return std::nullopt;
  return fmt::format("{}: {}", state, names[state]);
}

std::optional<std::string> physical_state_text(wire::PhysicalState number) {
  const auto state = static_cast<unsigned>(number);
  constexpr auto names = std::to_array<std::string_view>(
      {"<unknown>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
       "LinkErrorRecovery", "Phy Test"});
  if (state >= names.size()) return std::nullopt;
  return fmt::format("{}: {}", state, names[state]);
}

// Linux writes "100 Gb/sec (4X EDR)": the lanes, and the name of a lane's speed.
std::string rate_text(const InfinibandPort& port) {
  constexpr auto slow = std::to_array<std::string_view>({" SDR", " DDR", " QDR"});
  constexpr auto fast = std::to_array<std::string_view>({" FDR", " EDR", " HDR", " NDR"});
  const auto highest = [](unsigned bits) {
    return static_cast<std::size_t>(std::bit_width(bits)) - 1;
  };
  const bool has_width = (port.width & 0x1F) != 0;
  if (!has_width || (port.speed == 0 && port.extended_speed == 0)) return "0 Gb/sec (0X)";
  const std::string_view speed = port.extended_speed != 0
                                     ? fast[std::min(highest(port.extended_speed), fast.size() - 1)]
                                     : slow[std::min(highest(port.speed), slow.size() - 1)];
  return fmt::format("{} Gb/sec ({}X{})", port.gigabits_per_second, wire::lanes_of(port.width),
                     speed);
}

std::optional<std::string> infiniband_attribute(const InfinibandPort& port, std::string_view file) {
  if (file == "state") return state_text(wire::PortState{port.state});
  if (file == "phys_state") {
    return physical_state_text(wire::PhysicalState{port.physical_state});
  }
  if (file == "lid") return fmt::format("0x{:x}", port.lid);
  if (file == "lid_mask_count") return std::to_string(port.lmc);
  if (file == "sm_lid") return fmt::format("0x{:x}", port.sm_lid);
  if (file == "sm_sl") return std::to_string(port.sm_sl);
  if (file == "rate") return rate_text(port);
  if (file == "cap_mask") return fmt::format("0x{:08x}", port.capability_mask);
  if (const auto index = index_in(file, pkey_folder); index && *index < port.pkeys.size()) {
    return fmt::format("0x{:04x}", port.pkeys[*index]);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> port_attribute(const DeviceInfo& device, std::string_view file) {
  if (device.infiniband) {
    if (auto text = infiniband_attribute(*device.infiniband, file)) return text;
  }
  if (file == "state") {
    return state_text(device.port_active ? wire::PortState::active : wire::PortState::down);
  }
  if (file == "phys_state") {
    return physical_state_text(device.port_active ? wire::PhysicalState::link_up
                                                  : wire::PhysicalState::disabled);
  }
  const auto entry_at = [&device](std::size_t index) {
    return index < device.gids.size() ? device.gids[index] : GidEntry{};
  };
  if (const auto index = index_in(file, gid_folder)) return gid_text(entry_at(*index).gid);
  if (const auto index = index_in(file, type_folder); index && entry_at(*index).in_use()) {
    return device.infiniband || entry_at(*index).is_roce_v1 ? "IB/RoCE v1" : "RoCE v2";
  }
  if (const auto index = index_in(file, interface_folder); index && entry_at(*index).in_use()) {
    if (device.infiniband) return std::nullopt;  // no interface of the kernel belongs to the port
    return entry_at(*index).interface;
  }
  return std::nullopt;
}

}  // namespace tulle::live
