#include "live/path/packets/relay.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "live/path/packets/multicast.h"
#include "rdma/device/multicast.h"
#include "rdma/wire/bth.h"

namespace tulle::live {
namespace {

constexpr int messages_in_a_turn = 16;
constexpr std::size_t relayed_bytes_max = 64 * 1024;
// Room for datagrams that wait for the process. The kernel may allow less.
constexpr int waiting_bytes = 2 << 20;

// Keeps those of several datagrams, each of `segment_bytes` but the last, that are for these queue
// pairs or for a multicast group, and moves them together. Returns their bytes. The kernel joins
// datagrams by their addresses, whatever queue pairs they are for.
std::size_t keep_own(std::span<std::byte> datagrams, std::size_t segment_bytes, QpNumbers numbers) {
  const std::size_t step = segment_bytes == 0 ? datagrams.size() : segment_bytes;
  std::size_t kept = 0;
  for (std::size_t at = 0; at < datagrams.size(); at += step) {
    const std::span each = datagrams.subspan(at, std::min(step, datagrams.size() - at));
    if (each.size() < sizeof(wire::Bth)) continue;
    std::span<const std::byte> rest = each;
    const QpNumber number{wire::take<wire::Bth>(rest).congestion_and_qp & wire::Bth::qp_mask};
    if (number != device::multicast_qp && !numbers.contains(number)) continue;
    std::memmove(datagrams.data() + kept, each.data(), each.size());
    kept += each.size();
  }
  return kept;
}

}  // namespace

bool take_relayed_headers(std::span<const std::byte>& message, ReceivedHeaders& out) {
  RelayedHeaders headers;
  if (message.size() < sizeof(headers)) return false;
  std::memcpy(&headers, message.data(), sizeof(headers));
  message = message.subspan(sizeof(headers));
  out.ip.source = headers.source;
  out.ip.destination = headers.destination;
  out.ip.source_port = headers.source_port;
  out.ip.traffic_class = headers.traffic_class;
  out.ip.hop_limit = headers.hop_limit;
  out.segment_bytes = headers.segment_bytes;
  return true;
}

Relay::Relay(int socket, QpNumbers numbers, UniqueFd agent_end, UniqueFd process_end)
    : socket_(socket),
      numbers_(numbers),
      agent_end_(std::move(agent_end)),
      process_end_(std::move(process_end)) {}

Relay::~Relay() {
  if (!agent_end_) return;  // moved from
  for (const auto& [group, device] : groups_) leave_group(socket_, device, group);
}

Result<Relay> Relay::create(int socket, QpNumbers numbers) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Error{fmt::format("cannot make a relay: {}", std::strerror(errno)), errno};
  }
  UniqueFd agent_end(ends[0]);
  UniqueFd process_end(ends[1]);
  // The sender's buffer counts what waits in a pair of Unix sockets.
  const int bytes = waiting_bytes;
  if (setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0) {
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }
  // The process only receives.
  shutdown(ends[1], SHUT_WR);
  return Relay(socket, numbers, std::move(agent_end), std::move(process_end));
}

bool Relay::forward() {
  thread_local const auto buffer = std::make_unique_for_overwrite<std::byte[]>(relayed_bytes_max);
  for (int i = 0; i < messages_in_a_turn; ++i) {
    sockaddr_storage name;
    alignas(cmsghdr) std::byte control[receive_control_bytes];
    iovec piece{buffer.get(), relayed_bytes_max};
    msghdr in{};
    in.msg_name = &name;
    in.msg_namelen = sizeof(name);
    in.msg_iov = &piece;
    in.msg_iovlen = 1;
    in.msg_control = control;
    in.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(socket_, &in, MSG_DONTWAIT);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return false;
    const ReceivedHeaders received = read_headers(in);
    const std::size_t kept =
        keep_own({buffer.get(), static_cast<std::size_t>(bytes)}, received.segment_bytes, numbers_);
    if (kept == 0) continue;
    RelayedHeaders headers;
    headers.source = received.ip.source;
    headers.destination = received.ip.destination;
    headers.source_port = received.ip.source_port;
    headers.segment_bytes = received.segment_bytes;
    headers.traffic_class = received.ip.traffic_class;
    headers.hop_limit = received.ip.hop_limit;
    iovec pieces[2] = {{&headers, sizeof(headers)}, {buffer.get(), kept}};
    msghdr out{};
    out.msg_iov = pieces;
    out.msg_iovlen = 2;
    if (sendmsg(agent_end_.get(), &out, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) ++lost_;
  }
  return true;
}

int Relay::join(const DeviceInfo& device, const Gid& group) {
  if (groups_.contains(group)) return 0;
  if (groups_.size() >= groups_max) return ENOBUFS;
  const int error = join_group(socket_, device, group);
  if (error != 0) return error;
  groups_.emplace(group, device);
  return 0;
}

int Relay::leave(const Gid& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return EINVAL;
  leave_group(socket_, found->second, group);
  groups_.erase(found);
  return 0;
}

}  // namespace tulle::live
