#pragma once

// The functions of libibverbs that ranks call, from a library that is loaded while the program
// runs. So `tulle` starts where there is none, and takes the drop-in next to it without a search.

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace tulle::ranks {

// The functions are ibv_*. Those that <infiniband/verbs.h> defines itself, such as ibv_post_send,
// are called as they are.
struct VerbsLibrary {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  int (*query_port)(ibv_context*, std::uint8_t, ibv_port_attr*) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_str = nullptr;

  // Loads the library of that path, which stays loaded.
  static Result<VerbsLibrary> load(const std::string& path);
};

}  // namespace tulle::ranks
