// Address handles, and the address of a datagram's sender.

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

using verbs::VerbsStatus;

constexpr std::uint32_t flow_label_mask = 0xF'FFFF;
constexpr std::uint8_t default_hop_limit = 64;
constexpr std::uint8_t next_header_bth = 0x1B;  // IBTA 8.3.3
constexpr std::uint8_t service_levels = 16;     // IBTA 7.6.5
constexpr std::uint8_t path_bits_max = 127;     // IBTA 7.11.1
constexpr std::uint8_t reply_hop_limit = 0xFF;  // IBTA 8.3.6: for an address made from a GRH

struct Sender {
  Gid source;
  Gid destination;  // this side's GID
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  bool has_grh = false;  // a GRH of InfiniBand or RoCE v1, and no IP header
};

// RFC 791: the 16-bit words of a valid header add up to all ones.
bool is_ipv4_header(const std::uint8_t* header) {
  if (header[0] != 0x45) return false;
  std::uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(header[i] << 8 | header[i + 1]);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return (sum & 0xFFFF) + (sum >> 16) == 0xFFFF;
}

// IBTA A17.4.5.2: the 40 bytes in front of a datagram are an IPv6 header, or 20 unused bytes and an
// IPv4 header.
bool read_grh(const ibv_grh& grh, Sender& out) {
  std::array<std::uint8_t, sizeof(ibv_grh)> bytes;
  std::memcpy(bytes.data(), &grh, bytes.size());
  if (bytes[0] >> 4 == 6) {
    const std::uint32_t first_word = be32toh(grh.version_tclass_flow);
    out.traffic_class = static_cast<std::uint8_t>(first_word >> 20);
    out.flow_label = first_word & flow_label_mask;
    out.source = to_gid(grh.sgid.raw);
    out.destination = to_gid(grh.dgid.raw);
    out.has_grh = grh.next_hdr == next_header_bth;
    return true;
  }
  const std::uint8_t* header = bytes.data() + 20;
  if (!is_ipv4_header(header)) return false;
  const auto address = [header](int at) {
    std::uint32_t word = 0;
    std::memcpy(&word, header + at, sizeof word);
    return Gid::from_ipv4(be32toh(word));
  };
  out.traffic_class = header[1];
  out.source = address(12);
  out.destination = address(16);
  return true;
}

}  // namespace

Gid to_gid(const std::uint8_t* raw) {
  Gid gid;
  std::memcpy(gid.bytes.data(), raw, gid.bytes.size());
  return gid;
}

// Returns false if the address is not complete: RoCE needs a GID, and InfiniBand a LID.
bool to_address_vector(const Context& context, const ibv_ah_attr& from, verbs::AddressVector& to) {
  const bool is_global = from.is_global != 0;
  if (context.is_infiniband ? from.dlid == 0 : !is_global) return false;
  if (context.is_infiniband && from.sl >= service_levels) return false;
  to.service_level = from.sl;
  to.port = from.port_num;
  if (context.is_infiniband) {
    to.destination.lid = Lid(from.dlid);
    to.path_bits = from.src_path_bits & path_bits_max;
  }
  if (!is_global) return true;
  to.destination.gid = to_gid(from.grh.dgid.raw);
  to.source_gid_index = from.grh.sgid_index;
  // A kernel that resolves a RoCE address takes the hop limit from the route, and programs rely on
  // that: many leave 0 or 1 here and expect to cross routers.
  const bool is_given = context.is_infiniband || from.grh.hop_limit > 1;
  to.hop_limit = is_given ? from.grh.hop_limit : default_hop_limit;
  to.traffic_class = from.grh.traffic_class;
  to.flow_label = from.grh.flow_label & flow_label_mask;
  return true;
}

void from_address_vector(const verbs::AddressVector& from, ibv_ah_attr& to) {
  to = {};
  to.is_global = from.destination.gid == Gid{} ? 0 : 1;
  to.dlid = from.destination.lid.value;
  to.src_path_bits = from.path_bits;
  std::memcpy(to.grh.dgid.raw, from.destination.gid.bytes.data(), sizeof to.grh.dgid.raw);
  to.grh.sgid_index = from.source_gid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.grh.flow_label = from.flow_label;
  to.sl = from.service_level;
  to.port_num = from.port;
}

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* ibv_pd, ibv_ah_attr* attributes) try {
  const NoCancellation no_cancellation;
  if (!is_known(ibv_pd) || attributes == nullptr) return fail(EINVAL);
  Pd& pd = Pd::of(ibv_pd);
  Context& context = Context::of(pd.context);
  verbs::AddressVector to;
  const auto refuse = [&](int error) {
    keep_refusal(context, "ibv_create_ah", error, why_no_address(context, *attributes));
    return fail(error);
  };
  if (!to_address_vector(context, *attributes, to)) {
    const auto guard = context.lock();
    return refuse(EINVAL);
  }
  if (const int error = context.live->resolve(to); error != 0) {
    keep_refusal(context, "ibv_create_ah", error, no_way_text);
    return fail(error);
  }
  auto ah = std::make_unique<Ah>();
  const auto guard = context.lock();
  VerbsStatus status{};
  ah->target = context.adapter().create_ah(*pd.pd, to, status);
  if (ah->target == nullptr) return refuse(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().destroy(ah->target)); });
  ah->context = pd.context;
  ah->pd = ibv_pd;
  ah->handle = context.next_handle++;
  context.ahs.insert(ah.get());
  return ah.release();
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int ibv_destroy_ah(ibv_ah* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Ah& ah = Ah::of(ibv);
  Context& context = Context::of(ah.context);
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().destroy(ah.target);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.ahs.erase(&ah);
  }
  delete &ah;
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* ibv, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* out) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || wc == nullptr || out == nullptr) return fail_with_minus_one(EINVAL);
  *out = {};
  out->dlid = wc->slid;
  out->src_path_bits = wc->dlid_path_bits;
  out->port_num = port;
  out->sl = Context::of(ibv).is_infiniband ? wc->sl : 0;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  Sender sender;
  if (grh == nullptr || !read_grh(*grh, sender)) return fail_with_minus_one(EINVAL);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  const auto gids = context.adapter().gids();
  std::size_t own = 0;
  const auto is_own = [&](std::size_t index) {
    return gids[index] == sender.destination && context.adapter().has_gid(index) &&
           (context.is_infiniband || context.is_roce_v1(index) == sender.has_grh);
  };
  while (own < gids.size() && !is_own(own)) ++own;
  if (own == gids.size()) return fail_with_minus_one(ENOENT);
  out->is_global = 1;
  std::memcpy(out->grh.dgid.raw, sender.source.bytes.data(), sizeof out->grh.dgid.raw);
  out->grh.sgid_index = static_cast<std::uint8_t>(own);
  out->grh.flow_label = sender.flow_label;
  out->grh.traffic_class = sender.traffic_class;
  out->grh.hop_limit = reply_hop_limit;
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
  const NoCancellation no_cancellation;
  if (pd == nullptr) return fail(EINVAL);
  ibv_ah_attr attributes;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

// Providers have a kernel look this up. Here the live device finds the way to a GID by itself.
int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t*, std::uint16_t*) {
  const NoCancellation no_cancellation;
  return fail_with_minus_one(EOPNOTSUPP);
}

}  // extern "C"

}  // namespace tulle::shim
