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
#include <string>
#include <string_view>

#include "base/big_endian.h"
#include "live/path/packets/kernel_socket.h"
#include "os/netlink.h"
#include "os/system_error.h"

namespace tulle::live {
namespace {

constexpr std::string_view failure = "cannot resolve a neighbour";
constexpr std::uint16_t discard_port = 9;  // RFC 863
constexpr long wait_nanoseconds_min = 100'000;
constexpr long wait_nanoseconds_max = 20'000'000;
constexpr long patience_nanoseconds = 1'000'000'000;
constexpr int calls_in_a_turn = 64;

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

// Reads a message about one neighbour; nothing if it has no MAC address that may be used.
std::optional<Neighbour> neighbour_in(std::span<const std::byte> body) {
  ndmsg about;
  if (body.size() < sizeof about) return std::nullopt;
  std::memcpy(&about, body.data(), sizeof about);
  constexpr unsigned usable =
      NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  if ((about.ndm_state & usable) == 0) return std::nullopt;
  Neighbour neighbour;
  neighbour.interface_index = static_cast<std::uint32_t>(about.ndm_ifindex);
  bool has_mac = false;
  for_each_attribute(body.subspan(sizeof about), [&](unsigned type, auto value) {
    if (type == NDA_LLADDR && value.size() == neighbour.mac.size()) {
      std::memcpy(neighbour.mac.data(), value.data(), value.size());
      has_mac = true;
    } else if (type == NDA_DST && value.size() == sizeof(be32)) {
      be32 address;
      std::memcpy(&address, value.data(), sizeof address);
      neighbour.gid = Gid::from_ipv4(address);
    } else if (type == NDA_DST && value.size() == neighbour.gid.bytes.size()) {
      std::memcpy(neighbour.gid.bytes.data(), value.data(), value.size());
    }
  });
  return has_mac ? std::optional(neighbour) : std::nullopt;
}

}  // namespace

void read_neighbours(std::span<const std::byte> messages, std::vector<Neighbour>& found) {
  for_each_message(messages, [&](const nlmsghdr& header, auto body) {
    if (header.nlmsg_type != RTM_NEWNEIGH) return;
    if (const auto neighbour = neighbour_in(body)) found.push_back(*neighbour);
  });
}

Result<Neighbours> Neighbours::open() {
  Neighbours neighbours;
  neighbours.netlink_ = socket_for_questions();
  if (!neighbours.netlink_) return system_error(failure);
  return neighbours;
}

std::optional<wire::MacAddress> Neighbours::look_up(std::uint32_t interface_index,
                                                    const Gid& neighbour) const {
  struct Question {
    nlmsghdr header;
    ndmsg about;
    rtattr attribute;
    std::array<std::byte, 16> address;
  } question{};
  const Address address = address_of(neighbour);
  question.header.nlmsg_type = RTM_GETNEIGH;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.about.ndm_family = static_cast<std::uint8_t>(address.family);
  question.about.ndm_ifindex = static_cast<int>(interface_index);
  question.attribute.rta_type = NDA_DST;
  question.attribute.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(address.size));
  question.address = address.bytes;
  static_assert(offsetof(Question, attribute) == NLMSG_SPACE(sizeof(ndmsg)));
  static_assert(offsetof(Question, address) == offsetof(Question, attribute) + RTA_LENGTH(0));
  question.header.nlmsg_len =
      static_cast<std::uint32_t>(offsetof(Question, address) + address.size);
  if (send(netlink_.get(), &question, question.header.nlmsg_len, 0) < 0) return std::nullopt;
  std::array<std::byte, 1024> answer;
  const ssize_t size = recv(netlink_.get(), answer.data(), answer.size(), 0);
  if (size <= 0) return std::nullopt;
  std::vector<Neighbour> found;
  read_neighbours(std::span(answer).first(static_cast<std::size_t>(size)), found);
  return found.empty() ? std::nullopt : std::optional(found.front().mac);
}

int Neighbours::ask(std::uint32_t interface_index, const Gid& source, const Gid& neighbour) {
  const UniqueFd asker = kernel_socket(address_of(neighbour).family, SOCK_DGRAM);
  if (!asker) return errno;
  const Name from = name_of(source, 0, interface_index);
  if (bind(asker.get(), from.get(), from.bytes) != 0) return errno;
  const Name to = name_of(neighbour, discard_port, interface_index);
  const ssize_t sent =
      sendto(asker.get(), nullptr, 0, MSG_DONTWAIT | MSG_NOSIGNAL, to.get(), to.bytes);
  return sent < 0 ? errno : 0;
}

Result<wire::MacAddress> resolve_neighbour(std::uint32_t interface_index, const Gid& source,
                                           const Gid& neighbour) {
  auto neighbours = Neighbours::open();
  if (!neighbours) return neighbours.error();
  if (const auto mac = neighbours->look_up(interface_index, neighbour)) return *mac;
  if (const int error = Neighbours::ask(interface_index, source, neighbour); error != 0) {
    return Error{std::string(failure) + ": " + std::strerror(error), error};
  }
  long waited = 0;
  for (long wait = wait_nanoseconds_min; waited < patience_nanoseconds;
       wait = std::min(wait * 2, wait_nanoseconds_max)) {
    const timespec pause{0, wait};
    nanosleep(&pause, nullptr);
    waited += wait;
    if (const auto mac = neighbours->look_up(interface_index, neighbour)) return *mac;
  }
  return Error{"no neighbour on this link answers for the address", EHOSTUNREACH};
}

NeighbourWatch::NeighbourWatch() : fd_(socket_for_news(RTMGRP_NEIGH)) {}

std::vector<Neighbour> NeighbourWatch::take() {
  std::vector<Neighbour> found;
  std::array<std::byte, 8'192> messages;
  for (int i = 0; i < calls_in_a_turn; ++i) {
    const ssize_t size = recv(fd_.get(), messages.data(), messages.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == ENOBUFS)) continue;
    if (size <= 0) break;
    read_neighbours(std::span(messages).first(static_cast<std::size_t>(size)), found);
  }
  return found;
}

}  // namespace tulle::live
