// Buffers that the library allocates for programs, and ibv_reg_mr_ex, which registers those and all
// other memory (rdma-core 64 and 59). A NIC in a confidential machine needs such buffers to be
// unprotected memory. This device moves data with the processor, so that any memory serves.

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/newer.h"
#include "shim/ibverbs/objects.h"

// Programs hold a pointer to this struct, and the C API never says what it contains.
struct ibv_buf {
  ibv_pd* pd = nullptr;
  std::byte* memory = nullptr;
  std::size_t length = 0;
};

namespace tulle::shim {
namespace {

bool has(const RegionRequest& request, std::uint64_t field) {
  return (request.fields & field) != 0;
}

// Returns true if the range is within the buffer, and the protection domain is the buffer's.
bool is_within_buffer(const RegionRequest& request, const ibv_pd* pd) {
  const ibv_buf* buffer = request.buffer;
  if (buffer == nullptr || buffer->pd != pd || !has(request, region_field::address)) return false;
  const auto start = reinterpret_cast<std::uintptr_t>(buffer->memory);
  const auto address = reinterpret_cast<std::uintptr_t>(request.address);
  if (address < start || address - start > buffer->length) return false;
  return request.length <= buffer->length - (address - start);
}

ibv_mr* register_fd(ibv_pd* pd, const RegionRequest& request) {
  constexpr std::uint64_t needed = region_field::fd_offset | region_field::iova;
  if ((request.fields & needed) != needed || has(request, region_field::address)) {
    return fail(EINVAL);
  }
  return ibv_reg_dmabuf_mr(pd, request.fd_offset, request.length, request.iova, request.fd,
                           request.access);
}

ibv_mr* register_memory(ibv_pd* pd, const RegionRequest& request) {
  const bool is_memory =
      has(request, region_field::address) && !has(request, region_field::fd_offset);
  if (!is_memory) return fail(EINVAL);
  const std::uint64_t iova = has(request, region_field::iova)
                                 ? request.iova
                                 : reinterpret_cast<std::uintptr_t>(request.address);
  return ibv_reg_mr_iova2(pd, request.address, request.length, iova,
                          static_cast<unsigned>(request.access));
}

}  // namespace

extern "C" {

// ibv_reg_mr(3): registers memory of the program, or of a DMA buffer by its descriptor, never both.
ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes) {
  const NoCancellation no_cancellation;
  if (pd == nullptr || attributes == nullptr) return fail(EINVAL);
  const auto& request = *reinterpret_cast<const RegionRequest*>(attributes);
  constexpr std::uint64_t served = region_field::iova | region_field::address | region_field::fd |
                                   region_field::fd_offset | region_field::buffer;
  if ((request.fields & ~served) != 0) return fail(EOPNOTSUPP);
  if (has(request, region_field::buffer)) {
    const bool names_fd = has(request, region_field::fd) || has(request, region_field::fd_offset);
    if (names_fd || !is_within_buffer(request, pd)) return fail(EINVAL);
  }
  return has(request, region_field::fd) ? register_fd(pd, request) : register_memory(pd, request);
}

void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** out) {
  const NoCancellation no_cancellation;
  if (pd == nullptr || size == 0 || out == nullptr) return fail(EINVAL);
  std::unique_ptr<ibv_buf> buffer(new (std::nothrow) ibv_buf);
  if (buffer == nullptr) return fail(ENOMEM);
  void* memory = nullptr;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (const int error = posix_memalign(&memory, page, size); error != 0) return fail(error);
  *buffer = {pd, static_cast<std::byte*>(memory), size};
  *out = buffer.release();
  return memory;
}

void ibv_free_buf(ibv_buf* buffer) {
  const NoCancellation no_cancellation;
  if (buffer == nullptr) return;
  std::free(buffer->memory);
  delete buffer;
}

ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access) {
  const NoCancellation no_cancellation;
  RegionRequest request = {};
  request.length = length;
  request.access = access;
  request.fields = region_field::buffer | region_field::address;
  request.address = address;
  request.buffer = buffer;
  return ibv_reg_mr_ex(pd, reinterpret_cast<ibv_mr_init_attr*>(&request));
}

// ibv_alloc_buf(3): ENODATA says that no DMA buffer is behind the buffer.
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer) {
  const NoCancellation no_cancellation;
  return fail_with_minus_one(buffer != nullptr ? ENODATA : EINVAL);
}

}  // extern "C"

}  // namespace tulle::shim
