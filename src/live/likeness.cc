#include "live/likeness.h"

#include <algorithm>

namespace tulle::live {
namespace {

// Sources: what ibv_devinfo printed of each adapter in public reports, and the kernel's drivers.
constexpr Likeness all[] = {
    // Report of ConnectX-5 with firmware 16.23 (open-mpi/ompi 6137). The mlx5 driver takes 1,024
    // bytes inline and more, depending on the queue's other values.
    {"connectx-5", "mlx5_0", 0x02c9, 4119, true, 262'144, 32'768, 30, 1'024, 4'194'303, 8'388'608},
    // Report of ConnectX-3 with firmware 2.33 (claudebarthels/infinity 5). The mlx4 driver's
    // requests end at 1,008 bytes, of which 912 may be inline.
    {"connectx-3", "mlx4_0", 0x02c9, 4099, true, 131'000, 16'351, 32, 912, 4'194'303, 65'472},
    // Report of E810 with firmware 1.74 (deepseek-ai/3FS 192); drivers/infiniband/hw/irdma/user.h:
    // IRDMA_MAX_INLINE_DATA_SIZE, IRDMA_MAX_WQ_FRAGMENT_COUNT.
    {"e810", "irdma0", 0x8086, 5522, false, 4'092, 8'127, 13, 101, 1'048'574, 0},
    // Report of FastLinQ 41000 with firmware 8.37 (openucx/ucx 5148); include/linux/qed/
    // roce_common.h: ROCE_REQ_MAX_INLINE_DATA_SIZE.
    {"fastlinq", "qedr0", 0x1077, 32'880, true, 8'568, 32'767, 4, 256, 8'388'480, 8'192},
};

}  // namespace

device::Limits Likeness::limit(device::Limits limits) const {
  limits.queue_pairs = std::min(limits.queue_pairs, queue_pairs);
  limits.work_requests = std::min(limits.work_requests, work_requests);
  limits.sges = std::min(limits.sges, sges);
  limits.inline_bytes = std::min(limits.inline_bytes, inline_bytes);
  limits.completion_entries = std::min(limits.completion_entries, completion_entries);
  limits.shared_receive_queues = std::min(limits.shared_receive_queues, shared_receive_queues);
  return limits;
}

const Likeness* find_likeness(std::string_view name) {
  const auto* const found = std::ranges::find(all, name, &Likeness::name);
  return found != std::end(all) ? found : nullptr;
}

std::vector<std::string_view> likeness_names() {
  std::vector<std::string_view> names;
  for (const Likeness& each : all) names.emplace_back(each.name);
  return names;
}

}  // namespace tulle::live
