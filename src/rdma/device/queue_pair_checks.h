#pragma once

// The checks of what an application asks of a queue pair, apart from its paths and its place in the
// ladder of states (rdma/verbs/qp_state.h). What fails them is an invalid argument.

#include "rdma/device/configuration.h"
#include "rdma/device/limits.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/transport.h"
#include "rdma/verbs/types.h"

namespace tulle::device {

// Returns true if a queue pair of that transport may be created with these objects and sizes.
bool may_create(const transport::Transport& transport, const transport::QueuePairInit& init,
                const Limits& limits);
// Returns true if the adapter can give a queue pair the attributes in the mask.
bool may_modify(const transport::QueuePairAttributes& attributes, verbs::QpAttributeMask mask,
                const Configuration& configuration);

}  // namespace tulle::device
