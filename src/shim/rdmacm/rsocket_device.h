#pragma once

#include "shim/rsockets/sockets/device.h"

namespace tulle::shim::rdmacm {

// The device of rsockets: the calls of this library and of libibverbs.
rsockets::Device& rsocket_device();

}  // namespace tulle::shim::rdmacm
