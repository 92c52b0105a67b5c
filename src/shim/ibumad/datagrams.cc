// Open ports: registers for classes of management datagrams, sends and receives them. A program may
// wait for a port's descriptor by any means.

#include <infiniband/umad_types.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "os/cancellation.h"
#include "shim/enomem.h"
#include "shim/ibumad/ports.h"

namespace tulle::shim::umad {
namespace {

constexpr int class_versions = 8;             // number that a kernel keeps track of
constexpr int classes = 0x82;                 // IBTA 13.4.4: up to 0x81
constexpr std::size_t least_sent_bytes = 36;  // IBTA 13.6.2.1: includes a transaction's header

struct Ports {
  std::mutex mutex;
  std::map<int, std::shared_ptr<OpenPort>> by_descriptor;  // key: the program's
};
// Never destroyed, because other threads may use ports while the process ends.
Ports& ports() {
  static auto* instance = new Ports;
  return *instance;
}

// Returns null if the descriptor is none of a port.
std::shared_ptr<OpenPort> find_port(int descriptor) {
  const std::lock_guard lock(ports().mutex);
  const auto found = ports().by_descriptor.find(descriptor);
  return found == ports().by_descriptor.end() ? nullptr : found->second;
}

// Returns 0 or an errno.
int register_agent(int descriptor, Registration registration, int management_class, int version,
                   int& agent) {
  const auto port = find_port(descriptor);
  if (port == nullptr) return EBADF;
  if (management_class < 0 || management_class >= classes || version < 0 ||
      version >= class_versions) {
    return EINVAL;
  }
  registration.management_class = static_cast<std::uint8_t>(management_class);
  registration.class_version = static_cast<std::uint8_t>(version);
  return port->add(registration, agent);
}

// Returns a registration with a mask of 128 methods, as the API has it in longs; null means none.
Registration registration_of(const long* mask, std::uint8_t rmpp_version) {
  static_assert(sizeof(long) == sizeof(std::uint64_t));
  Registration registration;
  registration.has_transactions = rmpp_version != 0;
  if (mask != nullptr) {
    registration.methods = {static_cast<std::uint64_t>(mask[0]),
                            static_cast<std::uint64_t>(mask[1])};
  }
  return registration;
}

int result_of(int error, int agent) {
  if (error == 0) return agent;
  return fail(error == EBADF ? EINVAL : EPERM);
}

// Returns 0, or an errno if nothing can be read.
int wait_for(int descriptor, int timeout_milliseconds) {
  pollfd entry{descriptor, POLLIN, 0};
  const CancellationPoint point;
  const int ready = ::poll(&entry, 1, timeout_milliseconds);
  if (ready == 0) return ETIMEDOUT;
  return ready == 1 ? 0 : EIO;
}

}  // namespace

extern "C" {

// Besides the documented errors, this returns -EIO where no sockets can be had (EMFILE and the
// like).
int umad_open_port(const char* ca_name, int portnum) try {
  const NoCancellation no_cancellation;
  const auto all = devices();
  const Device* device = find_device(all, ca_name);
  if (device == nullptr) return fail(ENODEV);
  if (!is_port(portnum)) return fail(EINVAL);
  const bool is_on_fabric = !live::fabric_place().socket.empty();
  auto opened = is_on_fabric ? open_fabric_port() : open_roce_port(*device);
  if (!opened) {
    if (is_on_fabric) say_once(opened.error());
    return fail(EIO);
  }
  UniqueFd descriptor(opened->descriptor);
  const std::lock_guard lock(ports().mutex);
  ports().by_descriptor.insert_or_assign(descriptor.get(), std::move(opened->port));
  return descriptor.release();
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_close_port(int portid) {
  const NoCancellation no_cancellation;
  std::shared_ptr<OpenPort> closed;
  {
    const std::lock_guard lock(ports().mutex);
    const auto found = ports().by_descriptor.find(portid);
    if (found == ports().by_descriptor.end()) return fail(EINVAL);
    closed = std::move(found->second);
    ports().by_descriptor.erase(found);
  }
  close(portid);
  return 0;
}

int umad_get_fd(int portid) { return find_port(portid) != nullptr ? portid : fail(EINVAL); }

int umad_poll(int portid, int timeout_ms) {
  const NoCancellation no_cancellation;
  if (find_port(portid) == nullptr) return fail(EINVAL);
  const int error = wait_for(portid, timeout_ms);
  return error == 0 ? 0 : fail(error);
}

int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
                  long method_mask[16 / sizeof(long)]) try {
  const NoCancellation no_cancellation;
  int agent = -1;
  const int error = register_agent(portid, registration_of(method_mask, rmpp_version), mgmt_class,
                                   mgmt_version, agent);
  return result_of(error, agent);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
                      long method_mask[16 / sizeof(long)]) try {
  const NoCancellation no_cancellation;
  const bool has_oui = oui != nullptr && mgmt_class >= UMAD_CLASS_VENDOR_RANGE2_START &&
                       mgmt_class <= UMAD_CLASS_VENDOR_RANGE2_END;
  if (!has_oui) return fail(EINVAL);
  Registration registration = registration_of(method_mask, rmpp_version);
  registration.oui = std::uint32_t{oui[0]} << 16 | std::uint32_t{oui[1]} << 8 | oui[2];
  int agent = -1;
  const int error = register_agent(portid, registration, mgmt_class, 1, agent);
  return result_of(error, agent);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_register2(int port_fd, umad_reg_attr* attr, uint32_t* agent_id) try {
  const NoCancellation no_cancellation;
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
  Registration registration;
  registration.oui = wants_oui ? attr->oui : 0;
  registration.methods = {attr->method_mask[0], attr->method_mask[1]};
  registration.has_transactions = attr->rmpp_version != 0 && (attr->flags & UMAD_USER_RMPP) == 0;
  int agent = -1;
  const int error =
      register_agent(port_fd, registration, attr->mgmt_class, attr->mgmt_class_version, agent);
  if (error == 0) *agent_id = static_cast<std::uint32_t>(agent);
  return error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int umad_unregister(int portid, int agentid) try {
  const NoCancellation no_cancellation;
  const auto port = find_port(portid);
  const int error = port == nullptr ? EINVAL : port->remove(agentid);
  return error == 0 ? 0 : fail(EINVAL);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_send(int portid, int agentid, void* umad, int length, int timeout_ms, int retries) try {
  const NoCancellation no_cancellation;
  const auto port = find_port(portid);
  if (umad == nullptr || port == nullptr || !port->has(agentid)) return fail(EINVAL);
  if (length < static_cast<int>(least_sent_bytes) || length > static_cast<int>(port->longest())) {
    errno = EINVAL;
    return -EIO;
  }
  auto& header = *static_cast<ib_user_mad_t*>(umad);
  header.timeout_ms = static_cast<std::uint32_t>(timeout_ms);
  header.retries = static_cast<std::uint32_t>(retries);
  header.agent_id = static_cast<std::uint32_t>(agentid);
  Envelope envelope;
  std::memcpy(envelope.head.data(), umad, envelope.head.size());
  const auto* first = reinterpret_cast<const std::byte*>(header.data);
  envelope.mad.assign(first, first + length);
  const int error = port->send(portid, envelope);
  errno = error;
  return error == 0 ? 0 : -EIO;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int umad_recv(int portid, void* umad, int* length, int timeout_ms) try {
  const NoCancellation no_cancellation;
  const auto port = find_port(portid);
  const bool makes_sense =
      umad != nullptr && length != nullptr && *length >= static_cast<int>(Envelope::usual_bytes);
  if (!makes_sense || port == nullptr) return fail(EINVAL);
  if (timeout_ms != 0) {
    if (const int error = wait_for(portid, timeout_ms); error != 0) return fail(error);
  }
  Envelope envelope;
  const int error = port->receive(portid, static_cast<std::size_t>(*length), envelope);
  if (error == ENOSPC) *length = static_cast<int>(envelope.mad.size());
  if (error != 0) return fail(error);
  std::memcpy(umad, envelope.head.data(), envelope.head.size());
  std::memcpy(static_cast<ib_user_mad_t*>(umad)->data, envelope.mad.data(), envelope.mad.size());
  *length = static_cast<int>(envelope.mad.size());
  return static_cast<int>(envelope.header().agent_id);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::umad
