#pragma once

// This is all that sockets need of a device and of a connection manager. The library that offers
// the sockets implements it, over the calls that it also offers to programs.
//
// Functions return 0 or an errno unless they say otherwise. None blocks: a call of the connection
// manager that takes time returns EAGAIN, and finish() gives its result once events_fd() is
// readable. An address is one of IPv4 or IPv6.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shim/rsockets/protocol/sizes.h"
#include "shim/rsockets/protocol/stream_sender.h"

namespace tulle::rsockets {

// Memory that a device knows, until the object is destroyed.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual std::uint32_t local_key() const = 0;
  virtual std::uint32_t remote_key() const = 0;
};

struct Completion {
  std::uint64_t work_id = 0;
  bool is_receive = false;
  bool succeeded = false;
  bool is_write = false;        // of a receive: the peer's RDMA WRITE with an immediate
  std::uint32_t immediate = 0;  // in the host's byte order
  std::uint32_t bytes = 0;      // of a receive: those that came
};

// A queue pair. One completion queue serves both directions, so that a thread that polls it sees
// all completions.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  virtual int register_memory(std::span<std::byte> memory, bool peer_writes,
                              std::unique_ptr<MemoryRegion>& out) = 0;
  // Returns the number of completions, or -1.
  virtual int poll(std::span<Completion> out) = 0;
  // Makes completion_fd() readable with the next completion.
  virtual void arm() = 0;
  virtual int completion_fd() const = 0;
  // Takes what made completion_fd() readable. Returns true if there was something.
  virtual bool take_events() = 0;
  // Ends the queue pair, which leaves all memory alone from then on.
  virtual void close() = 0;
};

// A reliable connection, which may also be a listener.
class Connection : public QueuePair {
 public:
  virtual int bind(const sockaddr_storage& address) = 0;
  virtual int listen(int backlog) = 0;
  // The next request at a listener.
  virtual int take_request(std::unique_ptr<Connection>& out) = 0;

  // The steps to a peer, in this order. use_route() takes a route from the program, as in
  // RDMA_ROUTE, instead of resolving it.
  virtual int resolve_address(const sockaddr_storage& destination, int timeout_milliseconds) = 0;
  virtual int resolve_route(int timeout_milliseconds) = 0;
  virtual int use_route(std::span<const std::byte> route) = 0;
  virtual int connect(std::span<const std::byte> own_data) = 0;
  // The answers to a request.
  virtual int accept(std::span<const std::byte> own_data) = 0;
  virtual void reject() = 0;

  // Takes the next event. Returns EAGAIN if there is none, ENODEV if there are no more to come, and
  // the error that the event reports.
  virtual int finish() = 0;
  virtual int events_fd() const = 0;
  // These two tell of the event that was taken last: what the peer said of itself with a request or
  // its answer, and whether the connection is over.
  virtual std::span<const std::byte> peer_data() const = 0;
  virtual bool is_over() const = 0;

  virtual const sockaddr_storage& local_address() const = 0;
  virtual const sockaddr_storage& peer_address() const = 0;
  virtual int set_reuse_address(bool on) = 0;
  virtual int set_only_ipv6(bool on) = 0;
  // The route as RDMA_ROUTE has it; empty if it is not known.
  virtual std::vector<std::byte> route() const = 0;
  virtual int path_mtu_bytes() const = 0;  // 0 if it is not known

  // Changes the sizes to those that the device grants.
  virtual int open_queue_pair(SocketSizes& sizes) = 0;
  virtual bool has_queue_pair() const = 0;
  // Ends the queue pair's work: what is posted is flushed, and the peer reaches nothing any more.
  virtual void stop() = 0;
  virtual int post(const StreamWrite& write, std::uint32_t local_key) = 0;
  // Posts receive requests without memory, for immediates.
  virtual int post_receives(std::uint32_t count) = 0;
};

// An address handle says how datagrams reach a peer.
class AddressHandle {
 public:
  virtual ~AddressHandle() = default;
};

// A queue pair for datagrams from one address of this host.
class DatagramQueue : public QueuePair {
 public:
  virtual std::uint32_t qp_number() const = 0;
  virtual std::size_t mtu_bytes() const = 0;
  virtual int make_handle(const sockaddr_storage& peer, std::unique_ptr<AddressHandle>& out) = 0;
  virtual int post_send(std::uint64_t work_id, std::span<const std::byte> datagram,
                        std::uint32_t local_key, const AddressHandle& to,
                        std::uint32_t qp_number) = 0;
  // The address header in front of a datagram, which the network writes, goes to a separate
  // place.
  virtual int post_receive(std::uint64_t work_id, std::span<std::byte> address_header,
                           std::span<std::byte> datagram, std::uint32_t local_key) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual int create_connection(int domain, std::unique_ptr<Connection>& out) = 0;
  // Changes nothing of the sizes: a queue of these sizes, or an error.
  virtual int create_datagram_queue(const sockaddr_storage& local, const SocketSizes& sizes,
                                    std::unique_ptr<DatagramQueue>& out) = 0;
  // A UDP socket of the kernel's, whatever replaces the C library's calls. Returns -1 and sets
  // errno on failure.
  virtual int kernel_socket(int domain) = 0;
};

}  // namespace tulle::rsockets
