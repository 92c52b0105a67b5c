#pragma once

// The way of datagrams to a process of another user than the host agent's.
//
// Any holder of a socket of the port's group can change how the kernel steers the datagrams of the
// whole port (SO_ATTACH_REUSEPORT_CBPF, SO_DETACH_REUSEPORT_BPF), and would receive those of other
// users. Such a process therefore gets one end of a pair of Unix sockets. The agent receives for
// its slot and passes the datagrams on. The process sends by separate sockets, so only one
// direction takes this way.
//
// A process that does not read loses datagrams, as on any network. Nobody waits for it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "live/message/device_info.h"
#include "live/path/packets/udp_socket.h"
#include "live/slots.h"
#include "os/unique_fd.h"

namespace tulle::live {

// Precedes the payload of each message: what the kernel told of the datagram, or of the datagrams
// of equal size that it joined. Both ends are on one host, so numbers are in its byte order.
struct RelayedHeaders {
  Gid source;
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint16_t segment_bytes = 0;  // 0 means one datagram
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::array<std::uint8_t, 2> unused{};
};
static_assert(sizeof(RelayedHeaders) == 40);

// Takes the headers off a message from the relay. Returns false if the message is shorter.
[[nodiscard]] bool take_relayed_headers(std::span<const std::byte>& message, ReceivedHeaders& out);

class Relay {
 public:
  // The most multicast groups in which a process may be.
  static constexpr std::size_t groups_max = 64;

  // `socket` is the socket of the process's slot, and must outlive the relay. `numbers` are those
  // of the process's queue pairs: it gets no datagram for others.
  static Result<Relay> create(int socket, QpNumbers numbers);
  Relay(Relay&&) = default;
  Relay& operator=(Relay&&) = delete;
  ~Relay();  // leaves the groups that the process has joined

  // Returns the end that the process gets, once.
  UniqueFd take_process_end() { return std::move(process_end_); }
  int socket() const { return socket_; }

  // Passes on datagrams that have come, at most some 16 messages. Returns true if more may wait.
  bool forward();

  // Joins or leaves a multicast group for the process. Returns 0 or an errno.
  int join(const DeviceInfo& device, const Gid& group);
  int leave(const Gid& group);

  // Returns the messages that the process had no room for. Late datagrams do not count.
  std::uint64_t lost() const { return lost_; }

 private:
  Relay(int socket, QpNumbers numbers, UniqueFd agent_end, UniqueFd process_end);

  int socket_;
  QpNumbers numbers_;
  UniqueFd agent_end_;
  UniqueFd process_end_;
  std::uint64_t lost_ = 0;
  std::map<Gid, DeviceInfo> groups_;  // each with the interfaces over which it was joined
};

}  // namespace tulle::live
