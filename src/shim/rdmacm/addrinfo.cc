// rdma_getaddrinfo: the C library's resolver turns names into addresses, and this file adds the
// kind of queue pair and the port space that go with them. No service here resolves routes ahead
// (ibacm), so that no result carries a route.

#include <endian.h>
#include <netdb.h>

#include <cstdlib>
#include <cstring>

#include "os/cancellation.h"
#include "shim/rdmacm/newer.h"
#include "shim/rdmacm/objects.h"

namespace tulle::shim::rdmacm {
namespace {

// The program names ports by GIDs, in the notation of IPv6.
bool wants_gids(const rdma_addrinfo& hints) {
  constexpr int needed = RAI_FAMILY | RAI_NUMERICHOST;
  return hints.ai_family == AF_IB && (hints.ai_flags & needed) == needed;
}

addrinfo to_hints(const rdma_addrinfo& from) {
  addrinfo to = {};
  if ((from.ai_flags & RAI_PASSIVE) != 0) to.ai_flags |= AI_PASSIVE;
  if ((from.ai_flags & RAI_NUMERICHOST) != 0) to.ai_flags |= AI_NUMERICHOST;
  to.ai_family = from.ai_family;
  if (from.ai_family == AF_IB) to.ai_family = wants_gids(from) ? AF_INET6 : AF_UNSPEC;
  switch (from.ai_qp_type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      to.ai_socktype = SOCK_STREAM;
      break;
    case IBV_QPT_UD:
      to.ai_socktype = SOCK_DGRAM;
      break;
    default:
      break;
  }
  switch (from.ai_port_space) {
    case RDMA_PS_TCP:
      to.ai_protocol = IPPROTO_TCP;
      break;
    case RDMA_PS_IPOIB:
    case RDMA_PS_UDP:
      to.ai_protocol = IPPROTO_UDP;
      break;
    case RDMA_PS_IB:
      if (to.ai_socktype == SOCK_STREAM) to.ai_protocol = IPPROTO_TCP;
      if (to.ai_socktype == SOCK_DGRAM) to.ai_protocol = IPPROTO_UDP;
      break;
    default:
      break;
  }
  return to;
}

// The result is freed piece by piece with free(), so that each piece is allocated with malloc().
int copy(const sockaddr* from, socklen_t bytes, sockaddr*& to, socklen_t& to_bytes) {
  to = static_cast<sockaddr*>(std::malloc(bytes));
  if (to == nullptr) return EAI_MEMORY;
  std::memcpy(to, from, bytes);
  to_bytes = bytes;
  return 0;
}

// Makes an address of AF_IB of one of IPv6.
int copy_as_gid(int port_space, const sockaddr* from, sockaddr*& to, socklen_t& to_bytes) {
  const auto& in6 = *reinterpret_cast<const sockaddr_in6*>(from);
  const std::uint16_t port = be16toh(in6.sin6_port);
  sockaddr_ib ib = ib_address(&in6.sin6_addr, port_space, port);
  ib.sib_flowinfo = in6.sin6_flowinfo;
  ib.sib_scope_id = in6.sin6_scope_id;
  // A program may be given any port, but no other port space (RDMA_IB_IP_PS_MASK of the kernel).
  constexpr std::uint64_t of_port_space = 0xFFFF'FFFF'FFFF'0000, of_port = 0xFFFF;
  ib.sib_sid_mask = htobe64(of_port_space | (port != 0 ? of_port : 0));
  return copy(reinterpret_cast<const sockaddr*>(&ib), sizeof ib, to, to_bytes);
}

int fill(const rdma_addrinfo& hints, const addrinfo& from, rdma_addrinfo& to) {
  to.ai_qp_type = hints.ai_qp_type;
  if (to.ai_qp_type == 0) to.ai_qp_type = from.ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
  to.ai_port_space = hints.ai_port_space;
  if (to.ai_port_space == 0) {
    to.ai_port_space = from.ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
  }
  const bool is_gid = wants_gids(hints) && from.ai_family == AF_INET6;
  to.ai_family = is_gid ? AF_IB : from.ai_family;
  const auto copy_address = [&](sockaddr*& out, socklen_t& bytes) {
    return is_gid ? copy_as_gid(to.ai_port_space, from.ai_addr, out, bytes)
                  : copy(from.ai_addr, from.ai_addrlen, out, bytes);
  };
  char* name = from.ai_canonname != nullptr ? strdup(from.ai_canonname) : nullptr;
  if ((from.ai_flags & AI_PASSIVE) != 0) {
    to.ai_flags = RAI_PASSIVE;
    to.ai_src_canonname = name;
    return copy_address(to.ai_src_addr, to.ai_src_len);
  }
  to.ai_dst_canonname = name;
  return copy_address(to.ai_dst_addr, to.ai_dst_len);
}

int resolve(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo& out) {
  const addrinfo wanted = hints != nullptr ? to_hints(*hints) : addrinfo{};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(node, service, hints != nullptr ? &wanted : nullptr, &found);
      error != 0) {
    return error;
  }
  const int error = fill(hints != nullptr ? *hints : rdma_addrinfo{}, *found, out);
  freeaddrinfo(found);
  return error;
}

// Fills the result from the hints alone: their addresses are the result's.
int take_hints(const rdma_addrinfo& hints, rdma_addrinfo& out) {
  out.ai_flags = hints.ai_flags;
  out.ai_family = hints.ai_family;
  out.ai_qp_type = hints.ai_qp_type;
  out.ai_port_space = hints.ai_port_space;
  if (hints.ai_dst_len == 0 || hints.ai_dst_addr == nullptr) return 0;
  return copy(hints.ai_dst_addr, hints.ai_dst_len, out.ai_dst_addr, out.ai_dst_len);
}

}  // namespace

extern "C" {

// Returns 0, or -1 with errno for arguments that mean nothing, or the error of getaddrinfo(), which
// gai_strerror() puts into words.
int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** out) try {
  const NoCancellation no_cancellation;
  if (out == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return answer(EINVAL);
  }
  if (hints != nullptr && (hints->ai_flags & by_subnet_administrator) != 0) return answer(ENOTSUP);
  auto* result = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (result == nullptr) return answer(ENOMEM);
  int error = node != nullptr || service != nullptr ? resolve(node, service, hints, *result)
                                                    : take_hints(*hints, *result);
  if (error == 0 && result->ai_src_len == 0 && hints != nullptr && hints->ai_src_len != 0 &&
      hints->ai_src_addr != nullptr) {
    error = copy(hints->ai_src_addr, hints->ai_src_len, result->ai_src_addr, result->ai_src_len);
  }
  if (error != 0) {
    rdma_freeaddrinfo(result);
    return error;
  }
  *out = result;
  return 0;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

void rdma_freeaddrinfo(rdma_addrinfo* list) {
  const NoCancellation no_cancellation;
  while (list != nullptr) {
    rdma_addrinfo* next = list->ai_next;
    std::free(list->ai_connect);
    std::free(list->ai_route);
    std::free(list->ai_src_canonname);
    std::free(list->ai_dst_canonname);
    std::free(list->ai_src_addr);
    std::free(list->ai_dst_addr);
    std::free(list);
    list = next;
  }
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
