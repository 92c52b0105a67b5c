#include "os/interface_mtu.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <cstring>
#include <memory>

#include "os/unique_fd.h"

namespace tulle {
namespace {

bool has(const sockaddr& of_interface, const sockaddr_storage& address) {
  if (of_interface.sa_family != address.ss_family) return false;
  if (address.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(of_interface);
    const auto& b = reinterpret_cast<const sockaddr_in&>(address);
    return a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  if (address.ss_family != AF_INET6) return false;
  const auto& a = reinterpret_cast<const sockaddr_in6&>(of_interface);
  const auto& b = reinterpret_cast<const sockaddr_in6&>(address);
  return std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0;
}

}  // namespace

std::optional<std::uint32_t> interface_mtu(const std::string& name) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) fd.reset(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (ioctl(fd.get(), SIOCGIFMTU, &request) != 0) return std::nullopt;
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

std::optional<std::uint32_t> interface_mtu(const sockaddr_storage& address) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || !has(*at->ifa_addr, address)) continue;
    const std::string label(at->ifa_name);  // eth0:1 names an address of eth0
    return interface_mtu(label.substr(0, label.find(':')));
  }
  return std::nullopt;
}

}  // namespace tulle
