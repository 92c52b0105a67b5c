// The buffer in which a datagram crosses the API. The datagram's address is in front, in the form
// that has the index of a partition key.

#include <endian.h>
#include <infiniband/umad.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace tulle::shim::umad {
namespace {

int debug_level = 0;

ib_user_mad_t& header_of(void* umad) { return *static_cast<ib_user_mad_t*>(umad); }

}  // namespace

extern "C" {

void* umad_get_mad(void* umad) { return umad == nullptr ? nullptr : header_of(umad).data; }
size_t umad_size() { return sizeof(ib_user_mad_t); }
int umad_status(void* umad) {
  return umad == nullptr ? EINVAL : static_cast<int>(header_of(umad).status);
}
ib_mad_addr_t* umad_get_mad_addr(void* umad) {
  return umad == nullptr ? nullptr : &header_of(umad).addr;
}

int umad_set_grh(void* umad, void* mad_addr) {
  if (umad == nullptr) return -EINVAL;
  ib_mad_addr_t& to = header_of(umad).addr;
  to.grh_present = mad_addr != nullptr;
  if (mad_addr == nullptr) return 0;
  const auto& from = *static_cast<const ib_mad_addr_t*>(mad_addr);
  std::memcpy(to.gid, from.gid, sizeof to.gid);
  to.flow_label = htobe32(from.flow_label);
  to.hop_limit = from.hop_limit;
  to.traffic_class = from.traffic_class;
  return 0;
}

int umad_set_addr_net(void* umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey) {
  if (umad == nullptr) return -EINVAL;
  ib_mad_addr_t& to = header_of(umad).addr;
  to.qpn = dqp;
  to.lid = dlid;
  to.qkey = qkey;
  to.sl = static_cast<std::uint8_t>(sl);
  return 0;
}

int umad_set_addr(void* umad, int dlid, int dqp, int sl, int qkey) {
  return umad_set_addr_net(umad, htobe16(static_cast<std::uint16_t>(dlid)),
                           htobe32(static_cast<std::uint32_t>(dqp)), sl,
                           htobe32(static_cast<std::uint32_t>(qkey)));
}

int umad_set_pkey(void* umad, int pkey_index) {
  if (umad == nullptr) return -EINVAL;
  header_of(umad).addr.pkey_index = static_cast<std::uint16_t>(pkey_index);
  return 0;
}
int umad_get_pkey(void* umad) { return umad == nullptr ? 0 : header_of(umad).addr.pkey_index; }

int umad_debug(int level) {
  if (level >= 0) debug_level = level;
  return debug_level;
}

void umad_addr_dump(ib_mad_addr_t* addr) {
  if (addr == nullptr) return;
  char gid[2 * sizeof addr->gid + 1];
  for (std::size_t i = 0; i < sizeof addr->gid; ++i) {
    std::snprintf(gid + 2 * i, 3, "%02x", addr->gid[i]);
  }
  std::fprintf(stderr,
               "tulle: [%d] to QP %u, Q_Key 0x%x, LID %u, SL %d, P_Key index %d; GRH %d: GID %s, "
               "index %d, hop limit %d, traffic class %d, flow label 0x%x\n",
               getpid(), be32toh(addr->qpn), be32toh(addr->qkey), be16toh(addr->lid), addr->sl,
               addr->pkey_index, addr->grh_present, gid, addr->gid_index, addr->hop_limit,
               addr->traffic_class, be32toh(addr->flow_label));
}

void umad_dump(void* umad) {
  if (umad == nullptr) return;
  const ib_user_mad_t& header = header_of(umad);
  std::fprintf(stderr, "tulle: [%d] agent %u, status %u, timeout %u ms\n", getpid(),
               header.agent_id, header.status, header.timeout_ms);
  umad_addr_dump(&header_of(umad).addr);
}

}  // extern "C"

}  // namespace tulle::shim::umad
