#include "live/path/packets/neighbours.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "live/path/packets/kernel_socket.h"
#include "live/system_error.h"

namespace tulle::live {
namespace {

constexpr std::string_view failure = "cannot look for a neighbour";
constexpr std::uint16_t discard_port = 9;  // RFC 863
constexpr long wait_nanoseconds_min = 100'000;
constexpr long wait_nanoseconds_max = 20'000'000;
constexpr long patience_nanoseconds = 1'000'000'000;
constexpr timeval answer_patience{1, 0};

struct Address {
  int family = 0;
  std::array<std::byte, 16> bytes{};
  std::size_t size = 0;
};

Address address_of(const Gid& gid) {
  Address address;
  const bool is_ipv4 = gid.is_ipv4_mapped();
  address.family = is_ipv4 ? AF_INET : AF_INET6;
  address.size = is_ipv4 ? 4 : 16;
  std::memcpy(address.bytes.data(), gid.bytes.data() + (is_ipv4 ? 12 : 0), address.size);
  return address;
}

struct Name {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Name name_of(const Gid& gid, std::uint16_t port, std::uint32_t interface_index) {
  Name name;
  if (gid.is_ipv4_mapped()) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(gid.ipv4());
    std::memcpy(&name.storage, &in, sizeof in);
    name.bytes = sizeof in;
  } else {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, gid.bytes.data(), gid.bytes.size());
    const bool is_link_local = gid.bytes[0] == 0xFE && (gid.bytes[1] & 0xC0) == 0x80;
    if (is_link_local) in.sin6_scope_id = interface_index;
    std::memcpy(&name.storage, &in, sizeof in);
    name.bytes = sizeof in;
  }
  return name;
}

// Returns the link-layer address in an answer about a neighbour, if it has one that may be used.
std::optional<wire::MacAddress> mac_in(std::span<const std::byte> answer) {
  nlmsghdr header;
  ndmsg about;
  if (answer.size() < NLMSG_LENGTH(sizeof about)) return std::nullopt;
  std::memcpy(&header, answer.data(), sizeof header);
  std::memcpy(&about, answer.data() + NLMSG_HDRLEN, sizeof about);
  constexpr unsigned usable =
      NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  if (header.nlmsg_type != RTM_NEWNEIGH || (about.ndm_state & usable) == 0) return std::nullopt;
  auto rest = answer.first(std::min<std::size_t>(answer.size(), header.nlmsg_len));
  rest = rest.subspan(std::min(rest.size(), NLMSG_SPACE(sizeof about)));
  while (rest.size() >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, rest.data(), sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > rest.size()) break;
    wire::MacAddress mac{};
    if (attribute.rta_type == NDA_LLADDR && attribute.rta_len == RTA_LENGTH(mac.size())) {
      std::memcpy(mac.data(), rest.data() + RTA_LENGTH(0), mac.size());
      return mac;
    }
    rest = rest.subspan(std::min(rest.size(), std::size_t{RTA_ALIGN(attribute.rta_len)}));
  }
  return std::nullopt;
}

// Asks the kernel's table. Returns nothing if the neighbour's address is not known.
std::optional<wire::MacAddress> look_up(int netlink, std::uint32_t interface_index,
                                        const Address& neighbour) {
  struct Question {
    nlmsghdr header;
    ndmsg about;
    rtattr attribute;
    std::array<std::byte, 16> address;
  } question{};
  question.header.nlmsg_type = RTM_GETNEIGH;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.about.ndm_family = static_cast<std::uint8_t>(neighbour.family);
  question.about.ndm_ifindex = static_cast<int>(interface_index);
  question.attribute.rta_type = NDA_DST;
  question.attribute.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(neighbour.size));
  question.address = neighbour.bytes;
  static_assert(offsetof(Question, attribute) == NLMSG_SPACE(sizeof(ndmsg)));
  static_assert(offsetof(Question, address) == offsetof(Question, attribute) + RTA_LENGTH(0));
  question.header.nlmsg_len =
      static_cast<std::uint32_t>(offsetof(Question, address) + neighbour.size);
  if (send(netlink, &question, question.header.nlmsg_len, 0) < 0) return std::nullopt;
  std::array<std::byte, 1024> answer;
  const ssize_t size = recv(netlink, answer.data(), answer.size(), 0);
  if (size <= 0) return std::nullopt;
  return mac_in(std::span(answer).first(static_cast<std::size_t>(size)));
}

}  // namespace

Result<wire::MacAddress> resolve_neighbour(std::uint32_t interface_index, const Gid& source,
                                           const Gid& neighbour) {
  const UniqueFd netlink(static_cast<int>(
      syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)));
  if (!netlink) return system_error(failure);
  setsockopt(netlink.get(), SOL_SOCKET, SO_RCVTIMEO, &answer_patience, sizeof answer_patience);
  const Address address = address_of(neighbour);
  if (const auto mac = look_up(netlink.get(), interface_index, address)) return *mac;

  const UniqueFd asker = kernel_socket(address.family, SOCK_DGRAM);
  if (!asker) return system_error(failure);
  const Name from = name_of(source, 0, interface_index);
  if (bind(asker.get(), from.get(), from.bytes) != 0) return system_error(failure);
  const Name to = name_of(neighbour, discard_port, interface_index);
  if (sendto(asker.get(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, to.get(), to.bytes) < 0) {
    return system_error(failure);
  }
  long waited = 0;
  for (long wait = wait_nanoseconds_min; waited < patience_nanoseconds;
       wait = std::min(wait * 2, wait_nanoseconds_max)) {
    const timespec pause{0, wait};
    nanosleep(&pause, nullptr);
    waited += wait;
    if (const auto mac = look_up(netlink.get(), interface_index, address)) return *mac;
  }
  return Error{"no neighbour on this link answers for the address", EHOSTUNREACH};
}

}  // namespace tulle::live
