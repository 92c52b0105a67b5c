// Open ports: registers for classes of management datagrams, sends and receives them.
//
// A port is one end of a pair of sockets. The library has the other end. It answers at once, by
// itself, datagrams for this host's port, and refuses the rest: there is no other port that a RoCE
// port's management could reach by a LID. A program may wait for the descriptor by any means.

#include <fcntl.h>
#include <infiniband/umad_types.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "live/process/agent_client.h"
#include "management/port_agents.h"
#include "shim/enomem.h"
#include "shim/ibumad/ports.h"
#include "shim/identity.h"
#include "verbs/types.h"

namespace tulle::shim::umad {
namespace {

using Mad = std::array<std::byte, management::mad_bytes>;

constexpr int class_versions = 8;                 // number that a kernel keeps track of
constexpr int classes = 0x82;                     // IBTA 13.4.4: up to 0x81
constexpr std::size_t least_sent_bytes = 36;      // IBTA 13.6.2.1: includes a transaction's header
constexpr std::uint16_t permissive_lid = 0xFFFF;  // IBTA 4.1.3

// A datagram as it crosses the API.
struct Envelope {
  alignas(ib_user_mad_t) std::array<std::byte, sizeof(ib_user_mad_t)> head{};
  Mad mad{};

  // The C type ends in an array of no bytes, which C++ does not allow within another type.
  ib_user_mad_t& header() { return *reinterpret_cast<ib_user_mad_t*>(head.data()); }
  const ib_user_mad_t& header() const {
    return *reinterpret_cast<const ib_user_mad_t*>(head.data());
  }
};

struct Port {
  live::DeviceInfo device;
  live::UniqueFd own_end;
  std::array<bool, UMAD_CA_MAX_AGENTS> agents{};
};

struct Ports {
  std::mutex mutex;
  std::map<int, Port> by_descriptor;  // key: the program's end
};
// Never destroyed, because other threads may use ports while the process ends.
Ports& ports() {
  static auto* instance = new Ports;
  return *instance;
}

// The caller holds the lock.
Port* find_port(int descriptor) {
  const auto found = ports().by_descriptor.find(descriptor);
  return found == ports().by_descriptor.end() ? nullptr : &found->second;
}

bool is_open(int descriptor) {
  const std::lock_guard lock(ports().mutex);
  return find_port(descriptor) != nullptr;
}

// Takes a free place for a registration, which the API calls an agent. Returns none if all are
// taken.
std::optional<int> add_agent(Port& port) {
  const auto free = std::find(port.agents.begin(), port.agents.end(), false);
  if (free == port.agents.end()) return std::nullopt;
  *free = true;
  return static_cast<int>(free - port.agents.begin());
}

// Returns 0 or an errno. Programs may register for every class, that of subnet management too,
// although a RoCE port has no QP0: tools register for it beside the class that they are about.
int register_agent(int descriptor, int management_class, int version, int* agent) {
  const std::lock_guard lock(ports().mutex);
  Port* port = find_port(descriptor);
  if (port == nullptr) return EBADF;
  if (management_class < 0 || management_class >= classes || version < 0 ||
      version >= class_versions) {
    return EINVAL;
  }
  const auto added = add_agent(*port);
  if (!added) return ENOMEM;
  *agent = *added;
  return 0;
}

// --- answers ---

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
                       all[live::counter_index("received_bad_icrc")];
  out.transmit_discards = all[live::counter_index("send_errors")];
  return out;
}

management::subnet::Identity identity(const live::DeviceInfo& device) {
  management::subnet::Identity out;
  out.node_guid = device.node_guid;
  out.port_guid = port_guid(device);
  out.gid_prefix = gid_prefix(device);
  out.vendor_id = vendor_id;
  out.device_id = static_cast<std::uint16_t>(vendor_part_id);
  out.revision = hardware_version;
  out.state = device.port_active ? port_state_active : port_state_down;
  out.physical_state = device.port_active ? port_phys_state_link_up : port_phys_state_disabled;
  out.mtu_code = verbs::mtu_code(device.mtu_bytes);
  out.description = device.name;
  return out;
}

// Returns false if no management agent answers the request.
bool answer(const live::DeviceInfo& device, const Mad& request, Mad& out) {
  const bool counts = management::needs_counters(request);
  return management::answer(request, identity(device),
                            counts ? counters() : management::performance::Counters{}, out);
}

// Returns 0, or an errno if the datagram cannot be sent. A datagram without a GRH names a LID. A
// RoCE port has none (0), and Linux refuses to send by one.
int check_destination(const live::DeviceInfo& device, const Envelope& envelope) {
  const ib_mad_addr_t& to = envelope.header().addr;
  const management::Way way = management::way_of(envelope.mad);
  if (way == management::Way::directed_on) return EPROTONOSUPPORT;
  if (way == management::Way::directed_here) return 0;
  if (to.grh_present == 0) {
    const std::uint16_t lid = be16toh(to.lid);
    return lid == 0 || lid == permissive_lid ? 0 : EINVAL;
  }
  const bool is_own =
      std::any_of(device.gids.begin(), device.gids.end(), [&to](const live::GidEntry& entry) {
        return entry.in_use() && std::memcmp(entry.gid.bytes.data(), to.gid, sizeof to.gid) == 0;
      });
  return is_own ? 0 : EHOSTUNREACH;
}

// Returns 0 or an errno.
int send_from(const Port& port, Envelope envelope) {
  if (const int refused = check_destination(port.device, envelope); refused != 0) return refused;
  Envelope back = envelope;
  back.header().status = 0;
  back.header().length = sizeof back;
  if (!answer(port.device, envelope.mad, back.mad)) {
    // No answer will come, so the request comes back as if the time for an answer had passed.
    const bool expects_answer = envelope.header().timeout_ms != 0;
    if (!expects_answer) return 0;
    back.header().status = ETIMEDOUT;
  }
  const ssize_t sent = ::send(port.own_end.get(), &back, sizeof back, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(sizeof back) ? 0 : ENOBUFS;
}

// Returns 0, or an errno if nothing can be read.
int wait_for(int descriptor, int timeout_milliseconds) {
  pollfd entry{descriptor, POLLIN, 0};
  const int ready = ::poll(&entry, 1, timeout_milliseconds);
  if (ready == 0) return ETIMEDOUT;
  return ready == 1 ? 0 : EIO;
}

}  // namespace

extern "C" {

// Beside the documented errors, this returns -EIO where no sockets can be had (EMFILE and the
// like).
int umad_open_port(const char* ca_name, int portnum) try {
  const auto all = devices();
  const live::DeviceInfo* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  if (!is_port(portnum)) return fail(EINVAL);
  std::array<int, 2> ends{};
  constexpr int kind = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (socketpair(AF_UNIX, kind, 0, ends.data()) != 0) return fail(EIO);
  live::UniqueFd programs_end(ends[0]);
  Port port;
  port.own_end.reset(ends[1]);
  port.device = *device;
  const std::lock_guard lock(ports().mutex);
  ports().by_descriptor.insert_or_assign(ends[0], std::move(port));
  return programs_end.release();
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_close_port(int portid) {
  const std::lock_guard lock(ports().mutex);
  if (ports().by_descriptor.erase(portid) == 0) return fail(EINVAL);
  close(portid);
  return 0;
}

int umad_get_fd(int portid) { return is_open(portid) ? portid : fail(EINVAL); }

int umad_poll(int portid, int timeout_ms) {
  if (!is_open(portid)) return fail(EINVAL);
  const int error = wait_for(portid, timeout_ms);
  return error == 0 ? 0 : fail(error);
}

int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t, long*) {
  int agent = -1;
  const int error = register_agent(portid, mgmt_class, mgmt_version, &agent);
  if (error == 0) return agent;
  return fail(error == EBADF ? EINVAL : EPERM);
}

int umad_register_oui(int portid, int mgmt_class, uint8_t, uint8_t oui[3], long*) {
  const bool has_oui = oui != nullptr && mgmt_class >= UMAD_CLASS_VENDOR_RANGE2_START &&
                       mgmt_class <= UMAD_CLASS_VENDOR_RANGE2_END;
  if (!has_oui) return fail(EINVAL);
  return umad_register(portid, mgmt_class, 1, 0, nullptr);
}

int umad_register2(int port_fd, umad_reg_attr* attr, uint32_t* agent_id) {
  if (attr == nullptr || agent_id == nullptr) return EINVAL;
  const bool wants_oui = attr->mgmt_class >= UMAD_CLASS_VENDOR_RANGE2_START &&
                         attr->mgmt_class <= UMAD_CLASS_VENDOR_RANGE2_END;
  constexpr std::uint32_t oui_mask = 0x00FF'FFFF;
  const bool has_oui = (attr->oui & oui_mask) != 0 && (attr->oui & ~oui_mask) == 0;
  if (wants_oui && !has_oui) return EINVAL;
  if ((attr->flags & ~std::uint32_t{UMAD_USER_RMPP}) != 0) {
    attr->flags = UMAD_USER_RMPP;  // the flags that are allowed
    return EINVAL;
  }
  int agent = -1;
  const int error = register_agent(port_fd, attr->mgmt_class, attr->mgmt_class_version, &agent);
  if (error == 0) *agent_id = static_cast<std::uint32_t>(agent);
  return error;
}

int umad_unregister(int portid, int agentid) {
  const std::lock_guard lock(ports().mutex);
  Port* port = find_port(portid);
  const bool known = port != nullptr && agentid >= 0 && agentid < UMAD_CA_MAX_AGENTS &&
                     port->agents[static_cast<std::size_t>(agentid)];
  if (!known) return fail(EINVAL);
  port->agents[static_cast<std::size_t>(agentid)] = false;
  return 0;
}

int umad_send(int portid, int agentid, void* umad, int length, int timeout_ms, int retries) try {
  Port copy;
  {
    const std::lock_guard lock(ports().mutex);
    const Port* port = find_port(portid);
    const bool known = umad != nullptr && port != nullptr && agentid >= 0 &&
                       agentid < UMAD_CA_MAX_AGENTS &&
                       port->agents[static_cast<std::size_t>(agentid)];
    if (!known) return fail(EINVAL);
    copy.device = port->device;
    // The port may be closed in the meantime.
    copy.own_end.reset(fcntl(port->own_end.get(), F_DUPFD_CLOEXEC, 0));
  }
  // Longer datagrams belong to transactions of many packets, which no class here has.
  if (length < static_cast<int>(least_sent_bytes) ||
      length > static_cast<int>(management::mad_bytes)) {
    errno = EINVAL;
    return -EIO;
  }
  auto& header = *static_cast<ib_user_mad_t*>(umad);
  header.timeout_ms = static_cast<std::uint32_t>(timeout_ms);
  header.retries = static_cast<std::uint32_t>(retries);
  header.agent_id = static_cast<std::uint32_t>(agentid);
  Envelope envelope;
  std::memcpy(envelope.head.data(), umad, envelope.head.size());
  std::memcpy(envelope.mad.data(), header.data, static_cast<std::size_t>(length));
  const int error = send_from(copy, envelope);
  errno = error;
  return error == 0 ? 0 : -EIO;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_recv(int portid, void* umad, int* length, int timeout_ms) {
  const bool makes_sense =
      umad != nullptr && length != nullptr && *length >= static_cast<int>(management::mad_bytes);
  if (!makes_sense || !is_open(portid)) return fail(EINVAL);
  if (timeout_ms != 0) {
    if (const int error = wait_for(portid, timeout_ms); error != 0) return fail(error);
  }
  Envelope envelope;
  const ssize_t size = ::recv(portid, &envelope, sizeof envelope, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return fail(EWOULDBLOCK);
  if (size != static_cast<ssize_t>(sizeof envelope)) return fail(EIO);
  std::memcpy(umad, &envelope, sizeof envelope);
  *length = static_cast<int>(management::mad_bytes);
  return static_cast<int>(envelope.header().agent_id);
}

}  // extern "C"

}  // namespace tulle::shim::umad
