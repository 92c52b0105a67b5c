// An open device: closes it, and answers what programs ask about it.

#include <endian.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "os/cancellation.h"
#include "rdma/verbs/types.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/newer.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/private_nodes.h"
#include "shim/identity.h"

namespace tulle::shim {
namespace {

constexpr std::uint8_t only_port = 1;
// Linux lets a socket join this many unless told otherwise (net.ipv4.igmp_max_memberships).
constexpr int multicast_groups_max = 20;
constexpr std::uint32_t message_bytes_max = 1u << 30;
constexpr std::uint8_t local_ack_delay =
    15;  // 4.096 us * 2^15: a process that is not running answers late

// The capabilities that the adapter has, and no others.
constexpr unsigned capabilities = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                                  IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |
                                  IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                                  IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC;

// Every operation that may touch memory may touch memory that is paged on demand.
constexpr std::uint32_t paging_of_ud =
    IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr std::uint32_t paging_of_uc = paging_of_ud | IBV_ODP_SUPPORT_WRITE;
constexpr std::uint32_t paging_of_rc = paging_of_uc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

// A port of RoCE has no other partition than the default one.
std::size_t pkeys_of(Context& context) {
  const auto& port = context.live->info().infiniband;
  return port ? port->pkeys.size() : 1;
}
std::uint16_t pkey_at(Context& context, std::size_t index) {
  const auto& port = context.live->info().infiniband;
  return port ? port->pkeys[index] : default_pkey.value;
}

bool may_use_packets(Context& context) { return context.live->may_use_packets() == 0; }

void fill(Context& context, ibv_device_attr& out) {
  const device::Limits& limits = context.adapter().configuration().limits;
  out = {};
  std::snprintf(out.fw_ver, sizeof out.fw_ver, "%s", firmware_version);
  out.node_guid = htobe64(context.live->info().node_guid);
  out.sys_image_guid = out.node_guid;
  out.max_mr_size = limits.region_bytes;
  out.page_size_cap = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  out.vendor_id = context.like != nullptr ? context.like->vendor_id : vendor_id;
  out.vendor_part_id = context.like != nullptr ? context.like->vendor_part_id : vendor_part_id;
  out.hw_ver = hardware_version;
  out.max_qp = static_cast<int>(limits.queue_pairs);
  out.max_qp_wr = static_cast<int>(limits.work_requests);
  out.device_cap_flags = capabilities;
  if (context.is_infiniband) out.device_cap_flags |= IBV_DEVICE_AUTO_PATH_MIG;
  if (may_use_packets(context)) {
    out.device_cap_flags |= IBV_DEVICE_MANAGED_FLOW_STEERING;
    out.max_raw_ethy_qp = out.max_qp;
  }
  out.max_sge = static_cast<int>(limits.sges);
  out.max_sge_rd = static_cast<int>(limits.sges);
  out.max_cq = static_cast<int>(limits.completion_queues);
  out.max_cqe = static_cast<int>(limits.completion_entries);
  out.max_mr = static_cast<int>(limits.memory_regions);
  out.max_pd = static_cast<int>(limits.protection_domains);
  out.max_qp_rd_atom = static_cast<int>(limits.read_atomic_depth);
  out.max_res_rd_atom = static_cast<int>(limits.read_atomic_depth * limits.queue_pairs);
  out.max_qp_init_rd_atom = static_cast<int>(limits.read_atomic_depth);
  const bool has_atomics = context.like == nullptr || context.like->has_atomics;
  out.atomic_cap = has_atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  out.max_mw = static_cast<int>(limits.memory_windows);
  out.max_ah = static_cast<int>(limits.address_handles);
  out.max_mcast_grp = multicast_groups_max;
  out.max_mcast_qp_attach = static_cast<int>(limits.queue_pairs);
  out.max_total_mcast_qp_attach = multicast_groups_max * out.max_mcast_qp_attach;
  out.max_srq = static_cast<int>(limits.shared_receive_queues);
  out.max_srq_wr = static_cast<int>(limits.work_requests);
  out.max_srq_sge = static_cast<int>(limits.sges);
  out.max_pkeys = static_cast<std::uint16_t>(pkeys_of(context));
  out.local_ca_ack_delay = local_ack_delay;
  out.phys_port_cnt = 1;
}

void fill_spreading(ibv_device_attr_ex& out) {
  out.rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
  out.rss_caps.max_rwq_indirection_tables = device::RawPackets::tables_max;
  out.rss_caps.max_rwq_indirection_table_size = device::RawPackets::table_entries_max;
  out.rss_caps.rx_hash_fields_mask = hash_fields_offered();
  out.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  out.max_wq_type_rq = static_cast<std::uint32_t>(out.orig_attr.max_qp);
}

int query_device_ex(ibv_context* ibv, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t out_bytes) {
  if (ibv == nullptr || out == nullptr || out_bytes < sizeof(ibv_device_attr))
    return report(EINVAL);
  if (input != nullptr && input->comp_mask != 0) return report(EINVAL);
  Context& context = Context::of(ibv);
  ibv_device_attr_ex attributes = {};
  {
    const auto guard = context.lock();
    fill(context, attributes.orig_attr);
  }
  attributes.device_cap_flags_ex = attributes.orig_attr.device_cap_flags;
  attributes.phys_port_cnt_ex = 1;
  attributes.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attributes.odp_caps.per_transport_caps.rc_odp_caps = paging_of_rc;
  attributes.odp_caps.per_transport_caps.uc_odp_caps = paging_of_uc;
  attributes.odp_caps.per_transport_caps.ud_odp_caps = paging_of_ud;
  attributes.xrc_odp_caps = paging_of_rc;
  attributes.completion_timestamp_mask = ~std::uint64_t{0};
  attributes.hca_core_clock = clock_kilohertz;
  attributes.cq_mod_caps.max_cq_count = UINT16_MAX;
  attributes.cq_mod_caps.max_cq_period = UINT16_MAX;
  attributes.max_dm_size = device_memory_bytes_max;
  fill_tag_capabilities(context, attributes.tm_caps);
  if (attributes.orig_attr.max_raw_ethy_qp > 0) fill_spreading(attributes);
  // Programs built against an older API ask for fewer bytes, those built against a newer one for
  // more.
  std::memset(out, 0, out_bytes);
  std::memcpy(out, &attributes, std::min(out_bytes, sizeof attributes));
  return 0;
}

// Fills in what an InfiniBand port has in place of what is said of RoCE's.
void fill(const live::InfinibandPort& port, ibv_port_attr& out) {
  out.state = static_cast<ibv_port_state>(port.state);
  out.phys_state = port.physical_state;
  if (port.mtu_code != 0) out.active_mtu = static_cast<ibv_mtu>(port.mtu_code);
  out.port_cap_flags = port.capability_mask;
  out.pkey_tbl_len = static_cast<std::uint16_t>(port.pkeys.size());
  out.lid = port.lid;
  out.lmc = port.lmc;
  out.sm_lid = port.sm_lid;
  out.sm_sl = port.sm_sl;
  out.max_vl_num = port.virtual_lanes_code;
  out.active_width = port.width;
  // The C API numbers extended speeds behind the others: FDR 16, EDR 32, HDR 64, NDR 128.
  const unsigned extended =
      port.extended_speed == 0 ? 0 : std::bit_floor(unsigned{port.extended_speed});
  const unsigned speed = extended != 0 ? extended << 4 : std::bit_floor(unsigned{port.speed});
  out.active_speed = static_cast<std::uint8_t>(speed);
  out.link_layer = IBV_LINK_LAYER_INFINIBAND;
  out.flags = 0;
}

int query_port(ibv_context* ibv, std::uint8_t port, ibv_port_attr* out, std::size_t out_bytes) {
  if (ibv == nullptr || out == nullptr || port != only_port) return report(EINVAL);
  Context& context = Context::of(ibv);
  ibv_port_attr attributes = {};
  {
    const auto guard = context.lock();
    const live::DeviceInfo& info = context.live->info();
    attributes.state = info.port_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attributes.phys_state = info.port_active ? port_phys_state_link_up : port_phys_state_disabled;
    attributes.active_mtu = static_cast<ibv_mtu>(verbs::mtu_code(info.mtu_bytes));
    attributes.max_mtu = IBV_MTU_4096;
    attributes.gid_tbl_len = static_cast<int>(gid_table_length(context.adapter().gids().size()));
    attributes.port_cap_flags = port_capabilities;
    attributes.max_msg_sz = message_bytes_max;
    attributes.pkey_tbl_len = 1;
    attributes.max_vl_num = 1;
    attributes.active_width = link_width_4x;
    attributes.active_speed = link_speed_edr;
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
    if (info.infiniband) fill(*info.infiniband, attributes);
  }
  std::memset(out, 0, out_bytes);
  std::memcpy(out, &attributes, std::min(out_bytes, sizeof attributes));
  return 0;
}

int query_device_slot(ibv_context* context, ibv_device_attr* out) {
  return ibv_query_device(context, out);
}

int query_port_slot(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
  return ibv_query_port(context, port, out);
}

ibv_gid_type gid_type(const Context& context, std::uint32_t index) {
  if (context.is_infiniband) return IBV_GID_TYPE_IB;
  return context.is_roce_v1(index) ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

// Returns false if the index names no entry in use. The caller holds the device's lock.
bool find_gid(Context& context, std::uint32_t index, ibv_gid_entry& out) {
  if (!context.adapter().has_gid(index)) return false;
  const auto gids = context.adapter().gids();
  out = {};
  std::memcpy(out.gid.raw, gids[index].bytes.data(), sizeof out.gid.raw);
  out.gid_index = index;
  out.port_num = only_port;
  out.gid_type = gid_type(context, index);
  const auto& described = context.live->info().gids;
  if (index < described.size()) out.ndev_ifindex = described[index].interface_index;
  return true;
}

void destroy_all(Context& context) {
  device::Adapter& adapter = context.adapter();
  // Objects go in an order in which no object that is left refers to one that is gone.
  for (Flow* flow : context.flows) release(context, *flow);
  for (Qp* qp : context.qps) {
    detach_all(context, *qp);
    release(context, *qp);
  }
  for (IndirectionTable* table : context.tables) release(context, *table);
  for (Wq* wq : context.wqs) (void)to_errno(adapter.destroy(wq->pair));
  for (Mw* mw : context.mws) (void)to_errno(adapter.objects().destroy(mw->window));
  for (Ah* ah : context.ahs) (void)to_errno(adapter.destroy(ah->target));
  for (Srq* srq : context.srqs) (void)to_errno(adapter.objects().destroy(srq->queue));
  for (Xrcd* xrcd : context.xrcds) release_domain(context, *xrcd);
  for (Cq* cq : context.cqs) (void)to_errno(adapter.objects().destroy(cq->queue));
  // Objects that were imported elsewhere stay with their other holders.
  const auto drop_each = [&context](const auto& objects, auto is_due) {
    for (auto at = objects.begin(); at != objects.end();) {
      auto* object = *at++;  // drop() removes the object
      if (is_due(*object)) drop(context, *object), delete object;
    }
  };
  for (auto at = context.mrs.begin(); at != context.mrs.end();) {
    Mr* mr = *at++;
    if (drop(context, *mr, OtherHolders::keep_it) != 0) leave(context, *mr);
    delete mr;
  }
  drop_each(context.pds, [](const Pd& pd) { return pd.base != nullptr; });
  drop_each(context.pds, [](const Pd&) { return true; });
}

void free_all(Context& context) {
  const auto free_each = [](auto& objects) {
    for (auto* object : objects) delete object;
  };
  // The program's allocator may be gone by now, so that its memory is not returned to it.
  const auto leave_each = [](auto& objects) {
    for (auto* object : objects) {
      if (object->allocator == nullptr) {
        delete object;
      } else {
        std::destroy_at(object);
      }
    }
  };
  free_each(context.flows);
  leave_each(context.qps);
  free_each(context.tables);
  free_each(context.wqs);
  free_each(context.mws);
  free_each(context.ahs);
  leave_each(context.srqs);
  free_each(context.xrcds);
  leave_each(context.cqs);
  free_each(context.tds);
  free_each(context.dms);
}

}  // namespace

void serve_queries(Context& context) {
  context.query_device_ex = guarded<query_device_ex>;
  context.query_port = guarded<query_port>;
  context.context.ops._compat_query_device = query_device_slot;
  context.context.ops._compat_query_port = query_port_slot;
}

extern "C" {

int ibv_close_device(ibv_context* ibv) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return fail_with_minus_one(EINVAL);
  Context& context = Context::of(ibv);
  forget(context);
  remove_for_events(context);
  {
    const auto guard = context.lock();
    destroy_all(context);
  }
  free_all(context);
  if (ibv->cmd_fd >= 0) close(ibv->cmd_fd);
  pthread_mutex_destroy(&ibv->mutex);
  delete &context;
  return 0;
}

int ibv_query_device(ibv_context* ibv, ibv_device_attr* out) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr) return report(EINVAL);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  fill(context, *out);
  return 0;
}

// Programs that were built before the struct grew have room only for its first 48 bytes.
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* out) {
  const NoCancellation no_cancellation;
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(out),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_port_speed(ibv_context* ibv, std::uint32_t port, std::uint64_t* out) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr || port != only_port) return report(EINVAL);
  *out = link_speed_100_megabits;
  return 0;
}

int ibv_query_gid(ibv_context* ibv, std::uint8_t port, int index, ibv_gid* out) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr || port != only_port || index < 0) {
    return fail_with_minus_one(EINVAL);
  }
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  const auto at = static_cast<std::uint32_t>(index);
  if (at >= gid_table_length(context.adapter().gids().size())) return fail_with_minus_one(EINVAL);
  ibv_gid_entry entry = {};
  (void)find_gid(context, at, entry);  // an entry that is not in use is all zeros
  *out = entry.gid;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* ibv, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out,
                      std::uint32_t flags, std::size_t entry_bytes) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr || port != only_port) return report(EINVAL);
  if (flags != 0 || entry_bytes < sizeof(ibv_gid_entry)) return report(EOPNOTSUPP);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  if (index >= gid_table_length(context.adapter().gids().size())) return report(EINVAL);
  ibv_gid_entry entry;
  if (!find_gid(context, index, entry)) return report(ENODATA);
  std::memset(out, 0, entry_bytes);
  std::memcpy(out, &entry, sizeof entry);
  return 0;
}

// Returns the number of entries, or a negative errno.
ssize_t _ibv_query_gid_table(ibv_context* ibv, ibv_gid_entry* entries, std::size_t capacity,
                             std::uint32_t flags, std::size_t entry_bytes) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || (entries == nullptr && capacity > 0)) return -EINVAL;
  if (flags != 0 || entry_bytes < sizeof(ibv_gid_entry)) return -EOPNOTSUPP;
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  const std::size_t length = context.adapter().gids().size();
  std::size_t count = 0;
  auto* at = reinterpret_cast<std::byte*>(entries);
  for (std::uint32_t i = 0; i < length; ++i) {
    ibv_gid_entry entry;
    if (!find_gid(context, i, entry)) continue;
    if (++count > capacity) return -EINVAL;
    std::memset(at, 0, entry_bytes);
    std::memcpy(at, &entry, sizeof entry);
    at += entry_bytes;
  }
  return static_cast<ssize_t>(count);
}

// This function is of the private node, but ibv_devinfo calls it. Type 0 means InfiniBand and RoCE
// v1, type 1 RoCE v2.
int ibv_query_gid_type(ibv_context* ibv, std::uint8_t port, unsigned index, int* type) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || type == nullptr || port != only_port) return fail_with_minus_one(EINVAL);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  if (index >= gid_table_length(context.adapter().gids().size())) {
    return fail_with_minus_one(EINVAL);
  }
  const bool is_roce_v2 =
      context.adapter().has_gid(index) && gid_type(context, index) == IBV_GID_TYPE_ROCE_V2;
  *type = is_roce_v2 ? 1 : 0;
  return 0;
}
TULLE_SINCE_34(ibv_query_gid_type)

int ibv_query_pkey(ibv_context* ibv, std::uint8_t port, int index, __be16* out) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || out == nullptr || port != only_port || index < 0) {
    return fail_with_minus_one(EINVAL);
  }
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  const auto at = static_cast<std::size_t>(index);
  if (at >= pkeys_of(context)) return fail_with_minus_one(EINVAL);
  *out = htobe16(pkey_at(context, at));
  return 0;
}

int ibv_get_pkey_index(ibv_context* ibv, std::uint8_t port, __be16 pkey) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || port != only_port) return fail_with_minus_one(EINVAL);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  for (std::size_t i = 0; i < pkeys_of(context); ++i) {
    if (htobe16(pkey_at(context, i)) == pkey) return static_cast<int>(i);
  }
  return fail_with_minus_one(EINVAL);
}

}  // extern "C"

}  // namespace tulle::shim
