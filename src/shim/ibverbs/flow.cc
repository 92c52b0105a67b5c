// Flow steering: rules about headers, which say which frames a raw packet queue pair receives.

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using device::FlowHeader;
using device::FlowKind;
using device::FlowRule;

// Linux, include/rdma/ib_verbs.h: IB_FLOW_SPEC_SUPPORT_LAYERS.
constexpr unsigned specs_max = 10;

// A rule whose specifications are being read, one after the other.
struct Reading {
  FlowRule rule;
  bool has_ethernet = false;

  // Returns false if the rule has this header already, or one that excludes it.
  bool require(FlowHeader header, unsigned exclusive) {
    if ((rule.match.mask.headers & (exclusive | static_cast<unsigned>(header))) != 0) return false;
    rule.match.value.add(header);
    rule.match.mask.add(header);
    return true;
  }
};

constexpr unsigned bit(FlowHeader header) { return static_cast<unsigned>(header); }

// Sets one field of the value or of the mask. Both sides have ordered bytes in network order.
template <typename Value, typename Field>
void set(const Value& value, Field& to) {
  to = std::bit_cast<Field>(value);
}

// Reads what a specification asks for, and which bits of it count.
template <typename Spec, typename ReadOne>
void read_both(const Spec& spec, Reading& to, ReadOne read_one) {
  read_one(spec.val, to.rule.match.value);
  read_one(spec.mask, to.rule.match.mask);
}

int read(const ibv_flow_spec_eth& spec, Reading& to) {
  if (std::exchange(to.has_ethernet, true)) return EINVAL;
  if (spec.mask.vlan_tag != 0 && !to.require(FlowHeader::vlan, 0)) return EINVAL;
  const auto read_one = [](const ibv_flow_eth_filter& from, device::FlowFields& fields) {
    set(from.dst_mac, fields.destination_mac);
    set(from.src_mac, fields.source_mac);
    set(from.ether_type, fields.ether_type);
    set(from.vlan_tag, fields.vlan);
  };
  read_both(spec, to, read_one);
  return 0;
}

template <typename Filter>
void read_ipv4_addresses(const Filter& from, device::FlowFields& fields) {
  std::memcpy(fields.source.data(), &from.src_ip, sizeof(from.src_ip));
  std::memcpy(fields.destination.data(), &from.dst_ip, sizeof(from.dst_ip));
}

int read(const ibv_flow_spec_ipv4& spec, Reading& to) {
  if (!to.require(FlowHeader::ipv4, bit(FlowHeader::ipv6))) return EINVAL;
  read_ipv4_addresses(spec.val, to.rule.match.value);
  read_ipv4_addresses(spec.mask, to.rule.match.mask);
  return 0;
}

int read(const ibv_flow_spec_ipv4_ext& spec, Reading& to) {
  if (!to.require(FlowHeader::ipv4, bit(FlowHeader::ipv6))) return EINVAL;
  const auto read_one = [](const ibv_flow_ipv4_ext_filter& from, device::FlowFields& fields) {
    read_ipv4_addresses(from, fields);
    fields.protocol = from.proto;
    fields.traffic_class = from.tos;
    fields.hop_limit = from.ttl;
    fields.fragment_flags = from.flags;
  };
  read_both(spec, to, read_one);
  return 0;
}

int read(const ibv_flow_spec_ipv6& spec, Reading& to) {
  if (!to.require(FlowHeader::ipv6, bit(FlowHeader::ipv4))) return EINVAL;
  const auto read_one = [](const ibv_flow_ipv6_filter& from, device::FlowFields& fields) {
    set(from.src_ip, fields.source);
    set(from.dst_ip, fields.destination);
    set(from.flow_label, fields.flow_label);
    fields.protocol = from.next_hdr;
    fields.traffic_class = from.traffic_class;
    fields.hop_limit = from.hop_limit;
  };
  read_both(spec, to, read_one);
  return 0;
}

int read(const ibv_flow_spec_tcp_udp& spec, Reading& to) {
  const bool is_tcp = spec.type == IBV_FLOW_SPEC_TCP;
  const FlowHeader header = is_tcp ? FlowHeader::tcp : FlowHeader::udp;
  if (!to.require(header, bit(FlowHeader::tcp) | bit(FlowHeader::udp))) return EINVAL;
  const auto read_one = [](const ibv_flow_tcp_udp_filter& from, device::FlowFields& fields) {
    set(from.src_port, fields.source_port);
    set(from.dst_port, fields.destination_port);
  };
  read_both(spec, to, read_one);
  return 0;
}

constexpr unsigned tunnels = bit(FlowHeader::vxlan) | bit(FlowHeader::gre);

int read(const ibv_flow_spec_tunnel& spec, Reading& to) {
  if (!to.require(FlowHeader::vxlan, tunnels)) return EINVAL;
  set(spec.val.tunnel_id, to.rule.match.value.tunnel);
  set(spec.mask.tunnel_id, to.rule.match.mask.tunnel);
  return 0;
}

int read(const ibv_flow_spec_gre& spec, Reading& to) {
  if (!to.require(FlowHeader::gre, tunnels)) return EINVAL;
  const auto read_one = [](const ibv_flow_gre_filter& from, device::FlowFields& fields) {
    set(from.c_ks_res0_ver, fields.tunnel_flags);
    set(from.protocol, fields.tunnel_protocol);
    set(from.key, fields.tunnel);
  };
  read_both(spec, to, read_one);
  return 0;
}

int read(const ibv_flow_spec_esp& spec, Reading& to) {
  if (!to.require(FlowHeader::esp, 0)) return EINVAL;
  const auto read_one = [](const ibv_flow_esp_filter& from, device::FlowFields& fields) {
    set(from.spi, fields.security_index);
    set(from.seq, fields.security_sequence);
  };
  read_both(spec, to, read_one);
  return 0;
}

int read(const ibv_flow_spec_action_drop&, Reading& to) {
  return std::exchange(to.rule.drops, true) ? EINVAL : 0;
}

template <typename Spec>
int read_as(const std::byte* at, std::size_t bytes, Reading& to) {
  if (bytes != sizeof(Spec)) return EINVAL;
  Spec spec;
  std::memcpy(&spec, at, sizeof(spec));
  return read(spec, to);
}

// Returns 0 or an errno. Rules do not look inside a tunnel, and no frame is tagged or counted.
int read_spec(unsigned type, const std::byte* at, std::size_t bytes, Reading& to) {
  switch (type) {
    case IBV_FLOW_SPEC_ETH:
      return read_as<ibv_flow_spec_eth>(at, bytes, to);
    case IBV_FLOW_SPEC_IPV4:
      return read_as<ibv_flow_spec_ipv4>(at, bytes, to);
    case IBV_FLOW_SPEC_IPV4_EXT:
      return read_as<ibv_flow_spec_ipv4_ext>(at, bytes, to);
    case IBV_FLOW_SPEC_IPV6:
      return read_as<ibv_flow_spec_ipv6>(at, bytes, to);
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      return read_as<ibv_flow_spec_tcp_udp>(at, bytes, to);
    case IBV_FLOW_SPEC_VXLAN_TUNNEL:
      return read_as<ibv_flow_spec_tunnel>(at, bytes, to);
    case IBV_FLOW_SPEC_GRE:
      return read_as<ibv_flow_spec_gre>(at, bytes, to);
    case IBV_FLOW_SPEC_ESP:
      return read_as<ibv_flow_spec_esp>(at, bytes, to);
    case IBV_FLOW_SPEC_ACTION_DROP:
      return read_as<ibv_flow_spec_action_drop>(at, bytes, to);
    default:
      return EOPNOTSUPP;
  }
}

// The total size is not checked, as in rdma-core: pyverbs gives it without the specifications.
int read_specs(const ibv_flow_attr& attributes, Reading& to) {
  struct Header {
    std::uint32_t type;
    std::uint16_t size;
  };
  const auto* at = reinterpret_cast<const std::byte*>(&attributes) + sizeof(attributes);
  for (unsigned i = 0; i < attributes.num_of_specs; ++i) {
    Header header;
    std::memcpy(&header, at, sizeof(header));
    const int error = read_spec(header.type, at, header.size, to);
    if (error != 0) return error;
    at += header.size;
  }
  return 0;
}

bool to_kind(const ibv_flow_attr& attributes, FlowKind& to) {
  // A C program may put any number here, and in C++ an enumeration must not hold every number.
  unsigned from = 0;
  std::memcpy(&from, &attributes.type, sizeof(from));
  constexpr std::array<FlowKind, 4> kinds = {FlowKind::normal, FlowKind::all_default,
                                             FlowKind::multicast_default, FlowKind::sniffer};
  static_assert(IBV_FLOW_ATTR_ALL_DEFAULT == 1 && IBV_FLOW_ATTR_SNIFFER == 3);
  if (from >= kinds.size()) return false;
  to = kinds[from];
  return true;
}

// Returns 0 or an errno.
int to_rule(const ibv_flow_attr& from, FlowRule& to) {
  Reading reading;
  if (from.comp_mask != 0 || from.port != 1 || from.num_of_specs > specs_max ||
      !to_kind(from, reading.rule.kind)) {
    return EINVAL;
  }
  if ((from.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0) return EOPNOTSUPP;
  if ((from.flags & ~std::uint32_t{IBV_FLOW_ATTR_FLAGS_DONT_TRAP}) != 0) return EINVAL;
  reading.rule.priority = from.priority;
  reading.rule.passes_on = from.flags != 0;
  // Rules of the other kinds take the frames that are left, or all frames.
  const bool has_more = reading.rule.passes_on || from.num_of_specs > 0;
  if (reading.rule.kind != FlowKind::normal && has_more) return EINVAL;
  const int error = read_specs(from, reading);
  to = reading.rule;
  return error;
}

ibv_flow* create_flow(ibv_qp* ibv, ibv_flow_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  if (const int error = context.live->may_use_packets(); error != 0) return fail(error);
  // A NIC steers IPoIB's datagrams by rules too, but here they have no Ethernet frames.
  if (ibv->qp_type == IBV_QPT_UD) return fail(EOPNOTSUPP);
  if (ibv->qp_type != IBV_QPT_RAW_PACKET) return fail(EINVAL);
  auto flow = std::make_unique<Flow>();
  if (const int error = to_rule(*attributes, flow->rule); error != 0) return fail(error);
  if (const int error = context.live->watch(flow->rule); error != 0) return fail(error);
  const OnThrow undo([&] {
    if (flow->flow != nullptr) context.adapter().raw_packets().remove(flow->flow);
    context.live->unwatch(flow->rule);
  });
  flow->flow = context.adapter().raw_packets().add_flow(*qp.pair, flow->rule);
  if (flow->flow == nullptr) {
    context.live->unwatch(flow->rule);
    return fail(ENOMEM);
  }
  flow->context = ibv->context;
  flow->handle = context.next_handle++;
  context.flows.insert(flow.get());
  return flow.release();
}

int destroy_flow(ibv_flow* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  Flow& flow = Flow::of(ibv);
  Context& context = Context::of(flow.context);
  {
    const auto guard = context.lock();
    context.flows.erase(&flow);
    release(context, flow);
  }
  delete &flow;
  return 0;
}

}  // namespace

void release(Context& context, Flow& flow) {
  context.adapter().raw_packets().remove(flow.flow);
  context.live->unwatch(flow.rule);
}

void serve_flows(Context& context) {
  context.ibv_create_flow = guarded<create_flow>;
  context.ibv_destroy_flow = guarded<destroy_flow>;
}

}  // namespace tulle::shim
