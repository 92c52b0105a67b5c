#include "ranks/verbs_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tulle::ranks {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<VerbsLibrary> VerbsLibrary::load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return Error{dlerror()};
  VerbsLibrary verbs;
  const bool has_all = find(library, "ibv_get_device_list", verbs.get_device_list) &&
                       find(library, "ibv_free_device_list", verbs.free_device_list) &&
                       find(library, "ibv_open_device", verbs.open_device) &&
                       find(library, "ibv_alloc_pd", verbs.alloc_pd) &&
                       find(library, "ibv_create_comp_channel", verbs.create_comp_channel) &&
                       find(library, "ibv_create_cq", verbs.create_cq) &&
                       find(library, "ibv_reg_mr", verbs.reg_mr) &&
                       find(library, "ibv_create_qp", verbs.create_qp) &&
                       find(library, "ibv_modify_qp", verbs.modify_qp) &&
                       find(library, "ibv_query_port", verbs.query_port) &&
                       find(library, "ibv_query_gid", verbs.query_gid) &&
                       find(library, "ibv_get_cq_event", verbs.get_cq_event) &&
                       find(library, "ibv_ack_cq_events", verbs.ack_cq_events) &&
                       find(library, "ibv_wc_status_str", verbs.wc_status_str);
  if (!has_all) return Error{fmt::format("{} is no libibverbs: {}", path, dlerror())};
  return verbs;
}

}  // namespace tulle::ranks
