// Memory that is paged on demand: pages are asked for when they are touched, not when the region is
// registered.

#include <sys/mman.h>
#include <unistd.h>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// Linux 5.14 and later have these (madvise(2)); older headers lack them.
constexpr int populate_read = 22;
constexpr int populate_write = 23;

// Has the kernel fault the pages in. If the kernel is too old for that, all that can be known is
// whether they are mapped.
class ProcessPages : public verbs::MemoryPages {
 public:
  bool bring(std::byte* memory, std::uint64_t bytes, bool write) const override {
    const std::size_t into_page = reinterpret_cast<std::uintptr_t>(memory) & (page_bytes_ - 1);
    std::byte* const start = memory - into_page;
    const int saved = errno;
    const bool there = can_populate_ ? madvise(start, bytes + into_page,
                                               write ? populate_write : populate_read) == 0
                                     : msync(start, bytes + into_page, MS_ASYNC) == 0;
    errno = saved;
    return there;
  }

  static const ProcessPages& only() {
    static const ProcessPages instance;
    return instance;
  }

 private:
  ProcessPages() : page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    void* page = mmap(nullptr, page_bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    can_populate_ = madvise(page, page_bytes_, populate_read) == 0;
    munmap(page, page_bytes_);
  }

  std::size_t page_bytes_;
  bool can_populate_ = false;
};

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
    if (!ProcessPages::only().bring(memory, ranges[i].length, write) && flush)
      return report(EFAULT);
  }
  return 0;
}

}  // namespace

void serve_paging(Context& context) {
  context.advise_mr = advise_mr;
  const auto guard = context.lock();
  context.adapter().objects().set_pages(&ProcessPages::only());
}

}  // namespace tulle::shim
