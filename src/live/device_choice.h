#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tulle::live {

// The versions of RoCE that use an address of the device. With both, each has a separate GID
// index.
enum class RoceVersions : std::uint8_t { v2, v1, both };

// Which addresses have the first GID indices. A kernel's device begins with the link-local ones
// (drivers/infiniband/core/roce_gid_mgmt.c), and programs that hard-code an index count on that.
enum class GidOrder : std::uint8_t { ip_first, link_local_first };

// The device that a program asks for. Programs that choose alike have one GID table.
struct DeviceChoice {
  std::string name;
  std::string interfaces;  // comma-separated names; empty: the host agent chooses
  // Any value: another process may have sent it. One that is not named above counts as v2.
  RoceVersions roce = RoceVersions::v2;
  GidOrder order = GidOrder::ip_first;  // likewise

  // clang-tidy 14 takes the comparison's own 0 for a null pointer.
  auto operator<=>(const DeviceChoice&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Returns true for what may be the name of a device: up to 63 letters, digits, '-', '_' and '.',
// as a kernel has them (IB_DEVICE_NAME_MAX). A device's files go by its name.
bool is_device_name(std::string_view text);
// Returns true for what a program may ask for: another process may have sent anything.
bool is_plausible(const DeviceChoice& choice);
inline constexpr std::size_t interfaces_bytes_max = 1'024;
inline constexpr char device_name_rule[] = "a name has up to 63 letters, digits, '-', '_' and '.'";

}  // namespace tulle::live
