// Thread domains and parent domains. A thread domain promises that one thread at a time uses its
// objects, which lets a driver leave out locks. Here the locks are kept, and harm nobody.

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/newer.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

ibv_td* alloc_td(ibv_context* ibv, ibv_td_init_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  if (attributes->comp_mask != 0) return fail(EINVAL);
  Context& context = Context::of(ibv);
  auto td = std::make_unique<Td>();
  td->context = ibv;
  const auto guard = context.lock();
  context.tds.insert(td.get());
  return td.release();
}

int dealloc_td(ibv_td* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  Td& td = Td::of(ibv);
  Context& context = Context::of(td.context);
  {
    const auto guard = context.lock();
    if (td.parents > 0) return report(EBUSY);
    context.tds.erase(&td);
  }
  delete &td;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* ibv, ibv_parent_domain_init_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr || attributes->pd == nullptr) return fail(EINVAL);
  constexpr std::uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                                  IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
                                  parent_domain_allows_unprotected_memory;
  if ((attributes->comp_mask & ~known) != 0) return fail(EINVAL);
  const bool foreign = attributes->pd->context != ibv ||
                       (attributes->td != nullptr && attributes->td->context != ibv);
  Pd& base = Pd::of(attributes->pd);
  if (foreign || base.base != nullptr) return fail(EINVAL);
  const bool allocates = (attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attributes->alloc == nullptr || attributes->free == nullptr)) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  auto pd = std::make_unique<Pd>();
  pd->pd = base.pd;
  pd->shared = std::make_shared<SharedPd>();
  pd->base = &base;
  if (attributes->td != nullptr) pd->td = &Td::of(attributes->td);
  if (allocates) {
    pd->allocator = std::make_shared<Allocator>(Allocator{pd.get(), *attributes});
    const bool has_context = (attributes->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0;
    if (!has_context) pd->allocator->calls.pd_context = nullptr;
  }
  const auto guard = context.lock();
  Pd* added = add_pd(context, std::move(pd), context.file->new_handle(context.file->pds));
  ++base.parents;
  if (added->td != nullptr) ++added->td->parents;
  return added;
}

}  // namespace

void serve_domains(Context& context) {
  context.alloc_td = guarded<alloc_td>;
  context.dealloc_td = guarded<dealloc_td>;
  context.alloc_parent_domain = guarded<alloc_parent_domain>;
}

}  // namespace tulle::shim
