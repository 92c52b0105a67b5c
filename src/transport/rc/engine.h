#pragma once

// The reliable connection (IBTA 9.7): a requester that drives the send queue and a responder that
// serves the peer's.

#include "transport/rc/requester.h"
#include "transport/rc/responder.h"

namespace tulle::transport::rc {

struct Engine {
  Requester requester;
  Responder responder;
};

}  // namespace tulle::transport::rc
