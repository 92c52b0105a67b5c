#include "live/agent/port_attributes.h"

#include <fmt/format.h>

#include <charconv>

namespace tulle::live {
namespace {

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

}  // namespace

std::optional<std::string> port_attribute(const DeviceInfo& device, std::string_view file) {
  if (file == "state") return device.port_active ? "4: ACTIVE" : "1: DOWN";
  if (file == "phys_state") return device.port_active ? "5: LinkUp" : "3: Disabled";
  const auto entry_at = [&device](std::size_t index) {
    return index < device.gids.size() ? device.gids[index] : GidEntry{};
  };
  if (const auto index = index_in(file, gid_folder)) return gid_text(entry_at(*index).gid);
  if (const auto index = index_in(file, type_folder); index && entry_at(*index).in_use()) {
    return "RoCE v2";
  }
  if (const auto index = index_in(file, interface_folder); index && entry_at(*index).in_use()) {
    return entry_at(*index).interface;
  }
  return std::nullopt;
}

}  // namespace tulle::live
