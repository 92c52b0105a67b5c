// Converts between the C API's structs and those of the kernel, which librdmacm talks to. They have
// the same fields, laid out differently.

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstring>
#include <type_traits>

namespace tulle::shim {
namespace {

// Copies either way: the fields have the same names on both sides, except for the GIDs.
template <typename To, typename From>
void copy_path_fields(To& to, const From& from) {
  const auto copy = [](auto& out, auto in) { out = static_cast<std::decay_t<decltype(out)>>(in); };
  copy(to.dlid, from.dlid);
  copy(to.slid, from.slid);
  copy(to.raw_traffic, from.raw_traffic);
  copy(to.flow_label, from.flow_label);
  copy(to.hop_limit, from.hop_limit);
  copy(to.traffic_class, from.traffic_class);
  copy(to.reversible, from.reversible);
  copy(to.numb_path, from.numb_path);
  copy(to.pkey, from.pkey);
  copy(to.sl, from.sl);
  copy(to.mtu_selector, from.mtu_selector);
  copy(to.mtu, from.mtu);
  copy(to.rate_selector, from.rate_selector);
  copy(to.rate, from.rate);
  copy(to.packet_life_time_selector, from.packet_life_time_selector);
  copy(to.packet_life_time, from.packet_life_time);
  copy(to.preference, from.preference);
}

}  // namespace

extern "C" {

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* to, ib_uverbs_ah_attr* from) {
  std::memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof to->grh.dgid.raw);
  to->grh.flow_label = from->grh.flow_label;
  to->grh.sgid_index = from->grh.sgid_index;
  to->grh.hop_limit = from->grh.hop_limit;
  to->grh.traffic_class = from->grh.traffic_class;
  to->dlid = from->dlid;
  to->sl = from->sl;
  to->src_path_bits = from->src_path_bits;
  to->static_rate = from->static_rate;
  to->is_global = from->is_global;
  to->port_num = from->port_num;
}

void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from) {
  to->qp_state = static_cast<ibv_qp_state>(from->qp_state);
  to->cur_qp_state = static_cast<ibv_qp_state>(from->cur_qp_state);
  to->path_mtu = static_cast<ibv_mtu>(from->path_mtu);
  to->path_mig_state = static_cast<ibv_mig_state>(from->path_mig_state);
  to->qkey = from->qkey;
  to->rq_psn = from->rq_psn;
  to->sq_psn = from->sq_psn;
  to->dest_qp_num = from->dest_qp_num;
  to->qp_access_flags = from->qp_access_flags;
  to->cap = {from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge,
             from->max_inline_data};
  ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
  ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
  to->pkey_index = from->pkey_index;
  to->alt_pkey_index = from->alt_pkey_index;
  to->en_sqd_async_notify = from->en_sqd_async_notify;
  to->sq_draining = from->sq_draining;
  to->max_rd_atomic = from->max_rd_atomic;
  to->max_dest_rd_atomic = from->max_dest_rd_atomic;
  to->min_rnr_timer = from->min_rnr_timer;
  to->port_num = from->port_num;
  to->timeout = from->timeout;
  to->retry_cnt = from->retry_cnt;
  to->rnr_retry = from->rnr_retry;
  to->alt_port_num = from->alt_port_num;
  to->alt_timeout = from->alt_timeout;
}

void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from) {
  std::memcpy(to->dgid.raw, from->dgid, sizeof to->dgid.raw);
  std::memcpy(to->sgid.raw, from->sgid, sizeof to->sgid.raw);
  copy_path_fields(*to, *from);
}

void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from) {
  std::memcpy(to->dgid, from->dgid.raw, sizeof from->dgid.raw);
  std::memcpy(to->sgid, from->sgid.raw, sizeof from->sgid.raw);
  copy_path_fields(*to, *from);
}

}  // extern "C"

}  // namespace tulle::shim
