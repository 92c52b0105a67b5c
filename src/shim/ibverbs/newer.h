#pragma once

// Declares what newer releases of rdma-core declare, so that Tulle builds with the headers of any
// release. It is built with those that the machine has, and one library serves programs built with
// older and newer ones. The names of structs may be declared again. The content of a struct has a
// name of ours here, as the ABI lays it out (verbs.h of rdma-core 65).

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

extern "C" {
const char* ibv_wr_opcode_str(ibv_wr_opcode opcode);
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes);
void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** buffer);
void ibv_free_buf(ibv_buf* buffer);
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access);
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer);
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attributes);
int ibv_dealloc_dmah(ibv_dmah* handle);
int ibv_dm_export_dmabuf_fd(ibv_dm* dm);
int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* caps, std::size_t bytes);
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attributes);
int ibv_destroy_comp_cntr(ibv_comp_cntr* counter);
int ibv_set_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_set_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t value);
int ibv_inc_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_inc_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t amount);
int ibv_read_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value);
int ibv_read_err_comp_cntr(ibv_comp_cntr* counter, std::uint64_t* value);
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter,
                            ibv_qp_attach_comp_cntr_attr* attributes);
}

namespace tulle::shim {

// ibv_mr_init_attr: a region in all the ways that ibv_reg_mr_ex knows.
struct RegionRequest {
  std::size_t length;
  int access;
  std::uint64_t fields;  // region_field bits of the fields below that are set
  std::uint64_t iova;
  void* address;
  int fd;
  std::uint64_t fd_offset;
  ibv_dmah* dma_handle;
  ibv_buf* buffer;
};
static_assert(offsetof(RegionRequest, fields) == 16 && offsetof(RegionRequest, fd) == 40 &&
              sizeof(RegionRequest) == 72);

// The bits of ibv_mr_init_attr_mask.
namespace region_field {
inline constexpr std::uint64_t iova = 1 << 0;
inline constexpr std::uint64_t address = 1 << 1;
inline constexpr std::uint64_t fd = 1 << 2;
inline constexpr std::uint64_t fd_offset = 1 << 3;
inline constexpr std::uint64_t dma_handle = 1 << 4;
inline constexpr std::uint64_t buffer = 1 << 5;
}  // namespace region_field

// The bit IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC.
inline constexpr std::uint32_t parent_domain_allows_unprotected_memory = 1 << 2;

}  // namespace tulle::shim
