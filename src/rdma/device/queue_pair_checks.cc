#include "rdma/device/queue_pair_checks.h"

namespace tulle::device {

using transport::Receives;
using verbs::QpAttribute;

bool may_create(const transport::Transport& transport, const transport::QueuePairInit& init,
                const Limits& limits) {
  if (transport.receives == Receives::from_named_queue) {
    const bool owns = init.pd != nullptr || init.send_cq != nullptr || init.receive_cq != nullptr;
    if (init.xrc_domain == nullptr || owns) return false;
  } else {
    const bool receives = transport.receives != Receives::nothing;
    const bool lacks_receive_cq = receives && init.receive_cq == nullptr;
    if (init.pd == nullptr || init.send_cq == nullptr || lacks_receive_cq) {
      return false;
    }
  }
  const bool shares = transport.receives == Receives::from_any_queue &&
                      (init.srq == nullptr || init.srq->xrc_domain == nullptr);
  if (init.srq != nullptr && !shares) {
    return false;
  }
  const bool has_tags = init.srq != nullptr && init.srq->tags != nullptr;
  if (has_tags && !transport.matches_tags) return false;
  return init.send_work_requests <= limits.work_requests &&
         init.receive_work_requests <= limits.work_requests && init.send_sges <= limits.sges &&
         init.receive_sges <= limits.sges && init.inline_bytes <= limits.inline_bytes;
}

bool may_modify(const transport::QueuePairAttributes& attributes, verbs::QpAttributeMask mask,
                const Configuration& configuration) {
  if (mask.has(QpAttribute::path_mtu) &&
      verbs::bytes(attributes.path_mtu) > configuration.mtu_bytes) {
    return false;
  }
  const std::uint32_t depth = configuration.limits.read_atomic_depth;
  if (mask.has(QpAttribute::max_rd_atomic) && attributes.max_rd_atomic > depth) {
    return false;
  }
  if (mask.has(QpAttribute::max_dest_rd_atomic) && attributes.max_dest_rd_atomic > depth) {
    return false;
  }
  return true;
}

}  // namespace tulle::device
