#pragma once

// The options of a stream. Those that change nothing over RDMA are stored, so that a program reads
// back what it wrote. The caller has a lock around it.

#include <sys/socket.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "shim/rsockets/sockets/device.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

class StreamOptions {
 public:
  // Both must outlive this object.
  StreamOptions(Connection& connection, SocketSettings& settings)
      : connection_(connection), settings_(settings) {}

  // What is too late for some options.
  struct Stage {
    bool is_idle = false;        // neither bound nor anything else
    bool has_resources = false;  // the queue pair is there, or about to be
    bool has_send_buffer = false;
    bool has_receive_buffer = false;
  };
  int set(const Stage& stage, int level, int option, const void* value, socklen_t bytes);
  // SO_ERROR and SO_ACCEPTCONN are the stream's.
  int get(int level, int option, void* value, socklen_t& bytes) const;

  bool keeps_alive() const { return keep_alive_ != 0; }
  // Returns true once if the program has changed when a connection is kept alive.
  bool take_new_keep_alive() { return std::exchange(is_keep_alive_new_, false); }
  // Returns when a connection that is used now is kept alive next, and zero if it is not.
  Clock::time_point keep_alive_due();
  // RDMA_ROUTE, for the next connect.
  const std::vector<std::byte>& route() const { return route_; }

 private:
  int set_socket_option(const Stage& stage, int option, const void* value, socklen_t bytes);
  int set_tcp_option(int option, int value);
  int set_rdma_option(int option, const void* value, socklen_t bytes);
  int get_socket_option(int option, int& value) const;
  int get_tcp_option(int option, int& value) const;
  int get_rdma_option(int option, int& value) const;
  int get_route(void* value, socklen_t& bytes) const;

  Connection& connection_;
  SocketSettings& settings_;
  std::vector<std::byte> route_;
  int reuse_address_ = 0;
  int keep_alive_ = 0;
  int keep_alive_seconds_ = 0;  // 0: the system's value
  bool is_keep_alive_new_ = false;
  int out_of_band_inline_ = 0;
  int no_delay_ = 0;
  int only_ipv6_ = 0;
  bool lingers_ = false;
  int linger_seconds_ = 0;
};

}  // namespace tulle::rsockets
