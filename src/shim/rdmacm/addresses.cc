// Addresses: binds and resolves them, and fills the C struct with what the host agent knows of an
// id.

#include <endian.h>

#include <cstdlib>
#include <cstring>

#include "os/cancellation.h"
#include "rdma/verbs/types.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

// IBTA 15.2.5.16, PathRecord: the selector that means "exactly".
constexpr std::uint8_t exactly = 2;
// The port reports four lanes of EDR.
constexpr std::uint8_t rate_100_gbps = 16;  // ibv_rate's number for 100 Gb/s

int fill_path(const live::EndpointStatus& status, Id& id) {
  if (id.route.path_rec == nullptr) {
    id.route.path_rec = static_cast<ibv_sa_path_rec*>(std::calloc(1, sizeof(ibv_sa_path_rec)));
    if (id.route.path_rec == nullptr) return ENOMEM;
  }
  id.route.num_paths = 1;
  ibv_sa_path_rec& path = *id.route.path_rec;
  path = {};
  std::memcpy(path.sgid.raw, status.path.source.bytes.data(), sizeof path.sgid.raw);
  std::memcpy(path.dgid.raw, status.path.destination.bytes.data(), sizeof path.dgid.raw);
  path.slid = htobe16(status.path.source_lid);
  path.dlid = htobe16(status.path.lid);
  path.sl = status.path.service_level;
  path.flow_label = htobe32(status.path.flow_label);
  path.hop_limit = status.path.hop_limit;
  path.traffic_class = status.path.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = htobe16(status.pkey);
  path.mtu_selector = exactly;
  path.mtu = verbs::mtu_code(status.path_mtu_bytes);
  path.rate_selector = exactly;
  path.rate = rate_100_gbps;
  path.packet_life_time_selector = exactly;
  path.packet_life_time = status.packet_lifetime;
  return 0;
}

// A service ID of AF_IB is that of IP (IBTA A11.3): a port space and a port.
constexpr unsigned port_space_shift = 16;

const sockaddr_ib& as_ib(const sockaddr* address) {
  return *reinterpret_cast<const sockaddr_ib*>(address);
}

// Returns 0 or an errno. The services of an id are those of its port space. An address whose
// service ID has none is in the id's.
int check(const Id& id, const sockaddr* address) {
  if (length_of(address) == 0) return EINVAL;
  if (address->sa_family != AF_IB) return 0;
  const std::uint64_t space = be64toh(as_ib(address).sib_sid) >> port_space_shift;
  return space == 0 || space == static_cast<std::uint64_t>(id.ps) ? 0 : EPROTONOSUPPORT;
}

// Copies an address for a program.
void to_c(const Id& id, const live::SocketAddress& from, sockaddr_storage& to) {
  if (!from.is_gid()) {
    from.copy_to(to);
    return;
  }
  to = {};
  sockaddr_ib address = ib_address(from.address.data(), id.ps, from.port);
  // The peer of a request says no port, and so no service.
  if (from.port == 0) address.sib_sid = 0;
  if (from.port != 0) address.sib_sid_mask = ~__be64{0};
  std::memcpy(&to, &address, sizeof address);
}

int bind(Id& id, const sockaddr* address) {
  if (const int error = check(id, address); error != 0) return error;
  if (!id.is_bound_unseen) {
    live::SocketAddress bound;
    const int error = id.agent().bind(id.endpoint, from_c(address), bound);
    if (error != 0) return error;
  }
  const int error = query(id);
  id.is_bound_unseen = error == ENOMEM;
  return error;
}

int resolve_address(Id& id, const sockaddr* source, const sockaddr* destination) {
  if (const int error = check(id, destination); error != 0) return error;
  if (source != nullptr) {
    if (const int error = check(id, source); error != 0) return error;
  }
  const int error = id.agent().resolve_address(id.endpoint, from_c(source), from_c(destination));
  if (error != 0) return error;
  std::memmove(&id.route.addr.dst_storage, destination, length_of(destination));
  return complete(id);
}

__be16 port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(address).sin_port;
  if (address.ss_family == AF_INET6) {
    return reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  }
  if (address.ss_family == AF_IB) {
    return htobe16(from_c(reinterpret_cast<const sockaddr*>(&address)).port);
  }
  return 0;
}

}  // namespace

void fill_address(ibv_ah_attr& to, const live::ConnectionPath& path, std::uint8_t port) {
  to.is_global = path.is_global ? 1 : 0;
  to.port_num = port;
  to.dlid = path.lid;
  to.sl = path.service_level;
  std::memcpy(to.grh.dgid.raw, path.destination.bytes.data(), sizeof to.grh.dgid.raw);
  to.grh.sgid_index = path.gid_index;
  to.grh.flow_label = path.flow_label;
  to.grh.hop_limit = path.hop_limit;
  to.grh.traffic_class = path.traffic_class;
}

socklen_t length_of(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
  if (address->sa_family == AF_IB) return sizeof(sockaddr_ib);
  return 0;
}

sockaddr_ib ib_address(const void* gid, int port_space, std::uint16_t port) {
  sockaddr_ib address = {};
  address.sib_family = AF_IB;
  address.sib_pkey = htobe16(default_pkey.value);
  std::memcpy(address.sib_addr.sib_raw, gid, sizeof address.sib_addr.sib_raw);
  address.sib_sid = htobe64(static_cast<std::uint64_t>(port_space) << port_space_shift | port);
  return address;
}

live::SocketAddress from_c(const sockaddr* address) {
  const socklen_t bytes = length_of(address);
  if (bytes == 0) return {};
  if (address->sa_family == AF_IB) {
    const sockaddr_ib& ib = as_ib(address);
    Gid gid;
    std::memcpy(gid.bytes.data(), ib.sib_addr.sib_raw, gid.bytes.size());
    const std::uint64_t service = be64toh(ib.sib_sid) & be64toh(ib.sib_sid_mask);
    return live::SocketAddress::of(gid, static_cast<std::uint16_t>(service & 0xFFFF));
  }
  return live::SocketAddress::from(address, bytes).value_or(live::SocketAddress{});
}

int query(Id& id) {
  live::EndpointStatus status;
  const int error = id.agent().query(id.endpoint, status);
  return error != 0 ? error : fill(id, status);
}

int fill(Id& id, const live::EndpointStatus& status) try {
  to_c(id, status.source, id.route.addr.src_storage);
  to_c(id, status.destination, id.route.addr.dst_storage);
  if (!status.has_device) return 0;
  if (id.device == nullptr) {
    if (const int error = find_device(status.device, id.device); error != 0) return error;
    id.verbs = id.device->verbs;
    if (id.pd == nullptr) id.pd = id.device->pd;
    id.port_num = status.port_number;
  }
  rdma_ib_addr& addresses = id.route.addr.addr.ibaddr;
  std::memcpy(addresses.sgid.raw, status.path.source.bytes.data(), sizeof addresses.sgid.raw);
  std::memcpy(addresses.dgid.raw, status.path.destination.bytes.data(), sizeof addresses.dgid.raw);
  addresses.pkey = htobe16(status.pkey);
  return status.has_path ? fill_path(status, id) : 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

extern "C" {

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(bind(Id::of(id), address));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

// The host agent answers at once, so a timeout never passes. A fabric's process asks subnet
// administration for the route, for three seconds at most.
int rdma_resolve_addr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                      int /*timeout*/) try {
  const NoCancellation no_cancellation;
  if (id == nullptr) return answer(EINVAL);
  return answer(resolve_address(Id::of(id), source, destination));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rdma_resolve_route(rdma_cm_id* id, int /*timeout*/) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || id->verbs == nullptr) return answer(EINVAL);
  Id& known = Id::of(id);
  const int error = known.agent().resolve_route(known.endpoint);
  return answer(error != 0 ? error : complete(known));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

__be16 rdma_get_src_port(rdma_cm_id* id) {
  const NoCancellation no_cancellation;
  return id != nullptr ? port_of(id->route.addr.src_storage) : __be16{0};
}

__be16 rdma_get_dst_port(rdma_cm_id* id) {
  const NoCancellation no_cancellation;
  return id != nullptr ? port_of(id->route.addr.dst_storage) : __be16{0};
}

// The host agent knows which options there are and what their bytes mean.
int rdma_set_option(rdma_cm_id* id, int level, int option, void* value, std::size_t bytes) try {
  const NoCancellation no_cancellation;
  if (id == nullptr || value == nullptr) return answer(EINVAL);
  Id& known = Id::of(id);
  known.has_set_option = true;
  return answer(known.agent().set_option(known.endpoint, static_cast<std::uint32_t>(level),
                                         static_cast<std::uint32_t>(option),
                                         {static_cast<const std::byte*>(value), bytes}));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
