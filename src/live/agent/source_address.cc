#include "live/agent/source_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "live/path/packets/kernel_socket.h"
#include "os/netlink.h"

namespace tulle::live {
namespace {

std::size_t bytes_of(std::uint16_t family) { return family == AF_INET ? 4 : 16; }

bool is_link_local(const SocketAddress& address) {
  return address.family == AF_INET6 && address.address[0] == std::byte{0xFE} &&
         (address.address[1] & std::byte{0xC0}) == std::byte{0x80};
}

class Question {
 public:
  explicit Question(std::uint16_t family) {
    header_.nlmsg_type = RTM_GETROUTE;
    header_.nlmsg_flags = NLM_F_REQUEST;
    about_.rtm_family = static_cast<std::uint8_t>(family);
    const unsigned bits = static_cast<unsigned>(bytes_of(family) * 8);
    about_.rtm_dst_len = static_cast<std::uint8_t>(bits);
  }
  void set_source_bits(std::size_t bytes) {
    about_.rtm_src_len = static_cast<std::uint8_t>(bytes * 8);
  }
  void add(unsigned short type, std::span<const std::byte> value) {
    const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(value.size())), type};
    std::memcpy(attributes_.data() + used_, &attribute, sizeof attribute);
    std::memcpy(attributes_.data() + used_ + sizeof attribute, value.data(), value.size());
    used_ += RTA_SPACE(value.size());
  }
  bool send_to(int netlink) {
    std::array<std::byte, 256> message{};
    header_.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof about_) + used_);
    std::memcpy(message.data(), &header_, sizeof header_);
    std::memcpy(message.data() + NLMSG_HDRLEN, &about_, sizeof about_);
    std::memcpy(message.data() + NLMSG_SPACE(sizeof about_), attributes_.data(), used_);
    return send(netlink, message.data(), header_.nlmsg_len, 0) >= 0;
  }

 private:
  nlmsghdr header_{};
  rtmsg about_{};
  std::array<std::byte, 128> attributes_{};
  std::size_t used_ = 0;
};

}  // namespace

KernelRoute read_route(std::span<const std::byte> messages) {
  KernelRoute route;
  for_each_message(messages, [&](const nlmsghdr& header, auto body) {
    if (header.nlmsg_type == NLMSG_ERROR && body.size() >= sizeof(int)) {
      int error = 0;
      std::memcpy(&error, body.data(), sizeof error);
      constexpr int errno_max = 4'095;  // linux/err.h: MAX_ERRNO
      route.error = error < 0 && error >= -errno_max ? -error : ENETUNREACH;
    }
    rtmsg about;
    if (header.nlmsg_type != RTM_NEWROUTE || body.size() < sizeof about) return;
    std::memcpy(&about, body.data(), sizeof about);
    route.error = 0;
    route.type = about.rtm_type;
    for_each_attribute(body.subspan(NLMSG_ALIGN(sizeof about)), [&](unsigned type, auto value) {
      if (type == RTA_PREFSRC && value.size() <= 16) {
        route.source.emplace();
        std::memcpy(route.source->data(), value.data(), value.size());
      }
      if (type == RTA_OIF && value.size() == sizeof route.interface_index) {
        std::memcpy(&route.interface_index, value.data(), value.size());
      }
    });
  });
  return route;
}

int find_source_address(SocketAddress& source, const SocketAddress& destination) {
  const std::size_t bytes = bytes_of(destination.family);
  SocketAddress to = destination;
  // As in connect(2), no address is this host.
  if (to.is_wildcard() && to.family == AF_INET) to.address[0] = std::byte{127};
  if (to.is_wildcard() || (to.family == AF_INET && destination.is_wildcard())) {
    to.address[bytes - 1] = std::byte{1};
  }
  if (is_link_local(to) && to.scope_id == 0) return EINVAL;
  const UniqueFd netlink = socket_for_questions();
  if (!netlink) return errno;
  Question question(to.family);
  question.add(RTA_DST, std::span(to.address).first(bytes));
  const bool is_given = source.family == to.family && !source.is_wildcard();
  if (is_given) {
    question.set_source_bits(bytes);
    question.add(RTA_SRC, std::span(source.address).first(bytes));
  }
  if (to.scope_id != 0) question.add(RTA_OIF, std::as_bytes(std::span(&to.scope_id, 1)));
  if (!question.send_to(netlink.get())) return errno;
  std::array<std::byte, 4'096> answer;
  const ssize_t size = recv(netlink.get(), answer.data(), answer.size(), 0);
  if (size < 0) return errno;
  const KernelRoute route = read_route(std::span(answer).first(static_cast<std::size_t>(size)));
  if (route.error != 0) return route.error;
  if (route.type == RTN_BROADCAST) return EACCES;
  if (!is_given && !route.source) return ENETUNREACH;
  SocketAddress found;
  found.family = to.family;
  found.address = is_given ? source.address : *route.source;
  if (is_link_local(found)) found.scope_id = to.scope_id != 0 ? to.scope_id : route.interface_index;
  source = found;
  return 0;
}

}  // namespace tulle::live
