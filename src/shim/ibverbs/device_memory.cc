// Device memory: a NIC's memory, which programs reach only by copying and through registered
// regions. Here it is this process's memory like any other. The checks keep a program honest that
// will run over a NIC.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "os/cancellation.h"
#include "shim/ibverbs/access.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using verbs::VerbsStatus;

constexpr std::size_t word_bytes = 4;  // NICs copy in units of this size, and refuse less
constexpr std::uint32_t log_alignment_max = 12;
constexpr std::size_t alignment_bytes_min = 64;

std::atomic<std::size_t> bytes_in_use = 0;  // total of this process

int check_copy(const Dm& dm, std::uint64_t offset, std::size_t length) {
  if (offset % word_bytes != 0 || length % word_bytes != 0) return EINVAL;
  const std::size_t size = dm.memory->length;
  return offset <= size && length <= size - offset ? 0 : EFAULT;
}

int copy_to(ibv_dm* ibv, std::uint64_t offset, const void* from, std::size_t length) {
  if (ibv == nullptr || (from == nullptr && length > 0)) return report(EINVAL);
  const Dm& dm = Dm::of(ibv);
  if (const int error = check_copy(dm, offset, length); error != 0) return report(error);
  if (length > 0) std::memcpy(dm.memory->bytes.get() + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* ibv, std::uint64_t offset, std::size_t length) {
  if (ibv == nullptr || (to == nullptr && length > 0)) return report(EINVAL);
  const Dm& dm = Dm::of(ibv);
  if (const int error = check_copy(dm, offset, length); error != 0) return report(error);
  if (length > 0) std::memcpy(to, dm.memory->bytes.get() + offset, length);
  return 0;
}

// The caller holds the device's lock.
Dm* add_dm(Context& context, std::shared_ptr<DeviceMemory> memory, std::uint32_t handle) {
  auto dm = std::make_unique<Dm>();
  dm->context = &context.context;
  dm->memcpy_to_dm = copy_to;
  dm->memcpy_from_dm = copy_from;
  dm->comp_mask = IBV_DM_MASK_HANDLE;
  dm->handle = handle;
  dm->memory = std::move(memory);
  context.dms.insert(dm.get());
  const OnThrow undo([&] { context.dms.erase(dm.get()); });
  context.file->dms[handle] = dm->memory;
  return dm.release();
}

ibv_dm* alloc_dm(ibv_context* ibv, ibv_alloc_dm_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr || attributes->comp_mask != 0) return fail(EINVAL);
  if (attributes->length == 0 || attributes->length > device_memory_bytes_max ||
      attributes->log_align_req > log_alignment_max) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  if (attributes->length > device_memory_bytes_max - bytes_in_use) return fail(ENOMEM);
  const std::size_t alignment =
      std::max(std::size_t{1} << attributes->log_align_req, alignment_bytes_min);
  const std::size_t room = (attributes->length + alignment - 1) / alignment * alignment;
  auto memory = std::make_shared<DeviceMemory>();
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(alignment, room));
  if (bytes == nullptr) return fail(ENOMEM);
  std::memset(bytes, 0, room);
  memory->bytes.reset(bytes);
  memory->length = attributes->length;
  bytes_in_use += memory->length;
  return add_dm(context, std::move(memory), context.file->new_handle(context.file->dms));
}

int free_dm(ibv_dm* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  Dm& dm = Dm::of(ibv);
  Context& context = Context::of(dm.context);
  const auto guard = context.lock();
  if (dm.memory->regions > 0) return report(EBUSY);
  context.file->dms.erase(dm.handle);
  context.dms.erase(&dm);
  delete &dm;
  return 0;
}

// The region's addresses begin at 0, and no pointer leads there.
ibv_mr* reg_dm_mr(ibv_pd* ibv_pd, ibv_dm* ibv_dm, std::uint64_t offset, std::size_t length,
                  unsigned flags) {
  if (ibv_pd == nullptr || ibv_dm == nullptr || ibv_pd->context != ibv_dm->context) {
    return fail(EINVAL);
  }
  constexpr unsigned offered = unsigned{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_ZERO_BASED | unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  verbs::AccessFlags access;
  if ((flags & ~offered) != 0 || !to_access(flags, access)) return fail(EOPNOTSUPP);
  const Dm& dm = Dm::of(ibv_dm);
  const std::size_t size = dm.memory->length;
  if ((flags & IBV_ACCESS_ZERO_BASED) == 0 || offset > size || length > size - offset) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv_pd->context);
  auto mr = std::make_unique<Mr>();
  mr->shared = std::make_shared<SharedMr>();
  const auto guard = context.lock();
  VerbsStatus status{};
  mr->region = context.adapter().objects().register_memory(
      *Pd::of(ibv_pd).pd, dm.memory->bytes.get() + offset, length, 0, access, status);
  if (mr->region == nullptr) return fail(to_errno(status));
  const OnThrow undo([&, made = mr->region] {
    (void)to_errno(context.adapter().objects().destroy(made));
    --dm.memory->regions;
  });
  mr->pd = ibv_pd;
  mr->length = length;
  mr->shared->device_memory = dm.memory;
  ++dm.memory->regions;
  return add_mr(context, std::move(mr), context.file->new_handle(context.file->mrs));
}

}  // namespace

DeviceMemory::~DeviceMemory() { bytes_in_use -= length; }

void serve_device_memory(Context& context) {
  context.alloc_dm = guarded<alloc_dm>;
  context.free_dm = guarded<free_dm>;
  context.reg_dm_mr = guarded<reg_dm_mr>;
}

extern "C" {

ibv_dm* ibv_import_dm(ibv_context* ibv, std::uint32_t handle) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return fail(EINVAL);
  Context& context = Context::of(ibv);
  const auto guard = context.lock();
  const auto found = context.file->dms.find(handle);
  if (found == context.file->dms.end()) return fail(ENOENT);
  return add_dm(context, found->second, handle);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

void ibv_unimport_dm(ibv_dm* ibv) {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return;
  Dm& dm = Dm::of(ibv);
  Context& context = Context::of(dm.context);
  const auto guard = context.lock();
  context.dms.erase(&dm);
  delete &dm;
}

}  // extern "C"

}  // namespace tulle::shim
