#include "live/agent/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "os/interface_mtu.h"

namespace tulle::live {
namespace {

using Mac = std::array<std::uint8_t, 6>;

struct Interface {
  std::string name;
  std::uint32_t index = 0;
  std::uint32_t mtu_bytes = 0;
  bool up = false;
  bool running = false;
  bool loopback = false;
  std::optional<Mac> mac;
  std::vector<Gid> gids;
};

// Ranks a GID for numbering: IPv4 first, then global IPv6, with the link-local addresses behind
// them or before them.
int rank(const Gid& gid, GidOrder order) {
  if (gid.is_ipv4_mapped()) return 1;
  const bool link_local = gid.bytes[0] == 0xFE && (gid.bytes[1] & 0xC0) == 0x80;
  if (!link_local) return 2;
  return order == GidOrder::link_local_first ? 0 : 3;
}

void add_address(Interface& interface, const sockaddr* address) {
  if (address == nullptr) return;
  if (address->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, address, sizeof(in));
    interface.gids.push_back(Gid::from_ipv4(ntohl(in.sin_addr.s_addr)));
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in6;
    std::memcpy(&in6, address, sizeof(in6));
    Gid& gid = interface.gids.emplace_back();
    std::memcpy(gid.bytes.data(), &in6.sin6_addr, gid.bytes.size());
  } else if (address->sa_family == AF_PACKET) {
    sockaddr_ll link;
    std::memcpy(&link, address, sizeof(link));
    Mac mac{};
    if (link.sll_halen != mac.size()) return;
    std::copy_n(link.sll_addr, mac.size(), mac.begin());
    if (mac != Mac{}) interface.mac = mac;
  }
}

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return Error{fmt::format("cannot list the network interfaces: {}", std::strerror(errno)),
                 errno};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const std::string_view label(at->ifa_name);
    // The label eth0:1 names an address of eth0.
    const std::string_view name = label.substr(0, label.find(':'));
    auto found = std::find_if(interfaces.begin(), interfaces.end(),
                              [&](const Interface& i) { return i.name == name; });
    if (found == interfaces.end()) {
      found = interfaces.insert(interfaces.end(), Interface{});
      found->name = name;
      found->index = if_nametoindex(found->name.c_str());
      found->mtu_bytes = interface_mtu(found->name).value_or(1'500);
      found->up = (at->ifa_flags & IFF_UP) != 0;
      found->running = (at->ifa_flags & IFF_RUNNING) != 0;
      found->loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    }
    add_address(*found, at->ifa_addr);
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const Interface& a, const Interface& b) { return a.index < b.index; });
  return interfaces;
}

std::vector<Interface> usable(const std::vector<Interface>& all, bool loopback) {
  std::vector<Interface> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [&](const Interface& i) {
    return i.up && !i.gids.empty() && i.loopback == loopback;
  });
  return chosen;
}

// The name of an interface may have a comma. A text that is one's name means that one.
std::vector<std::string> split(const std::vector<Interface>& all, const std::string& names) {
  if (std::ranges::find(all, names, &Interface::name) != all.end()) return {names};
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    parts.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Result<std::vector<Interface>> choose(const std::vector<Interface>& all, const std::string& names) {
  if (names.empty()) {
    std::vector<Interface> chosen = usable(all, false);
    if (chosen.empty()) chosen = usable(all, true);
    if (chosen.empty()) {
      return Error{
          "no network interface here is up and has an address "
          "(`ip link set lo up` gives at least loopback)",
          ENODEV};
    }
    return chosen;
  }
  std::vector<Interface> chosen;
  for (const std::string& name : split(all, names)) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Interface& i) { return i.name == name; });
    if (found == all.end()) {
      std::string known;
      for (const Interface& i : all) known += (known.empty() ? "" : ", ") + i.name;
      return Error{fmt::format("there is no network interface \"{}\" here, only {}", name, known),
                   ENODEV};
    }
    if (!found->up || found->gids.empty()) {
      return Error{fmt::format("the network interface {} {}", name,
                               found->up ? "has no address" : "is down"),
                   ENETDOWN};
    }
    // A name that comes again says nothing new, and each interface costs all its addresses.
    const bool is_chosen =
        std::ranges::find(chosen, found->index, &Interface::index) != chosen.end();
    if (!is_chosen) chosen.push_back(*found);
  }
  return chosen;
}

// Returns the interfaces that a device in use keeps or gains. Loopback, which is used while there
// is no other interface, gives way to the first one.
std::vector<Interface> keep(const std::vector<Interface>& all, const DeviceInfo& device,
                            const std::string& names) {
  const std::vector<std::string> given = split(all, names);
  const bool has_others = !usable(all, false).empty();
  std::vector<Interface> kept;
  std::copy_if(all.begin(), all.end(), std::back_inserter(kept), [&](const Interface& i) {
    if (!names.empty()) return std::find(given.begin(), given.end(), i.name) != given.end();
    const bool has = std::any_of(device.gids.begin(), device.gids.end(), [&](const GidEntry& e) {
      return e.in_use() && e.interface_index == i.index;
    });
    if (i.loopback) return has && !has_others;
    return has || (i.up && !i.gids.empty());
  });
  return kept;
}

// Returns true if the interface carries frames of Ethernet, as RoCE v1 needs. A tunnel of IP
// packets has no MAC address.
bool has_frames(const Interface& interface) { return interface.loopback || interface.mac; }

// Fills in the fields that change while a device is in use.
void describe_port(DeviceInfo& device, const std::vector<Interface>& interfaces,
                   const DeviceChoice& choice, std::uint32_t free_bytes) {
  const RoceVersions roce = choice.roce;
  device.port_active = false;
  device.gids.clear();
  std::uint32_t mtu_bytes = UINT32_MAX;
  for (const Interface& interface : interfaces) {
    mtu_bytes = std::min(mtu_bytes, interface.mtu_bytes);
    device.port_active |= interface.up && interface.running;
    for (const Gid& gid : interface.gids) {
      // Linux adds a GID's types in this order (drivers/infiniband/core/roce_gid_mgmt.c).
      if (roce != RoceVersions::v2 && has_frames(interface)) {
        device.gids.push_back({gid, interface.index, interface.name, true});
      }
      if (roce != RoceVersions::v1) device.gids.push_back({gid, interface.index, interface.name});
    }
  }
  if (!interfaces.empty())
    device.mtu_bytes = path_mtu_bytes(mtu_bytes - std::min(mtu_bytes, free_bytes));
  std::stable_sort(device.gids.begin(), device.gids.end(),
                   [order = choice.order](const auto& a, const auto& b) {
                     return rank(a.gid, order) < rank(b.gid, order);
                   });
}

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line;
}

// The FNV-1a hash of 64 bits.
std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xCBF2'9CE4'8422'2325;
  for (const char c : text) value = (value ^ static_cast<std::uint8_t>(c)) * 0x100'0000'01B3;
  return value;
}

// Returns the EUI-64 of the first MAC address (RFC 4291 appendix A), as RNICs do. Without a MAC
// address, as on loopback, returns a number that this machine keeps, marked as locally
// administered.
std::uint64_t node_guid(const std::vector<Interface>& interfaces) {
  for (const Interface& interface : interfaces) {
    if (!interface.mac) continue;
    const Mac& m = *interface.mac;
    const std::array<std::uint8_t, 8> eui = {
        static_cast<std::uint8_t>(m[0] ^ 2), m[1], m[2], 0xFF, 0xFE, m[3], m[4], m[5]};
    std::uint64_t guid = 0;
    for (const std::uint8_t byte : eui) guid = guid << 8 | byte;
    return guid;
  }
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  constexpr std::uint64_t multicast_bit = 1ull << 56;
  constexpr std::uint64_t universal_bit = 2ull << 56;
  return hash(first_line("/etc/machine-id") + host) & ~(multicast_bit | universal_bit);
}

}  // namespace

std::uint32_t path_mtu_bytes(std::uint32_t interface_mtu_bytes) {
  // Linux counts these headers: IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28, ICRC 4.
  constexpr std::uint32_t headers_bytes = 96;
  std::uint32_t mtu = 4096;
  while (mtu > 256 && mtu + headers_bytes > interface_mtu_bytes) mtu /= 2;
  return mtu;
}

Result<DeviceInfo> describe_device(const DeviceChoice& choice, std::uint32_t free_bytes) {
  auto all = list_interfaces();
  if (!all) return all.error();
  auto chosen = choose(*all, choice.interfaces);
  if (!chosen) return chosen.error();

  DeviceInfo device;
  device.name = choice.name;
  device.node_guid = node_guid(*chosen);
  describe_port(device, *chosen, choice, free_bytes);
  if (device.gids.empty()) {
    return Error{"RoCE v1 needs an interface of Ethernet, and there is none here", EOPNOTSUPP};
  }
  return device;
}

DeviceInfo redescribe_device(const DeviceInfo& before, const DeviceChoice& choice,
                             std::uint32_t free_bytes) {
  DeviceInfo device = before;
  auto all = list_interfaces();
  if (all) describe_port(device, keep(*all, before, choice.interfaces), choice, free_bytes);
  return device;
}

}  // namespace tulle::live
