#pragma once

// What a requester's completion says of a request that the responder refused (IBTA 11.6.2). SRD's
// answers speak so too, as do the statuses that EFA's provider gives for its device's (rdma-core,
// providers/efa, to_ibv_status).

#include "verbs/types.h"
#include "wire/packet.h"

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
