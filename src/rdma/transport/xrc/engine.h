#pragma once

// Extended reliable connections (IBTA annex A14) as two transports. The initiator is a reliable
// connection's requester and the target its responder; both are an rc::Engine. xrc.h has what
// differs.

#include "rdma/transport/transport.h"

namespace tulle::transport::xrc {

extern const Transport initiator;
extern const Transport target;

}  // namespace tulle::transport::xrc
