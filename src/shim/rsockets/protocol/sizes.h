#pragma once

#include <cstdint>

namespace tulle::rsockets {

// The sizes of a socket's buffers and queues.
struct SocketSizes {
  std::uint32_t receive_buffer_bytes = 128 << 10;
  std::uint32_t send_buffer_bytes = 128 << 10;
  std::uint32_t send_queue = 384;
  std::uint32_t receive_queue = 384;
  std::uint32_t inline_bytes = 64;
  std::uint32_t maps = 0;  // memory maps that the peer may write
};

inline constexpr std::uint32_t queue_max = 0xFFFE;
inline constexpr std::uint32_t queue_min = 16;
// A stream does not send while its send buffer has less room than this.
inline constexpr std::uint32_t send_low_water_bytes = 2048;

}  // namespace tulle::rsockets
