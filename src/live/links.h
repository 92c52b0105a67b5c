#pragma once

// The links of a device. A datagram goes to the first link that does not decline it.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "live/link.h"

namespace tulle::live {

class Links {
 public:
  explicit Links(DriverCounters& counters) : counters_(counters), datagrams_(Link::batch_max) {}

  // The caller keeps the link as long as this object lives.
  void add(Link& link);
  void add(std::unique_ptr<Link> link);
  // Adds one that is called before all others, so that none that waits holds it up.
  void add_first(Link& link);

  // Pulls and sends datagrams until the adapter has no more, a link takes no more, or a fixed
  // number of batches is sent.
  void transmit(device::Adapter& adapter, Time now);
  // Returns true if the last transmit() could have sent more.
  bool has_more() const { return has_more_; }
  Time next_deadline() const;
  bool must_continue() const;

  // Return what the largest Link::receive() returned.
  int receive_from_memory(device::Adapter& adapter, Time now);
  int receive_from_sockets(device::Adapter& adapter, Time now);
  // Returns true if a link by memory may have more.
  bool is_unfinished() const;
  bool has_memory() const { return !by_memory_.empty(); }
  void note_ring();
  void set_polled(bool is_polled);
  std::uint64_t packets_by_memory() const;

  // Returns those that packets come to by sockets.
  const std::vector<Link*>& by_socket() const { return by_socket_; }
  const std::vector<Link*>& all() const { return all_; }
  // Returns the socket that wakes callers that sleep; -1: there is none.
  int waking_socket() const;

  // Joins the group on all links, or on none. Returns 0 or an errno.
  int join(const Gid& group);
  void leave(const Gid& group);
  // Returns a neighbour that a link must know, with that link.
  std::optional<std::pair<Link*, Link::Neighbour>> unknown_neighbour(
      const DeviceInfo& device, const verbs::AddressVector& to) const;

  void set_addresses(const DeviceInfo& device);
  void set_captured(bool is_captured);
  void begin_thread();
  void count();
  void rebase(Time by);
  void lose_network(DeviceInfo& device, int other);
  void forget_in_child(int other);

 private:
  static constexpr int batches_max = 8;  // in one call, before packets are received again

  std::size_t pull(device::Adapter& adapter, Time now);
  Link::Offer offer(device::Datagram& datagram, Time now);

  DriverCounters& counters_;
  std::vector<std::unique_ptr<Link>> owned_;
  std::vector<Link*> all_, by_memory_, by_socket_, for_datagrams_;
  std::vector<device::Datagram> datagrams_;
  bool has_more_ = false;
};

}  // namespace tulle::live
