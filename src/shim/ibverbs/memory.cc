// Protection domains, memory regions and memory windows.

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "os/cancellation.h"
#include "shim/ibverbs/access.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

using verbs::VerbsStatus;

// A kernel pins the pages of a region, and returns EFAULT where there are none. Here a peer's
// access would end the process much later, so that the check happens now: MS_ASYNC writes nothing,
// and fails where the range has a hole.
bool is_mapped(void* address, std::size_t length) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t into_page = reinterpret_cast<std::uintptr_t>(address) & (page - 1);
  const int saved = errno;
  const bool mapped =
      msync(static_cast<std::byte*>(address) - into_page, length + into_page, MS_ASYNC) == 0;
  errno = saved;
  return mapped;
}

// Returns false if the page of an address cannot be written to. The kernel adds nothing to the bits
// of a word there, in one step, as no thread of the program can notice.
bool takes_writes(std::uintptr_t address) {
  constexpr int or_nothing = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0);
  std::uint32_t nobody_waits_here = 0;
  const int saved = errno;
  const bool faults =
      syscall(SYS_futex, &nobody_waits_here, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, nullptr,
              address & ~std::uintptr_t{sizeof(std::uint32_t) - 1}, or_nothing) < 0 &&
      errno == EFAULT;
  errno = saved;
  return !faults;
}

// A kernel pins the pages of a region that may be written to for writing
// (drivers/infiniband/core/umem.c, ib_umem_get). Memory that is read-only here is found at the
// region's ends; in its middle, a peer's access finds it.
bool takes_writes(void* address, std::size_t length) {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  return takes_writes(first) && takes_writes(first + length - 1);
}

void destroy(Context& context, verbs::MemoryRegion* region) {
  (void)to_errno(context.adapter().objects().destroy(region));
}

struct Range {
  void* address = nullptr;
  std::size_t length = 0;
  std::uint64_t iova = 0;
};

// Returns 0 or an errno. A program asks by no address and the greatest length for a region over all
// of the address space, whatever comes to be mapped there (ibv_reg_mr(3)). This region begins
// behind the page that no program has, so that its memory has an address.
int check_range(Range& range, verbs::AccessFlags access) {
  const bool on_demand = access.has(verbs::Access::on_demand);
  const auto start = reinterpret_cast<std::uintptr_t>(range.address);
  if (on_demand && start == 0 && range.length == SIZE_MAX) {
    if (range.iova != 0 || access.has(verbs::Access::zero_based)) return EINVAL;
    constexpr std::uintptr_t first_page = 4'096;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    range = {reinterpret_cast<void*>(first_page), SIZE_MAX - first_page, first_page};
    return 0;
  }
  if (range.length == 0 || start + range.length < range.length) return EINVAL;
  if (on_demand) return 0;
  const bool is_usable =
      is_mapped(range.address, range.length) &&
      (!access.has(verbs::Access::local_write) || takes_writes(range.address, range.length));
  return is_usable ? 0 : EFAULT;
}

// Memory that is paged on demand may change its mappings at any time.
live::SharedRegions::Hold share(const Range& range, verbs::AccessFlags access) {
  if (access.has(verbs::Access::on_demand)) return {};
  return live::Device::share_memory(range.address, range.length);
}

ibv_mr* register_region(ibv_pd* ibv_pd, void* address, std::size_t length, std::uint64_t iova,
                        unsigned flags) try {
  if (!is_known(ibv_pd)) return fail(EINVAL);
  verbs::AccessFlags access;
  Pd& pd = Pd::of(ibv_pd);
  Context& context = Context::of(pd.context);
  const auto refuse = [&](int error, const char* why) {
    keep_refusal(context, "ibv_reg_mr", error, why);
    return fail(error);
  };
  if (!to_access(flags, access)) return refuse(EOPNOTSUPP, "an access flag is not offered");
  Range range{address, length, iova};
  if (const int error = check_range(range, access); error != 0) {
    return refuse(error, error == EFAULT
                             ? "the memory is not mapped, or it is read-only and the "
                               "access has IBV_ACCESS_LOCAL_WRITE"
                             : "the length is 0, or the range leaves the address space");
  }
  auto shared = std::make_shared<SharedMr>();
  const bool is_pinned = context.is_strict && !access.has(verbs::Access::on_demand);
  if (is_pinned && !shared->pinned.take(range.address, range.length)) {
    return refuse(ENOMEM, "the process would lock more memory than RLIMIT_MEMLOCK (ulimit -l)");
  }
  const auto hold = share(range, access);
  const auto guard = context.lock();
  VerbsStatus status{};
  auto* region = context.adapter().objects().register_memory(*pd.pd, range.address, range.length,
                                                             range.iova, access, status);
  if (region == nullptr) {
    return refuse(to_errno(status), status == VerbsStatus::out_of_memory
                                        ? "the device has no more regions"
                                        : "remote writes and atomics need IBV_ACCESS_LOCAL_WRITE");
  }
  const OnThrow undo([&] { destroy(context, region); });
  return add_region(context, ibv_pd, region, address, length, std::move(shared));
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

ibv_mr* alloc_null_mr(ibv_pd* ibv_pd) {
  if (!is_known(ibv_pd)) return fail(EINVAL);
  Context& context = Context::of(ibv_pd->context);
  const auto guard = context.lock();
  VerbsStatus status{};
  auto* region = context.adapter().objects().create_null_region(*Pd::of(ibv_pd).pd, status);
  if (region == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { destroy(context, region); });
  return add_region(context, ibv_pd, region, nullptr, SIZE_MAX);
}

// Returns null, with errno, if the buffer cannot be mapped. An exporter need not allow mapping.
std::byte* map_buffer(int fd, std::uint64_t offset, std::size_t length, verbs::AccessFlags access,
                      SharedMr& out) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail(EBADF);
  if (offset + length > static_cast<std::uint64_t>(status.st_size)) return fail(EINVAL);
  const std::size_t into_page = offset & (static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) - 1);
  const int write = access.has(verbs::Access::local_write) ? PROT_WRITE : 0;
  void* mapping = mmap(nullptr, length + into_page, PROT_READ | write, MAP_SHARED, fd,
                       static_cast<off_t>(offset - into_page));
  if (mapping == MAP_FAILED) return fail(errno == ENODEV ? EOPNOTSUPP : errno);
  out.mapping = mapping;
  out.mapping_bytes = length + into_page;
  return static_cast<std::byte*>(mapping) + into_page;
}

ibv_mw* alloc_mw(ibv_pd* ibv_pd, ibv_mw_type type) {
  if (!is_known(ibv_pd) || (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)) return fail(EINVAL);
  Pd& pd = Pd::of(ibv_pd);
  Context& context = Context::of(pd.context);
  auto mw = std::make_unique<Mw>();
  const auto guard = context.lock();
  VerbsStatus status{};
  mw->window = context.adapter().objects().create_window(
      *pd.pd, type == IBV_MW_TYPE_1 ? verbs::WindowType::type1 : verbs::WindowType::type2, status);
  if (mw->window == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().objects().destroy(mw->window)); });
  mw->context = pd.context;
  mw->pd = ibv_pd;
  mw->rkey = mw->window->rkey().value;
  mw->handle = context.next_handle++;
  mw->type = type;
  mw->window->cookie = mw.get();
  context.mws.insert(mw.get());
  return mw.release();
}

int dealloc_mw(ibv_mw* ibv) {
  if (!is_known(ibv)) return report(EINVAL);
  Mw& mw = Mw::of(ibv);
  Context& context = Context::of(mw.context);
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().objects().destroy(mw.window);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.mws.erase(&mw);
  }
  delete &mw;
  return 0;
}

// Binds windows of type 1 only: programs bind type 2 windows by a work request. Without a memory
// region the call unbinds.
int bind_mw(ibv_qp* ibv_qp, ibv_mw* ibv, ibv_mw_bind* bind) {
  if (ibv_qp == nullptr || ibv == nullptr || bind == nullptr) return report(EINVAL);
  const ibv_mw_bind_info& info = bind->bind_info;
  if (ibv->type != IBV_MW_TYPE_1 || (info.mr == nullptr && info.length != 0)) return report(EINVAL);
  Mw& mw = Mw::of(ibv);
  Context& context = Context::of(mw.context);
  verbs::SendRequest request;
  request.wr_id = bind->wr_id;
  request.opcode = verbs::SendOpcode::bind_window;
  if (!to_send_flags(bind->send_flags, request.flags)) return report(EINVAL);
  if (!to_access(info.mw_access_flags, request.window_access)) return report(EOPNOTSUPP);
  request.window = mw.window;
  request.window_region = info.mr != nullptr ? Mr::of(info.mr).region : nullptr;
  request.window_address = info.addr;
  request.window_length = info.length;
  // The caller learns the new key now, however long the bind waits behind other work.
  request.window_rkey = RemoteKey{ibv_inc_rkey(mw.rkey)};

  const auto guard = context.lock();
  Qp& qp = Qp::of(ibv_qp);
  const int error = post_request(context, qp, request);
  context.live->transmit();
  if (error == 0) {
    mw.rkey = request.window_rkey.value;
  } else {
    keep_refused_work(context, "ibv_bind_mw", error, why_not_posted(context, qp, request));
  }
  return report(error);
}

}  // namespace

Mr* add_region(Context& context, ibv_pd* pd, verbs::MemoryRegion* region, void* address,
               std::size_t length, std::shared_ptr<SharedMr> shared) {
  auto mr = std::make_unique<Mr>();
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->region = region;
  mr->shared = shared != nullptr ? std::move(shared) : std::make_shared<SharedMr>();
  return add_mr(context, std::move(mr), context.file->new_handle(context.file->mrs));
}

void serve_memory(Context& context) {
  context.alloc_null_mr = guarded<alloc_null_mr>;
  context.context.ops.alloc_mw = guarded<alloc_mw>;
  context.context.ops.dealloc_mw = guarded<dealloc_mw>;
  context.context.ops.bind_mw = guarded<bind_mw>;
}

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* ibv) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr) return fail(EINVAL);
  Context& context = Context::of(ibv);
  auto pd = std::make_unique<Pd>();
  const auto guard = context.lock();
  VerbsStatus status{};
  pd->shared = std::make_shared<SharedPd>();
  pd->pd = context.adapter().objects().create_pd(status);
  if (pd->pd == nullptr) return fail(to_errno(status));
  const OnThrow undo(
      [&, made = pd->pd] { (void)to_errno(context.adapter().objects().destroy(made)); });
  return add_pd(context, std::move(pd), context.file->new_handle(context.file->pds));
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int ibv_dealloc_pd(ibv_pd* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Pd& pd = Pd::of(ibv);
  Context& context = Context::of(pd.context);
  {
    const auto guard = context.lock();
    // A parent domain may go before objects that were made with it, but not before those in its
    // memory.
    const bool in_use = pd.base == nullptr ? pd.pd->users > 0 : pd.allocator.use_count() > 1;
    if (pd.parents > 0 || in_use) return report(EBUSY);
    drop(context, pd);
  }
  delete &pd;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  const NoCancellation no_cancellation;
  return register_region(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                         static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                        int access) {
  const NoCancellation no_cancellation;
  return register_region(pd, address, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                         unsigned access) {
  const NoCancellation no_cancellation;
  return register_region(pd, address, length, iova, access);
}

// Registers another device's buffer, if the kernel lets it be mapped.
ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* ibv_pd, std::uint64_t offset, std::size_t length,
                          std::uint64_t iova, int fd, int flags) try {
  const NoCancellation no_cancellation;
  if (ibv_pd == nullptr || length == 0 || offset + length < length) return fail(EINVAL);
  constexpr unsigned refused = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;
  verbs::AccessFlags access;
  if ((static_cast<unsigned>(flags) & refused) != 0 ||
      !to_access(static_cast<unsigned>(flags), access)) {
    return fail(EOPNOTSUPP);
  }
  auto shared = std::make_shared<SharedMr>();
  std::byte* const memory = map_buffer(fd, offset, length, access, *shared);
  if (memory == nullptr) return nullptr;
  Context& context = Context::of(ibv_pd->context);
  const auto guard = context.lock();
  VerbsStatus status{};
  auto* region = context.adapter().objects().register_memory(*Pd::of(ibv_pd).pd, memory, length,
                                                             iova, access, status);
  if (region == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { destroy(context, region); });
  Mr* mr = add_region(context, ibv_pd, region, nullptr, length);
  std::swap(mr->shared->mapping, shared->mapping);
  std::swap(mr->shared->mapping_bytes, shared->mapping_bytes);
  return mr;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

// The returned code says what became of the region. Here it is as before wherever the call fails.
int ibv_rereg_mr(ibv_mr* ibv, int flags, ibv_pd* ibv_pd, void* address, std::size_t length,
                 int access) try {
  const NoCancellation no_cancellation;
  const auto refuse = [](int error) {
    errno = error;
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  if (ibv == nullptr || flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) {
    return refuse(EINVAL);
  }
  Mr& mr = Mr::of(ibv);
  // A region of other than ordinary memory, or with other holders, stays as it is.
  if (mr.region == nullptr || mr.addr == nullptr || mr.shared->holders.size() > 1) {
    return refuse(EINVAL);
  }
  Context& context = Context::of(mr.context);
  device::Objects::Reregistration change;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    if (ibv_pd == nullptr || ibv_pd->context != mr.context) return refuse(EINVAL);
    change.pd = Pd::of(ibv_pd).pd;
  }
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    Range range{address, length, reinterpret_cast<std::uintptr_t>(address)};
    if (const int error = check_range(range, mr.region->access); error != 0) return refuse(error);
    change.change_range = true;
    change.address = address;
    change.length = length;
    change.iova = reinterpret_cast<std::uintptr_t>(address);
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    change.change_access = true;
    if (!to_access(static_cast<unsigned>(access), change.access)) return refuse(EOPNOTSUPP);
  }
  // The file of the memory that the region keeps must not be given up meanwhile.
  const Range kept{mr.addr, mr.length, mr.region->iova};
  const Range wanted{address, length, reinterpret_cast<std::uintptr_t>(address)};
  const live::SharedRegions::Hold hold =
      share(change.change_range ? wanted : kept, mr.region->access);
  {
    const auto guard = context.lock();
    const auto turn = context.live->memory_turn();
    const VerbsStatus status = context.adapter().objects().reregister(*mr.region, change);
    if (status != VerbsStatus::ok) return refuse(to_errno(status));
    if (change.pd != nullptr) mr.pd = ibv_pd;
    if (change.change_range) {
      mr.addr = address;
      mr.length = length;
    }
    mr.lkey = mr.region->lkey().value;
    mr.rkey = mr.region->rkey().value;
  }
  if (change.change_range) live::Device::tidy_memory();
  return 0;
} catch (const std::bad_alloc&) {
  return (errno = ENOMEM, static_cast<int>(IBV_REREG_MR_ERR_INPUT));
}

int ibv_dereg_mr(ibv_mr* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Mr& mr = Mr::of(ibv);
  Context& context = Context::of(mr.context);
  {
    const auto guard = context.lock_to_end();
    const auto turn = context.live->memory_turn();
    if (mr.region == nullptr) return report(EINVAL);
    if (mr.region->bound_windows > 0) return report(EBUSY);
    // The keys become invalid now, although other objects may hold the region.
    if (const int error = drop(context, mr, OtherHolders::lose_it); error != 0) {
      return report(error);
    }
  }
  delete &mr;
  live::Device::tidy_memory();
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim
