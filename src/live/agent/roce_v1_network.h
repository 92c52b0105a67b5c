#pragma once

// QP1 of the host agent on links of RoCE v1: management datagrams in frames of Ethernet, and the
// MAC addresses of those that they go to.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "live/connections/network.h"
#include "live/message/device_info.h"
#include "live/path/packets/capture_tap.h"
#include "live/path/packets/neighbours.h"
#include "live/path/packets/roce_v1_port.h"
#include "management/cm/types.h"

namespace tulle::live {

class RoceV1Network {
 public:
  using Clock = std::chrono::steady_clock;
  using Asker = ConnectionNetwork::Asker;

  // Peers whose MAC addresses are kept. Any node on the link may make up peers; those that are
  // forgotten for them are asked for again.
  static constexpr std::size_t neighbours_max = 4'096;

  // A program may ask again and again. Above this many questions, the answer is ENOBUFS.
  static constexpr std::size_t questions_max = 4'096;

  // Fails with EPERM without CAP_NET_RAW. The tap must outlive this object.
  static Result<std::unique_ptr<RoceV1Network>> open(CaptureTap& tap);

  // Returns descriptors that are readable when there is something to do.
  std::vector<int> watched_fds() const { return {port_->receiving_socket(), watch_.fd()}; }
  // Takes over the addresses of all devices. Only those of RoCE v1 count.
  void set_addresses(std::span<const GidEntry> gids) { port_->set_addresses(gids); }

  // Finds the way from an address to a peer. Returns 0 if it is known or never can be (errno), or
  // nothing if the answer comes later from take_answers().
  std::optional<int> find_way(Asker asker, const Gid& local, const Gid& remote);
  struct Answer {
    Asker asker;
    int error = 0;
  };
  std::vector<Answer> take_answers();
  // Returns when take_answers() has something to tell at the latest, or max().
  Clock::time_point next_deadline() const;

  std::size_t neighbour_count() const { return port_->neighbour_count(); }

  void send(const management::cm::Outgoing& datagram);
  // Hands over the datagrams that have come. Returns false if more may wait.
  bool receive(const ConnectionNetwork::Handle& handle);

 private:
  struct Question {
    Asker asker;
    std::uint32_t interface_index = 0;
    Gid remote;
    Clock::time_point due;
  };

  RoceV1Network(std::unique_ptr<RoceV1Port> port, Neighbours neighbours)
      : port_(std::move(port)), neighbours_(std::move(neighbours)) {}
  bool is_known(std::uint32_t interface_index, const Gid& remote);
  void learn(std::uint32_t interface_index, const Gid& gid, const wire::MacAddress& mac);

  std::unique_ptr<RoceV1Port> port_;
  Neighbours neighbours_;
  NeighbourWatch watch_;
  std::vector<Question> questions_;
  std::uint32_t psn_ = 0;
};

}  // namespace tulle::live
