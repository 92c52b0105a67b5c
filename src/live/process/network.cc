#include "live/process/network.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "live/path/fabric/fabric_path.h"
#include "live/path/memory/host_link.h"
#include "live/path/packets/multicast.h"
#include "live/path/packets/roce_v1_link.h"
#include "live/path/packets/udp_link.h"
#include "live/process/agent_client.h"
#include "rdma/port/framing/infiniband.h"

namespace tulle::live {
namespace {

constexpr Patience find_peer_patience = {50, 50};
constexpr Patience membership_patience = {50, 50};
constexpr auto ask_again_after = std::chrono::seconds(5);

UniqueFd sender_for_relay(bool is_relayed) {
  if (!is_relayed) return {};
  auto bound = bind_sender(static_cast<std::uint32_t>(getpid()));
  return bound ? std::move(*bound) : UniqueFd();
}

// Asks the agent, which has the slot's socket. Returns 0 or an errno.
int ask_for_membership(const Settings& settings, std::uint32_t slot, const Gid& group,
                       bool leaves) {
  auto connection = connect_to_agent(settings, membership_patience);
  if (!connection) return EHOSTDOWN;
  if (!send_message(connection->get(), encode(Membership{slot, group, leaves}))) return EHOSTDOWN;
  auto answer = await_message(connection->get(), membership_patience.answer_milliseconds);
  MembershipChanged changed;
  if (!answer || !decode(answer->bytes, changed)) return EHOSTDOWN;
  return changed.error;
}

// Asks the agent for a process of this host, while a queue pair is connected, with the device's
// lock held. A stopped agent must not hold the program up, neither once for long nor at each
// connection.
class PeerFinder {
 public:
  explicit PeerFinder(const Settings& settings) : settings_(settings) {}

  Result<HostPath::Peer> operator()(QpNumber number) {
    using Clock = std::chrono::steady_clock;
    const auto asked = Clock::now();
    if (asked < ask_again_at_) return Error{"the agent did not answer a moment ago", ETIMEDOUT};
    Hello hello;
    hello.purpose = Purpose::find_peer;
    hello.slot = slot_of(number);
    auto answer = ask_agent(settings_, hello, IfAbsent::fail, find_peer_patience);
    const auto answered = Clock::now();
    const std::chrono::milliseconds patience(find_peer_patience.answer_milliseconds);
    if (answered >= asked + patience) ask_again_at_ = answered + ask_again_after;
    if (!answer) return answer.error();
    PeerProcess peer;
    std::vector<UniqueFd>& fds = answer->message.fds;
    if (!decode(answer->message.bytes, peer) || fds.size() != 2) {
      return Error{"the agent knows no such process", ESRCH};
    }
    return HostPath::Peer{peer.pid, std::move(fds[0]), std::move(fds[1])};
  }

 private:
  const Settings& settings_;
  std::chrono::steady_clock::time_point ask_again_at_;
};

}  // namespace

// --- a host with a host agent -------------------------------------------------------------------

Result<void> HostNetwork::open(const LinkContext& context, Links& links) {
  if (auto added = add_host_link(context, links); !added) return added;
  if (auto added = add_roce_v1(context, links); !added) return added;
  if (grant_.seal == nullptr) {  // raw frames are not sealed
    raw_ =
        std::make_unique<RawLink>(context.device, context.adapter.raw_packets(), context.counters);
  }
  add_udp(context, links);
  return {};
}

Result<void> HostNetwork::add_host_link(const LinkContext& context, Links& links) const {
  const Settings& settings = context.settings;
  if (!settings.direct || settings.strict || grant_.faults.any()) return {};
  const DeviceInfo& device = context.device;
  const auto is_local = [&device](const Gid& gid) {
    return std::ranges::any_of(device.gids,
                               [&](const GidEntry& entry) { return entry.gid == gid; });
  };
  SharedRegions& shared = SharedRegions::of_process();
  const bool shares = settings.share_memory && shared.enable();
  auto path =
      HostPath::create(grant_.slot, PeerFinder(settings), is_local, shares ? &shared : nullptr);
  if (!path && path.error().error_number == EFBIG) return {};  // all packets go by sockets
  if (!path) return path.error();
  context.adapter.objects().set_direct_path(path->get());
  context.agent.expose((*path)->peers().table_fd(), context.doorbell_button);
  links.add(
      std::make_unique<HostLink>(std::move(*path), [&device](const Gid& gid, bool is_roce_v1) {
        return std::ranges::any_of(device.gids, [&](const GidEntry& entry) {
          return entry.gid == gid && entry.is_roce_v1 == is_roce_v1;
        });
      }));
  return {};
}

// Opens the sockets of RoCE v1's frames, if the program wants addresses of RoCE v1.
Result<void> HostNetwork::add_roce_v1(const LinkContext& context, Links& links) const {
  if (context.settings.device.roce == RoceVersions::v2) return {};
  if (grant_.seal != nullptr) {
    return Error{"RoCE v1's frames are not sealed: --secure goes with --roce v2 alone", EINVAL};
  }
  if (grant_.faults.any()) {
    return Error{"faults change RoCE v2's datagrams: --faults goes with --roce v2 alone", EINVAL};
  }
  const device::Configuration& configuration = context.adapter.configuration();
  auto port = RoceV1Port::open(configuration.first_qp, configuration.qp_count, context.tap);
  if (!port) return port.error();
  links.add(std::make_unique<RoceV1Link>(std::move(*port), context.counters));
  return {};
}

void HostNetwork::add_udp(const LinkContext& context, Links& links) {
  UdpLink::Options options;
  const int socket = grant_.socket.get();
  options.socket = std::move(grant_.socket);
  options.from = grant_.is_relayed ? Receiver::From::relay : Receiver::From::udp_socket;
  options.sender = sender_for_relay(grant_.is_relayed);
  options.port = grant_.port;
  options.offload = context.settings.offload;
  options.faults = grant_.faults;
  options.seal = std::move(grant_.seal);
  options.vault.reset(fcntl(context.agent.vault(), F_DUPFD_CLOEXEC, 0));
  if (grant_.is_relayed) {
    options.change_membership = [&settings = context.settings, slot = grant_.slot](const Gid& group,
                                                                                   bool leaves) {
      return ask_for_membership(settings, slot, group, leaves);
    };
  } else {
    options.change_membership = [&device = context.device, socket](const Gid& group, bool leaves) {
      if (!leaves) return join_group(socket, device, group);
      leave_group(socket, device, group);
      return 0;
    };
  }
  links.add(
      std::make_unique<UdpLink>(std::move(options), context.device, context.tap, context.counters));
}

// --- a host of a software fabric ----------------------------------------------------------------

const port::Framing* FabricNetwork::framing() const { return &port::infiniband; }
const port::Settings* FabricNetwork::port() const { return &FabricPath::port_settings(); }

Result<void> FabricNetwork::open(const LinkContext& context, Links& links) {
  links.add(std::make_unique<FabricPath>(std::move(rings_), context.adapter));
  return {};
}

}  // namespace tulle::live
