#include "live/fabric/interface_addresses.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "os/netlink.h"

namespace tulle::live {
namespace {

constexpr unsigned mapped_bits = 96;  // of an IPv4 address in IPv6

// Returns the address in a message about one; nothing if there is none.
std::optional<ipoib::HostAddress> address_in(const ifaddrmsg& about,
                                             std::span<const std::byte> attributes) {
  std::optional<ipoib::HostAddress> found;
  bool is_local = false;
  for_each_attribute(attributes, [&](unsigned type, auto value) {
    // With an address at the other end of a point-to-point link, IFA_LOCAL has this host's.
    const bool is_address = type == IFA_LOCAL || (type == IFA_ADDRESS && !is_local);
    ipoib::HostAddress address;
    if (is_address && about.ifa_family == AF_INET && value.size() == sizeof(be32)) {
      be32 bytes;
      std::memcpy(&bytes, value.data(), sizeof(bytes));
      found = {Gid::from_ipv4(bytes), mapped_bits + about.ifa_prefixlen};
    } else if (is_address && about.ifa_family == AF_INET6 && value.size() == sizeof(Gid::bytes)) {
      std::memcpy(address.ip.bytes.data(), value.data(), value.size());
      address.prefix_bits = about.ifa_prefixlen;
      found = address;
    }
    is_local = is_local || type == IFA_LOCAL;
  });
  constexpr unsigned bits_max = 128;
  if (found && found->prefix_bits > bits_max) return std::nullopt;
  return found;
}

}  // namespace

void InterfaceAddresses::ask(int socket) {
  struct {
    nlmsghdr header;
    ifaddrmsg about;
  } question{};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = RTM_GETADDR;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  static_cast<void>(::send(socket, &question, sizeof(question), MSG_DONTWAIT));
}

bool InterfaceAddresses::read(int socket) {
  constexpr int messages_in_a_turn = 16;
  constexpr std::size_t bytes_max = 32'768;  // the kernel's messages are no longer
  std::vector<std::byte> buffer(bytes_max);
  bool has_changed = false;
  for (int i = 0; i < messages_in_a_turn; ++i) {
    const ssize_t bytes = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (bytes > 0) {
      has_changed = take(std::span(buffer).first(static_cast<std::size_t>(bytes))) || has_changed;
      continue;
    }
    if (bytes < 0 && errno == ENOBUFS) ask(socket);
    break;
  }
  return has_changed;
}

bool InterfaceAddresses::take(std::span<const std::byte> message) {
  bool has_changed = false;
  for_each_message(message, [&](const nlmsghdr& header, auto body) {
    const bool is_new = header.nlmsg_type == RTM_NEWADDR;
    if ((!is_new && header.nlmsg_type != RTM_DELADDR) || body.size() < sizeof(ifaddrmsg)) return;
    ifaddrmsg about;
    std::memcpy(&about, body.data(), sizeof(about));
    if (about.ifa_index != static_cast<unsigned>(index_)) return;
    const auto address = address_in(about, body.subspan(sizeof(about)));
    if (!address) return;
    const auto found = std::find(addresses_.begin(), addresses_.end(), *address);
    if (is_new && found == addresses_.end() && addresses_.size() < addresses_max) {
      addresses_.push_back(*address);
      has_changed = true;
    } else if (!is_new && found != addresses_.end()) {
      addresses_.erase(found);
      has_changed = true;
    }
  });
  return has_changed;
}

}  // namespace tulle::live
