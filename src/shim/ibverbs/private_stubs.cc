// What rdma-core's own providers call. None ever drives our device, but programs link libmlx5 and
// libefa for their vendor extensions, and those load only where all of these symbols are found.

#include <infiniband/verbs.h>

#include "shim/ibverbs/errors.h"

namespace tulle::shim {

extern "C" {

// Called by each provider as it loads. The device is not looked for among the kernel's.
void verbs_register_driver_34(const void*) {}

bool verbs_allow_disassociate_destroy = false;

void* _verbs_init_and_alloc_context(ibv_device*, int, std::size_t, void*, std::uint32_t) {
  return fail(EOPNOTSUPP);
}
ibv_context* verbs_open_device(ibv_device*, void*) { return fail(EOPNOTSUPP); }
void verbs_uninit_context(verbs_context*) {}
void verbs_set_ops(verbs_context*, const void*) {}
void verbs_init_cq(ibv_cq*, ibv_context*, ibv_comp_channel*, void*) {}
void __verbs_log(verbs_context*, std::uint32_t, const char*, ...) {}
int execute_ioctl(ibv_context*, void*) { return EOPNOTSUPP; }
unsigned __ioctl_final_num_attrs(unsigned attributes, void*) { return attributes; }
int ibv_read_ibdev_sysfs_file(char*, std::size_t, void*, const char*, ...) {
  return fail_with_minus_one(EOPNOTSUPP);
}

// The commands to the kernel. Callers on every ABI that we build for drop their own arguments,
// which are left out here.
#define TULLE_REFUSE(command) \
  int ibv_cmd_##command() { return EOPNOTSUPP; }

TULLE_REFUSE(advise_mr)
TULLE_REFUSE(alloc_dm)
TULLE_REFUSE(alloc_mw)
TULLE_REFUSE(alloc_pd)
TULLE_REFUSE(attach_mcast)
TULLE_REFUSE(close_xrcd)
TULLE_REFUSE(create_ah)
TULLE_REFUSE(create_counters)
TULLE_REFUSE(create_cq)
TULLE_REFUSE(create_cq_ex)
TULLE_REFUSE(create_flow)
TULLE_REFUSE(create_flow_action_esp)
TULLE_REFUSE(create_qp)
TULLE_REFUSE(create_qp_ex)
TULLE_REFUSE(create_qp_ex2)
TULLE_REFUSE(create_rwq_ind_table)
TULLE_REFUSE(create_srq)
TULLE_REFUSE(create_srq_ex)
TULLE_REFUSE(create_wq)
TULLE_REFUSE(dealloc_mw)
TULLE_REFUSE(dealloc_pd)
TULLE_REFUSE(dereg_mr)
TULLE_REFUSE(destroy_ah)
TULLE_REFUSE(destroy_counters)
TULLE_REFUSE(destroy_cq)
TULLE_REFUSE(destroy_flow)
TULLE_REFUSE(destroy_flow_action)
TULLE_REFUSE(destroy_qp)
TULLE_REFUSE(destroy_rwq_ind_table)
TULLE_REFUSE(destroy_srq)
TULLE_REFUSE(destroy_wq)
TULLE_REFUSE(detach_mcast)
TULLE_REFUSE(free_dm)
TULLE_REFUSE(get_context)
TULLE_REFUSE(modify_cq)
TULLE_REFUSE(modify_flow_action_esp)
TULLE_REFUSE(modify_qp)
TULLE_REFUSE(modify_qp_ex)
TULLE_REFUSE(modify_srq)
TULLE_REFUSE(modify_wq)
TULLE_REFUSE(open_qp)
TULLE_REFUSE(open_xrcd)
TULLE_REFUSE(poll_cq)
TULLE_REFUSE(post_recv)
TULLE_REFUSE(post_send)
TULLE_REFUSE(post_srq_recv)
TULLE_REFUSE(query_context)
TULLE_REFUSE(query_device_any)
TULLE_REFUSE(query_mr)
TULLE_REFUSE(query_port)
TULLE_REFUSE(query_qp)
TULLE_REFUSE(query_srq)
TULLE_REFUSE(read_counters)
TULLE_REFUSE(reg_dm_mr)
TULLE_REFUSE(reg_dmabuf_mr)
TULLE_REFUSE(reg_mr)
TULLE_REFUSE(req_notify_cq)
TULLE_REFUSE(rereg_mr)
TULLE_REFUSE(resize_cq)

#undef TULLE_REFUSE

}  // extern "C"

}  // namespace tulle::shim
