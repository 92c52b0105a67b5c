#pragma once

#include <cstdint>

namespace tulle::port {

// The kind of a port's link, as the verbs name it. Ethernet carries RoCE, and TCP's segments.
enum class LinkLayer : std::uint8_t { ethernet, infiniband };

}  // namespace tulle::port
