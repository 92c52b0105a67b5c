// Extended reliable connections (XRC): domains, their shared receive queues, and opening a target
// queue pair once more.
//
// The contexts of one process that name the same file share a domain, as the C API has it.
// Processes share none, because each has a separate adapter that knows the queue pairs of its
// process only. Another process that opens the file gets another domain. When it opens a queue pair
// of the first process, it is told that there is no such queue pair.

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <list>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {

struct SharedDomain {
  live::Device* device = nullptr;
  verbs::XrcDomain* domain = nullptr;
  bool has_file = false;
  dev_t file_device = 0;
  ino_t file = 0;
  std::uint32_t handles = 0;
};

namespace {

using verbs::VerbsStatus;

// All domains of the process. The mutex is taken after a device's lock, never before it.
struct Domains {
  std::mutex mutex;
  std::list<SharedDomain> all;
};
Domains& domains() {
  // In a forked child nobody holds the mutex, whichever thread of the parent's did.
  static auto* instance = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&domains().mutex) std::mutex; });
    return new Domains;
  }();
  return *instance;
}

// Returns a new domain, or the one of the same file. Returns null with the errno in `error` if
// `oflags` asks for a new domain and there is one, or for an existing one and there is none.
SharedDomain* open_shared(Context& context, const SharedDomain& wanted, int oflags, int& error) {
  Domains& known = domains();
  const std::lock_guard guard(known.mutex);
  auto found = std::find_if(known.all.begin(), known.all.end(), [&](const SharedDomain& domain) {
    return wanted.has_file && domain.has_file && domain.device == wanted.device &&
           domain.file_device == wanted.file_device && domain.file == wanted.file;
  });
  if (found != known.all.end()) {
    error = (oflags & O_EXCL) != 0 ? EINVAL : 0;
    return error == 0 ? &*found : nullptr;
  }
  if ((oflags & O_CREAT) == 0) {
    error = wanted.has_file ? EAGAIN : EINVAL;
    return nullptr;
  }
  known.all.push_back(wanted);
  const OnThrow undo([&] { known.all.pop_back(); });
  known.all.back().domain = context.adapter().objects().create_xrc_domain();
  return &known.all.back();
}

ibv_xrcd* open_xrcd(ibv_context* ibv, ibv_xrcd_init_attr* attributes) {
  constexpr std::uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  if ((attributes->comp_mask & ~needed) != 0) return fail(EOPNOTSUPP);
  constexpr int known_flags = O_CREAT | O_EXCL;
  if (attributes->comp_mask != needed || (attributes->oflags & ~known_flags) != 0) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  SharedDomain wanted;
  wanted.device = context.live.get();
  if (attributes->fd != -1) {
    struct stat status = {};
    if (fstat(attributes->fd, &status) != 0) return fail(errno);
    wanted.has_file = true;
    wanted.file_device = status.st_dev;
    wanted.file = status.st_ino;
  }
  auto xrcd = std::make_unique<Xrcd>();
  xrcd->context = ibv;
  const auto guard = context.lock();
  int error = 0;
  xrcd->shared = open_shared(context, wanted, attributes->oflags, error);
  if (xrcd->shared == nullptr) return fail(error);
  ++xrcd->shared->handles;
  const OnThrow undo([&] { release_domain(context, *xrcd); });
  context.xrcds.insert(xrcd.get());
  return xrcd.release();
}

int close_xrcd(ibv_xrcd* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  Xrcd& xrcd = Xrcd::of(ibv);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  if (xrcd.users > 0) return report(EBUSY);
  release_domain(context, xrcd);
  context.xrcds.erase(&xrcd);
  delete &xrcd;
  return 0;
}

int get_srq_number(ibv_srq* ibv, std::uint32_t* out) {
  if (ibv == nullptr || out == nullptr) return report(EINVAL);
  const auto guard = Context::of(ibv->context).lock();
  const std::uint32_t number = Srq::of(ibv).queue->number;
  if (number == 0) return report(EINVAL);  // the queue is of no domain
  *out = number;
  return 0;
}

ibv_qp* open_qp(ibv_context* ibv, ibv_qp_open_attr* attributes) {
  constexpr std::uint32_t needed =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr std::uint32_t known = needed | IBV_QP_OPEN_ATTR_CONTEXT;
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  const std::uint32_t mask = attributes->comp_mask;
  if ((mask & ~known) != 0) return fail(EOPNOTSUPP);
  if ((mask & needed) != needed || attributes->xrcd == nullptr ||
      attributes->xrcd->context != ibv || attributes->qp_type != IBV_QPT_XRC_RECV) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  Xrcd& xrcd = Xrcd::of(attributes->xrcd);
  const auto guard = context.lock();
  transport::QueuePair* pair = context.adapter().find_qp(QpNumber{attributes->qp_num});
  const bool is_ours = pair != nullptr && pair->type() == verbs::QpType::xrc_target &&
                       pair->init.xrc_domain == xrcd.shared->domain;
  if (!is_ours) return fail(EINVAL);
  void* qp_context = (mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 ? attributes->qp_context : nullptr;
  return add_handle(*pair, xrcd, qp_context)->as_qp();
}

}  // namespace

void serve_extended_connections(Context& context) {
  context.open_xrcd = guarded<open_xrcd>;
  context.close_xrcd = guarded<close_xrcd>;
  context.get_srq_num = guarded<get_srq_number>;
  context.open_qp = guarded<open_qp>;
}

verbs::XrcDomain& domain_of(const Xrcd& xrcd) { return *xrcd.shared->domain; }

void release_domain(Context& context, Xrcd& xrcd) {
  if (--xrcd.shared->handles > 0) return;
  Domains& known = domains();
  const std::lock_guard guard(known.mutex);
  (void)to_errno(context.adapter().objects().destroy(xrcd.shared->domain));
  known.all.remove_if([&](const SharedDomain& domain) { return &domain == xrcd.shared; });
}

ibv_srq* create_xrc_srq(ibv_context* ibv, ibv_srq_init_attr_ex& attributes) {
  constexpr std::uint32_t needed =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attributes.comp_mask & ~needed) != 0) return fail(EOPNOTSUPP);
  if (attributes.comp_mask != needed || attributes.pd == nullptr || attributes.xrcd == nullptr ||
      attributes.cq == nullptr || attributes.pd->context != ibv ||
      attributes.xrcd->context != ibv || attributes.cq->context != ibv) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  Xrcd& xrcd = Xrcd::of(attributes.xrcd);
  auto srq = make_object<Srq>(Pd::of(attributes.pd).allocator);
  if (srq == nullptr) return fail(ENOMEM);
  const auto guard = context.lock();
  VerbsStatus status{};
  srq->queue = context.adapter().objects().create_xrc_srq(
      *Pd::of(attributes.pd).pd, *xrcd.shared->domain, *Cq::of(attributes.cq).queue,
      attributes.attr.max_wr, attributes.attr.max_sge, srq.get(), status);
  if (srq->queue == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().objects().destroy(srq->queue)); });
  (void)publish(*srq, context, *attributes.pd, attributes.srq_context, attributes.attr);
  srq->xrcd = &xrcd;
  ++xrcd.users;
  return srq.release();
}

}  // namespace tulle::shim
