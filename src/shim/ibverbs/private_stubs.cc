// Functions that rdma-core's own providers call. No provider ever drives our device, but programs
// link libmlx5 and libefa for their vendor extensions, and those libraries load only where all of
// these symbols are found.

#include <infiniband/verbs.h>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/private_nodes.h"

namespace tulle::shim {

extern "C" {

// Each provider calls one of these as it loads, by the name that carries the number of its private
// node. They do nothing, because our device is not looked for among the kernel's.
void verbs_register_driver_34(const void*) {}
void verbs_register_driver_57(const void*) {}
void verbs_register_driver_59(const void*) {}
void verbs_register_driver_64(const void*) {}
void verbs_register_driver_65(const void*) {}

bool verbs_allow_disassociate_destroy = false;
TULLE_SINCE_34(verbs_allow_disassociate_destroy)

void* _verbs_init_and_alloc_context(ibv_device*, int, std::size_t, void*, std::uint32_t) {
  return fail(EOPNOTSUPP);
}
ibv_context* verbs_open_device(ibv_device*, void*) { return fail(EOPNOTSUPP); }
void verbs_uninit_context(verbs_context*) {}
void verbs_set_ops(verbs_context*, const void*) {}
void verbs_init_cq(ibv_cq*, ibv_context*, ibv_comp_channel*, void*) {}
void __verbs_log(verbs_context*, std::uint32_t, const char*, ...) {}
int execute_ioctl(ibv_context*, void*) { return report(EOPNOTSUPP); }
unsigned __ioctl_final_num_attrs(unsigned attributes, void*) { return attributes; }
int ibv_read_ibdev_sysfs_file(char*, std::size_t, void*, const char*, ...) {
  return fail_with_minus_one(EOPNOTSUPP);
}
TULLE_SINCE_34(_verbs_init_and_alloc_context)
TULLE_SINCE_34(verbs_open_device)
TULLE_SINCE_34(verbs_uninit_context)
TULLE_SINCE_34(verbs_set_ops)
TULLE_SINCE_34(verbs_init_cq)
TULLE_SINCE_34(__verbs_log)
TULLE_SINCE_34(execute_ioctl)
TULLE_SINCE_34(__ioctl_final_num_attrs)
TULLE_SINCE_34(ibv_read_ibdev_sysfs_file)

// These allocate memory that confidential machines share with devices.
void* ibv_dmabuf_heap_cc_shared_init() { return fail(EOPNOTSUPP); }
void ibv_dmabuf_heap_destroy(void*) {}
void* ibv_dmabuf_heap_alloc(void*, std::size_t, int*) { return fail(EOPNOTSUPP); }
void ibv_dmabuf_heap_free(void*, std::size_t, int) {}
TULLE_SINCE_64(ibv_dmabuf_heap_cc_shared_init)
TULLE_SINCE_64(ibv_dmabuf_heap_destroy)
TULLE_SINCE_64(ibv_dmabuf_heap_alloc)
TULLE_SINCE_64(ibv_dmabuf_heap_free)

// These send commands to the kernel. Parameters are left out, because callers on every ABI that we
// build for drop their own arguments.
#define TULLE_REFUSE_SINCE(release, command)             \
  int ibv_cmd_##command() { return report(EOPNOTSUPP); } \
  TULLE_SINCE_##release(ibv_cmd_##command)
#define TULLE_REFUSE(command) TULLE_REFUSE_SINCE(34, command)

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
TULLE_REFUSE(create_cq_ex2)
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
TULLE_REFUSE_SINCE(59, alloc_dmah)
TULLE_REFUSE_SINCE(59, free_dmah)
TULLE_REFUSE_SINCE(59, reg_mr_ex)
TULLE_REFUSE_SINCE(59, export_dmabuf_fd)
TULLE_REFUSE_SINCE(59, query_port_speed)
TULLE_REFUSE_SINCE(65, create_comp_cntr)
TULLE_REFUSE_SINCE(65, destroy_comp_cntr)
TULLE_REFUSE_SINCE(65, inc_comp_cntr)
TULLE_REFUSE_SINCE(65, inc_err_comp_cntr)
TULLE_REFUSE_SINCE(65, qp_attach_comp_cntr)
TULLE_REFUSE_SINCE(65, query_comp_cntr_caps)
TULLE_REFUSE_SINCE(65, read_comp_cntr)
TULLE_REFUSE_SINCE(65, read_err_comp_cntr)
TULLE_REFUSE_SINCE(65, set_comp_cntr)
TULLE_REFUSE_SINCE(65, set_err_comp_cntr)

#undef TULLE_REFUSE
#undef TULLE_REFUSE_SINCE

}  // extern "C"

}  // namespace tulle::shim
