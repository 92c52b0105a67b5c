#include "live/agent/ip_network.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "live/agent/source_address.h"
#include "rdma/verbs/types.h"

namespace tulle::live {
namespace {

// The packet lifetime that Linux's rdma_cm assumes for RoCE: 4.096 us * 2^16 = 0.27 s
// (CMA_IBOE_PACKET_LIFETIME in cma.c; kernels before 6.5 used 18).
constexpr std::uint8_t default_packet_lifetime = 16;

UniqueFd datagram_socket(std::uint16_t family) {
  return UniqueFd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

int bind_to(int socket, SocketAddress address) {
  address.port = 0;
  sockaddr_storage name;
  const socklen_t bytes = address.copy_to(name);
  return bind(socket, reinterpret_cast<const sockaddr*>(&name), bytes) == 0 ? 0 : errno;
}

}  // namespace

Result<DeviceInfo> IpNetwork::describe(const DeviceChoice& choice) {
  auto device = devices_.find(choice);
  if (!device) return device.error();
  return (*device)->info;
}

int IpNetwork::check_is_local(const SocketAddress& address) {
  const UniqueFd fd = datagram_socket(address.family);
  if (!fd) return errno;
  return bind_to(fd.get(), address);
}

int IpNetwork::find_source(SocketAddress& source, const SocketAddress& destination) {
  if (source.family != 0 && !source.is_wildcard()) {
    if (source.family != destination.family) return EINVAL;
    if (const int error = check_is_local(source); error != 0) return error;
  }
  return find_source_address(source, destination);
}

std::vector<int> IpNetwork::open_roce_v1(const DeviceChoice& choice) {
  const bool is_asked = choice.roce == RoceVersions::v1 || choice.roce == RoceVersions::both;
  if (!is_asked || seal_ != nullptr) return {};
  static_cast<void>(devices_.find(choice));  // its addresses count from now on
  if (roce_v1_ != nullptr) return {};
  auto opened = RoceV1Network::open(port_.tap());
  if (!opened) return {};
  roce_v1_ = std::move(*opened);
  changes_seen_ = 0;
  return roce_v1_->watched_fds();
}

// Takes over the addresses if they have changed.
void IpNetwork::look_at_addresses() {
  if (devices_.changes() == changes_seen_) return;
  changes_seen_ = devices_.changes();
  roce_v1_->set_addresses(devices_.all_gids());
}

std::optional<ConnectionRoute> IpNetwork::find_route(Asker asker, const DeviceInfo& device,
                                                     const LocalAddress& local, const Gid& remote) {
  const ConnectionRoute route{verbs::mtu_code(device.mtu_bytes), default_packet_lifetime};
  if (!local.is_roce_v1) return route;
  // Without the right to send frames, the agent finds no way.
  std::optional<int> error = EPERM;
  if (roce_v1_ != nullptr) {
    look_at_addresses();
    error = roce_v1_->find_way(asker, local.gid, remote);
  }
  if (error == 0) return route;
  if (error) {
    found_.push_back({asker, *error, {}});
  } else {
    waiting_.push_back({asker, route});
  }
  return std::nullopt;
}

std::vector<IpNetwork::RouteFound> IpNetwork::take_routes() {
  std::vector<RouteFound> found = std::exchange(found_, {});
  if (roce_v1_ == nullptr) return found;
  // Also if nobody waits: what the kernel tells of neighbours must be read.
  for (const RoceV1Network::Answer& answer : roce_v1_->take_answers()) {
    const auto asked = std::ranges::find(waiting_, answer.asker, &Waiting::asker);
    if (asked == waiting_.end()) continue;
    found.push_back({answer.asker, answer.error, asked->route});
    waiting_.erase(asked);
  }
  return found;
}

RoceV1Network::Clock::time_point IpNetwork::next_deadline() const {
  if (!found_.empty()) return RoceV1Network::Clock::now();
  return roce_v1_ == nullptr ? RoceV1Network::Clock::time_point::max() : roce_v1_->next_deadline();
}

void IpNetwork::send(const management::cm::Outgoing& datagram) {
  if (datagram.route.is_roce_v1) {
    if (roce_v1_ == nullptr) return;
    look_at_addresses();
    return roce_v1_->send(datagram);
  }
  wire::IpUdp ip;
  ip.source = datagram.route.local;
  ip.destination = datagram.route.remote;
  ip.traffic_class = datagram.route.traffic_class;
  port_.send(ip, devices_.interface_of(ip.source), datagram.bytes, datagram.is_to_stranger);
}

bool IpNetwork::receive(Time now, const Handle& handle) {
  if (seal_ != nullptr) seal_->look_at_file(now);
  bool has_taken_frames = true;
  if (roce_v1_ != nullptr) {
    look_at_addresses();
    has_taken_frames = roce_v1_->receive(handle);
  }
  const bool has_taken_datagrams =
      port_.receive([&](const wire::IpUdp& ip, std::span<const std::byte> payload) {
        // The bits in which the network marks congestion are removed.
        const auto traffic_class = static_cast<std::uint8_t>(ip.traffic_class & ~wire::ecn_mask);
        handle({ip.destination, ip.source, traffic_class}, payload);
      });
  return has_taken_frames && has_taken_datagrams;
}

void IpNetwork::rebase(Time by) {
  if (seal_ != nullptr) seal_->rebase(by);
}

}  // namespace tulle::live
