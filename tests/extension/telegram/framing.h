#pragma once

// A framing from outside of src/, as small as can be: the LIDs of both ports in front of BTH, and a
// sum of all bytes behind the payload.

#include "rdma/port/framing/framing.h"

namespace tulle::telegram {

extern const port::Framing framing;

}  // namespace tulle::telegram
