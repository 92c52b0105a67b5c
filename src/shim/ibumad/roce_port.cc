// A RoCE port of this machine. It is one end of a pair of sockets, of which the program has the
// other. The library answers at once, by itself, datagrams for this host's port, and refuses the
// rest: there is no other port that a RoCE port's management could reach by a LID.

#include <infiniband/umad_types.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "live/process/agent_client.h"
#include "management/port_agents.h"
#include "rdma/verbs/types.h"
#include "shim/ibumad/ports.h"
#include "shim/identity.h"

namespace tulle::shim::umad {
namespace {

using Mad = std::array<std::byte, management::mad_bytes>;

constexpr std::uint16_t permissive_lid = 0xFFFF;  // IBTA 4.1.3

management::performance::Counters counters() {
  management::performance::Counters out;
  auto counted = live::host_counters();
  if (!counted) {
    say_once(counted.error());
    return out;
  }
  const auto& all = *counted;
  out.bytes_sent = all[live::counter_index("bytes_sent")];
  out.bytes_received = all[live::counter_index("bytes_received")];
  out.packets_sent = all[live::counter_index("packets_sent")];
  out.packets_received = all[live::counter_index("packets_received")];
  out.receive_errors = all[live::counter_index("received_truncated")] +
                       all[live::counter_index("received_unknown_opcode")] +
                       all[live::counter_index("received_bad_version")] +
                       all[live::counter_index("received_bad_icrc")] +
                       all[live::counter_index("unsealed_drops")];
  out.transmit_discards = all[live::counter_index("send_errors")];
  return out;
}

management::subnet::Identity identity(const Device& device) {
  management::subnet::Identity out;
  out.node_guid = device.node_guid;
  out.port_guid = device.port_guid;
  out.gid_prefix = device.gid_prefix;
  out.vendor_id = vendor_id;
  out.device_id = static_cast<std::uint16_t>(vendor_part_id);
  out.revision = hardware_version;
  out.state = device.state;
  out.physical_state = device.physical_state;
  out.mtu_code = verbs::mtu_code(device.roce.mtu_bytes);
  out.description = device.name;
  return out;
}

// Returns false if no management agent answers the request.
bool answer(const Device& device, const Mad& request, Mad& out) {
  const bool counts = management::needs_counters(request);
  return management::answer(request, identity(device),
                            counts ? counters() : management::performance::Counters{}, out);
}

Mad mad_of(const Envelope& envelope) {
  Mad mad{};
  std::copy_n(envelope.mad.begin(), std::min(envelope.mad.size(), mad.size()), mad.begin());
  return mad;
}

// Returns 0, or an errno if the datagram cannot be sent. A datagram without a GRH names a LID. A
// RoCE port has none (0), and Linux refuses to send by one.
int check_destination(const Device& device, const Envelope& envelope) {
  const ib_mad_addr_t& to = envelope.header().addr;
  const management::Way way = management::way_of(mad_of(envelope));
  if (way == management::Way::directed_on) return EPROTONOSUPPORT;
  if (way == management::Way::directed_here) return 0;
  if (to.grh_present == 0) {
    const std::uint16_t lid = be16toh(to.lid);
    return lid == 0 || lid == permissive_lid ? 0 : EINVAL;
  }
  const bool is_own = std::any_of(
      device.roce.gids.begin(), device.roce.gids.end(), [&to](const live::GidEntry& entry) {
        return entry.in_use() && std::memcmp(entry.gid.bytes.data(), to.gid, sizeof to.gid) == 0;
      });
  return is_own ? 0 : EHOSTUNREACH;
}

// A datagram in the pair of sockets.
struct Message {
  alignas(ib_user_mad_t) std::array<std::byte, sizeof(ib_user_mad_t)> head{};
  Mad mad{};
};

class RocePort final : public OpenPort {
 public:
  RocePort(const Device& device, UniqueFd own_end)
      : device_(device), own_end_(std::move(own_end)) {}

  // Programs may register for every class, that of subnet management too, although a RoCE port has
  // no QP0: tools register for it in addition to the class that they are about.
  int add(const Registration&, int& agent) override {
    const std::lock_guard lock(mutex_);
    const auto free = std::find(agents_.begin(), agents_.end(), false);
    if (free == agents_.end()) return ENOMEM;
    *free = true;
    agent = static_cast<int>(free - agents_.begin());
    return 0;
  }
  int remove(int agent) override {
    const std::lock_guard lock(mutex_);
    if (!is_known(agent)) return EINVAL;
    agents_[static_cast<std::size_t>(agent)] = false;
    return 0;
  }
  bool has(int agent) const override {
    const std::lock_guard lock(mutex_);
    return is_known(agent);
  }
  int send(int descriptor, const Envelope& envelope) override;
  int receive(int descriptor, std::size_t room, Envelope& envelope) override;

 private:
  bool is_known(int agent) const {
    return agent >= 0 && agent < UMAD_CA_MAX_AGENTS && agents_[static_cast<std::size_t>(agent)];
  }

  mutable std::mutex mutex_;
  Device device_;
  UniqueFd own_end_;
  std::array<bool, UMAD_CA_MAX_AGENTS> agents_{};
};

int RocePort::send(int, const Envelope& envelope) {
  if (const int refused = check_destination(device_, envelope); refused != 0) return refused;
  Message back;
  back.head = envelope.head;
  const Mad request = back.mad = mad_of(envelope);
  auto& header = *reinterpret_cast<ib_user_mad_t*>(back.head.data());
  header.status = 0;
  header.length = sizeof back;
  if (!answer(device_, request, back.mad)) {
    // No answer will come, so the request comes back as if the time for an answer had passed.
    const bool expects_answer = envelope.header().timeout_ms != 0;
    if (!expects_answer) return 0;
    header.status = ETIMEDOUT;
  }
  const ssize_t sent = ::send(own_end_.get(), &back, sizeof back, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(sizeof back) ? 0 : ENOBUFS;
}

int RocePort::receive(int descriptor, std::size_t, Envelope& envelope) {
  Message message;
  const ssize_t size = ::recv(descriptor, &message, sizeof message, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return EWOULDBLOCK;
  if (size != static_cast<ssize_t>(sizeof message)) return EIO;
  envelope.head = message.head;
  envelope.mad.assign(message.mad.begin(), message.mad.end());
  return 0;
}

}  // namespace

Result<OpenedPort> open_roce_port(const Device& device) {
  std::array<int, 2> ends{};
  constexpr int kind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (socketpair(AF_UNIX, kind, 0, ends.data()) != 0) return Error{"no sockets", EIO};
  UniqueFd programs_end(ends[0]);
  UniqueFd own_end(ends[1]);
  auto port = std::make_shared<RocePort>(device, std::move(own_end));
  return OpenedPort{std::move(port), programs_end.release()};
}

}  // namespace tulle::shim::umad
