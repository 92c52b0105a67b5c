#pragma once

// Converts the contents of REQ and REP between messages and the types of the driver. What concerns
// the exchange of messages itself (IDs, GUIDs, timeouts, repetitions) is left to the caller.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "management/cm/types.h"
#include "rdma/wire/cm.h"

namespace tulle::management::cm {

// Private data that is too long is a bug of the caller.
template <std::size_t n>
void copy_private_data(std::span<const std::byte> from, std::array<std::byte, n>& to) {
  TULLE_CHECK(from.size() <= n);
  std::copy(from.begin(), from.end(), to.begin());
}

wire::cm::Request message_of(const Request& request);
wire::cm::Reply message_of(const Reply& reply);
// `route` is the one by which the message came.
Request request_of(const wire::cm::Request& message, const Route& route);
Reply reply_of(const wire::cm::Reply& message);

}  // namespace tulle::management::cm
