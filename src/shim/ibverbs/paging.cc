// Memory that is paged on demand: pages are asked for when they are touched, not when the region is
// registered.

#include "live/process/program_memory.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// Returns 0 or an errno (ibv_advise_mr(3)). The caller holds the device's lock.
int check(Context& context, const verbs::ProtectionDomain& pd, const ibv_sge& range, bool write) {
  const verbs::MemoryRegion* region = context.adapter().objects().find_region(LocalKey{range.lkey});
  if (region == nullptr || !region->covers(range.addr, range.length)) return EFAULT;
  if (region->pd != &pd) return EPERM;
  if (!region->access.has(verbs::Access::on_demand)) return EINVAL;
  return write && !region->access.has(verbs::Access::local_write) ? EPERM : 0;
}

// Prefetching is done by the time of return. Only a caller that waits for the pages
// (IBV_ADVISE_MR_FLAG_FLUSH) is told if some of them are not to be had.
int advise_mr(ibv_pd* ibv_pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* ranges,
              std::uint32_t count) {
  if (ibv_pd == nullptr || ranges == nullptr || count == 0) return report(EINVAL);
  if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0) return report(EINVAL);
  const bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const bool fault = write || advice == IBV_ADVISE_MR_ADVICE_PREFETCH;
  // Pages that are there need no preparation.
  if (!fault && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return report(EOPNOTSUPP);
  const bool flush = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
  Context& context = Context::of(ibv_pd->context);
  {
    const auto guard = context.lock();
    for (std::uint32_t i = 0; i < count; ++i) {
      const int error = check(context, *Pd::of(ibv_pd).pd, ranges[i], write);
      if (error != 0) return report(error);
    }
  }
  for (std::uint32_t i = 0; i < count && fault; ++i) {
    if (ranges[i].length == 0) continue;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the C API holds addresses as numbers
    auto* memory = reinterpret_cast<std::byte*>(ranges[i].addr);
    if (!live::program_pages().bring(memory, ranges[i].length, write) && flush)
      return report(EFAULT);
  }
  return 0;
}

}  // namespace

void serve_paging(Context& context) { context.advise_mr = guarded<advise_mr>; }

}  // namespace tulle::shim
