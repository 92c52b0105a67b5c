// The symbols that programs of 2006 bind to (version node IBVERBS_1.0), and the entry point of
// their drivers. Their structs differ, and no such program is left. The list of devices that such a
// program would start from is refused, so that it never reaches the other functions with an object.

#include <infiniband/verbs.h>

#include "shim/ibverbs/errors.h"

namespace tulle::shim {

using Pointer = void*;

// Parameters are left out, because callers on every ABI that we build for drop their own arguments.
#define TULLE_VERSIONED(name, version) __asm__(".symver " #name "_1_0, " #name "@" version)
#define TULLE_REFUSE_POINTER(name)                             \
  extern "C" Pointer name##_1_0() { return fail(EOPNOTSUPP); } \
  TULLE_VERSIONED(name, "IBVERBS_1.0")
#define TULLE_REFUSE_ERRNO(name)                             \
  extern "C" int name##_1_0() { return report(EOPNOTSUPP); } \
  TULLE_VERSIONED(name, "IBVERBS_1.0")
#define TULLE_REFUSE_MINUS_ONE(name)                                      \
  extern "C" int name##_1_0() { return fail_with_minus_one(EOPNOTSUPP); } \
  TULLE_VERSIONED(name, "IBVERBS_1.0")
#define TULLE_REFUSE_SILENTLY(name) \
  extern "C" void name##_1_0() {}   \
  TULLE_VERSIONED(name, "IBVERBS_1.0")

TULLE_REFUSE_POINTER(ibv_get_device_list);
TULLE_REFUSE_SILENTLY(ibv_free_device_list);
TULLE_REFUSE_POINTER(ibv_get_device_name);
TULLE_REFUSE_POINTER(ibv_open_device);
TULLE_REFUSE_MINUS_ONE(ibv_close_device);
TULLE_REFUSE_MINUS_ONE(ibv_get_async_event);
TULLE_REFUSE_SILENTLY(ibv_ack_async_event);
TULLE_REFUSE_ERRNO(ibv_query_device);
TULLE_REFUSE_ERRNO(ibv_query_port);
TULLE_REFUSE_MINUS_ONE(ibv_query_gid);
TULLE_REFUSE_MINUS_ONE(ibv_query_pkey);
TULLE_REFUSE_POINTER(ibv_alloc_pd);
TULLE_REFUSE_ERRNO(ibv_dealloc_pd);
TULLE_REFUSE_POINTER(ibv_reg_mr);
TULLE_REFUSE_ERRNO(ibv_dereg_mr);
TULLE_REFUSE_POINTER(ibv_create_cq);
TULLE_REFUSE_ERRNO(ibv_resize_cq);
TULLE_REFUSE_ERRNO(ibv_destroy_cq);
TULLE_REFUSE_MINUS_ONE(ibv_get_cq_event);
TULLE_REFUSE_SILENTLY(ibv_ack_cq_events);
TULLE_REFUSE_POINTER(ibv_create_srq);
TULLE_REFUSE_ERRNO(ibv_modify_srq);
TULLE_REFUSE_ERRNO(ibv_query_srq);
TULLE_REFUSE_ERRNO(ibv_destroy_srq);
TULLE_REFUSE_POINTER(ibv_create_qp);
TULLE_REFUSE_ERRNO(ibv_query_qp);
TULLE_REFUSE_ERRNO(ibv_modify_qp);
TULLE_REFUSE_ERRNO(ibv_destroy_qp);
TULLE_REFUSE_POINTER(ibv_create_ah);
TULLE_REFUSE_ERRNO(ibv_destroy_ah);
TULLE_REFUSE_ERRNO(ibv_attach_mcast);
TULLE_REFUSE_ERRNO(ibv_detach_mcast);

extern "C" std::uint64_t ibv_get_device_guid_1_0() { return 0; }
TULLE_VERSIONED(ibv_get_device_guid, "IBVERBS_1.0");

extern "C" void ibv_register_driver_1_0() {}
TULLE_VERSIONED(ibv_register_driver, "IBVERBS_1.1");

}  // namespace tulle::shim
