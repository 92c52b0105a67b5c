#include "shim/rsockets/sockets/stream_options.h"

#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

namespace tulle::rsockets {

namespace {

constexpr int default_keep_alive_seconds = 7200;  // tcp(7), tcp_keepalive_time

int system_keep_alive_seconds() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_keepalive_time");
  int seconds = 0;
  return file >> seconds && seconds > 0 ? seconds : default_keep_alive_seconds;
}

template <typename Value>
bool read_value(const void* from, socklen_t bytes, Value& to) {
  if (from == nullptr || bytes < sizeof to) return false;
  std::memcpy(&to, from, sizeof to);
  return true;
}

}  // namespace

Clock::time_point StreamOptions::keep_alive_due() {
  if (keep_alive_seconds_ == 0) keep_alive_seconds_ = system_keep_alive_seconds();
  return keeps_alive() ? Clock::now() + std::chrono::seconds(keep_alive_seconds_)
                       : Clock::time_point{};
}

int StreamOptions::set_socket_option(const Stage& stage, int option, const void* value,
                                     socklen_t bytes) {
  if (option == SO_LINGER) {
    linger given = {};
    if (!read_value(value, bytes, given)) return EINVAL;
    lingers_ = given.l_onoff != 0;
    linger_seconds_ = given.l_linger;
    return 0;
  }
  int number = 0;
  if (!read_value(value, bytes, number)) return EINVAL;
  switch (option) {
    case SO_REUSEADDR:
      reuse_address_ = number != 0 ? 1 : 0;
      // On a bound socket the option changes nothing, and TCP does not complain about it either.
      if (!stage.is_idle) return 0;
      return connection_.set_reuse_address(number != 0);
    case SO_RCVBUF:
      if (number <= 0) return EINVAL;
      // socket(7): the size is twice what was asked for. Buffers that exist keep their size.
      if (!stage.has_receive_buffer) {
        settings_.receive_buffer_bytes = 2 * static_cast<std::uint32_t>(number);
      }
      return 0;
    case SO_SNDBUF:
      if (number <= 0) return EINVAL;
      if (!stage.has_send_buffer) {
        settings_.send_buffer_bytes =
            std::max(2 * static_cast<std::uint32_t>(number), 2 * send_low_water_bytes);
      }
      return 0;
    case SO_KEEPALIVE:
      keep_alive_ = number != 0 ? 1 : 0;
      is_keep_alive_new_ = true;
      return 0;
    case SO_OOBINLINE:
      out_of_band_inline_ = number != 0 ? 1 : 0;
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::set_tcp_option(int option, int value) {
  switch (option) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:  // the transport's retries decide instead
    case TCP_MAXSEG:
      return 0;
    case TCP_KEEPIDLE:
      if (value <= 0) return EINVAL;
      keep_alive_seconds_ = value;
      is_keep_alive_new_ = keeps_alive();
      return 0;
    case TCP_NODELAY:
      no_delay_ = value != 0 ? 1 : 0;
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::set_rdma_option(int option, const void* value, socklen_t bytes) {
  if (option == RDMA_ROUTE) {
    if (value == nullptr || bytes == 0) return EINVAL;
    const auto* first = static_cast<const std::byte*>(value);
    route_.assign(first, first + bytes);
    return 0;
  }
  std::uint32_t number = 0;
  if (!read_value(value, bytes, number)) return EINVAL;
  switch (option) {
    case RDMA_SQSIZE:
      settings_.send_queue = std::min(number, queue_max);
      return 0;
    case RDMA_RQSIZE:
      settings_.receive_queue = std::min(number, queue_max);
      return 0;
    case RDMA_INLINE:
      settings_.inline_bytes = std::min(number, queue_max);
      return 0;
    case RDMA_IOMAPSIZE:
      settings_.maps = from_scaled(to_scaled(number));
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::set(const Stage& stage, int level, int option, const void* value,
                       socklen_t bytes) {
  if (level == SOL_SOCKET) return set_socket_option(stage, option, value, bytes);
  // These are of the resources behind a socket.
  if (level == SOL_RDMA)
    return stage.has_resources ? EINVAL : set_rdma_option(option, value, bytes);
  int number = 0;
  if (level != IPPROTO_TCP && level != IPPROTO_IPV6) return ENOTSUP;
  if (!read_value(value, bytes, number)) return EINVAL;
  if (level == IPPROTO_TCP) return set_tcp_option(option, number);
  if (option != IPV6_V6ONLY) return ENOTSUP;
  if (const int error = connection_.set_only_ipv6(number != 0); error != 0) return error;
  only_ipv6_ = number != 0 ? 1 : 0;
  return 0;
}

int StreamOptions::get_socket_option(int option, int& value) const {
  switch (option) {
    case SO_REUSEADDR:
      value = reuse_address_;
      return 0;
    case SO_KEEPALIVE:
      value = keep_alive_;
      return 0;
    case SO_OOBINLINE:
      value = out_of_band_inline_;
      return 0;
    case SO_RCVBUF:
      value = static_cast<int>(settings_.receive_buffer_bytes);
      return 0;
    case SO_SNDBUF:
      value = static_cast<int>(settings_.send_buffer_bytes);
      return 0;
    case SO_TYPE:
      value = SOCK_STREAM;
      return 0;
    case SO_PROTOCOL:
      value = IPPROTO_TCP;  // what the program believes to have
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::get_tcp_option(int option, int& value) const {
  constexpr int default_segment_bytes = 2048;
  switch (option) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
      value = 1;
      return 0;
    case TCP_KEEPIDLE:
      value = keep_alive_seconds_;
      return 0;
    case TCP_NODELAY:
      value = no_delay_;
      return 0;
    case TCP_MAXSEG:
      value = connection_.path_mtu_bytes();
      if (value == 0) value = default_segment_bytes;
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::get_rdma_option(int option, int& value) const {
  switch (option) {
    case RDMA_SQSIZE:
      value = static_cast<int>(settings_.send_queue);
      return 0;
    case RDMA_RQSIZE:
      value = static_cast<int>(settings_.receive_queue);
      return 0;
    case RDMA_INLINE:
      value = static_cast<int>(settings_.inline_bytes);
      return 0;
    case RDMA_IOMAPSIZE:
      value = static_cast<int>(settings_.maps);
      return 0;
    default:
      return ENOTSUP;
  }
}

int StreamOptions::get_route(void* value, socklen_t& bytes) const {
  const std::vector<std::byte> route = route_.empty() ? connection_.route() : route_;
  if (bytes < route.size()) return EINVAL;
  std::memcpy(value, route.data(), route.size());
  bytes = static_cast<socklen_t>(route.size());
  return 0;
}

int StreamOptions::get(int level, int option, void* value, socklen_t& bytes) const {
  if (level == SOL_RDMA && option == RDMA_ROUTE) return get_route(value, bytes);
  if (level == SOL_SOCKET && option == SO_LINGER) {
    const linger found = {lingers_ ? 1 : 0, linger_seconds_};
    bytes = std::min<socklen_t>(bytes, sizeof found);
    std::memcpy(value, &found, bytes);
    return 0;
  }
  int number = 0;
  int error = ENOTSUP;
  if (level == SOL_SOCKET) error = get_socket_option(option, number);
  if (level == IPPROTO_TCP) error = get_tcp_option(option, number);
  if (level == SOL_RDMA) error = get_rdma_option(option, number);
  if (level == IPPROTO_IPV6 && option == IPV6_V6ONLY) {
    number = only_ipv6_;
    error = 0;
  }
  if (error != 0) return error;
  bytes = std::min<socklen_t>(bytes, sizeof number);
  std::memcpy(value, &number, bytes);
  return 0;
}

}  // namespace tulle::rsockets
