#include "shim/ibverbs/known.h"

#include <pthread.h>

#include <algorithm>

namespace tulle::shim {
namespace {

struct Contexts {
  std::mutex mutex;  // taken before a device's lock
  std::vector<Context*> open;
};
// Never destroyed, because other threads may use devices while the process ends. In a forked child
// nobody holds the mutex, whichever thread of the parent's did.
Contexts& contexts() {
  static auto* instance = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&contexts().mutex) std::mutex; });
    return new Contexts;
  }();
  return *instance;
}

template <typename Object>
bool is_in(std::unordered_set<Object*> Context::*objects, Object* object) {
  if (object == nullptr) return false;
  const std::lock_guard all(contexts().mutex);
  return std::ranges::any_of(contexts().open, [&](Context* context) {
    const auto guard = context->lock_to_end();
    return (context->*objects).contains(object);
  });
}

}  // namespace

void know(Context& context) {
  const std::lock_guard guard(contexts().mutex);
  contexts().open.push_back(&context);
}

void forget(Context& context) {
  const std::lock_guard guard(contexts().mutex);
  std::erase(contexts().open, &context);
}

bool is_known(ibv_pd* pd) { return is_in(&Context::pds, static_cast<Pd*>(pd)); }
bool is_known(ibv_mr* region) { return is_in(&Context::mrs, static_cast<Mr*>(region)); }
bool is_known(ibv_mw* window) { return is_in(&Context::mws, static_cast<Mw*>(window)); }
bool is_known(ibv_ah* handle) { return is_in(&Context::ahs, static_cast<Ah*>(handle)); }
bool is_known(ibv_cq* queue) {
  return is_in(&Context::cqs, static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(queue)));
}
bool is_known(ibv_srq* queue) { return is_in(&Context::srqs, static_cast<Srq*>(queue)); }
bool is_known(ibv_qp* pair) {
  return is_in(&Context::qps, static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(pair)));
}

}  // namespace tulle::shim
