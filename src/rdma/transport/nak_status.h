#pragma once

// The completion status of a request that the responder refused with a NAK (IBTA 11.6.2). SRD's
// answers are translated the same way. EFA's provider chooses the same statuses for the errors of
// its device (rdma-core, providers/efa, to_ibv_status).

#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"

namespace tulle::transport {

inline verbs::CompletionStatus status_of(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::remote_access_error:
      return verbs::CompletionStatus::remote_access_error;
    case wire::NakCode::remote_operational_error:
      return verbs::CompletionStatus::remote_operation_error;
    default:
      return verbs::CompletionStatus::remote_invalid_request_error;
  }
}

}  // namespace tulle::transport
