// Functions of newer releases for features that this device does not have. They return the same as
// for any device whose provider lacks the feature.

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/newer.h"

namespace tulle::shim {

extern "C" {

// Hints for a NIC's DMA over PCIe (rdma-core 59).
ibv_dmah* ibv_alloc_dmah(ibv_context*, ibv_dmah_init_attr*) { return fail(EOPNOTSUPP); }
int ibv_dealloc_dmah(ibv_dmah*) { return report(EOPNOTSUPP); }

// Device memory as a DMA buffer (rdma-core 62): only a kernel driver makes such buffers.
int ibv_dm_export_dmabuf_fd(ibv_dm*) { return fail_with_minus_one(EOPNOTSUPP); }

// Completion counters (rdma-core 65).
int _ibv_query_comp_cntr_caps(ibv_context*, ibv_comp_cntr_caps*, std::size_t) {
  return report(EOPNOTSUPP);
}
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context*, ibv_comp_cntr_init_attr*) {
  return fail(EOPNOTSUPP);
}
int ibv_destroy_comp_cntr(ibv_comp_cntr*) { return report(EOPNOTSUPP); }
int ibv_set_comp_cntr(ibv_comp_cntr*, std::uint64_t) { return report(EOPNOTSUPP); }
int ibv_set_err_comp_cntr(ibv_comp_cntr*, std::uint64_t) { return report(EOPNOTSUPP); }
int ibv_inc_comp_cntr(ibv_comp_cntr*, std::uint64_t) { return report(EOPNOTSUPP); }
int ibv_inc_err_comp_cntr(ibv_comp_cntr*, std::uint64_t) { return report(EOPNOTSUPP); }
int ibv_read_comp_cntr(ibv_comp_cntr*, std::uint64_t*) { return report(EOPNOTSUPP); }
int ibv_read_err_comp_cntr(ibv_comp_cntr*, std::uint64_t*) { return report(EOPNOTSUPP); }
int ibv_qp_attach_comp_cntr(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*) {
  return report(EOPNOTSUPP);
}

}  // extern "C"

}  // namespace tulle::shim
