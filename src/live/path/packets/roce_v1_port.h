#pragma once

// The way of RoCE v1's packets: frames of Ethernet (IBTA annex A16) by packet sockets (packet(7)),
// which need CAP_NET_RAW. One socket receives, and a filter in the kernel passes only the frames to
// this process's queue pairs and to groups. The other socket sends, and receives nothing.
//
// A NIC turns round the frames that its own host is to receive. Here they go over the loopback
// interface, and frames to groups go both ways.

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "live/message/device_info.h"
#include "live/path/packets/capture_tap.h"
#include "os/unique_fd.h"
#include "rdma/device/adapter.h"
#include "rdma/port/framing/framing.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/ethernet.h"

namespace tulle::live {

class RoceV1Port {
 public:
  static constexpr int frames_max = 16;  // in one call of receive()

  struct Counters {
    std::uint64_t refused = 0;      // frames that came to no address of this device
    std::uint64_t unresolved = 0;   // packets to a neighbour whose MAC address is not known
    std::uint64_t send_errors = 0;  // frames that the interface did not take
  };

  // `first_qp` and `qp_count` are the numbers of the process's queue pairs. The tap must outlive
  // this object. Fails with EPERM without CAP_NET_RAW.
  static Result<std::unique_ptr<RoceV1Port>> open(QpNumber first_qp, std::uint32_t qp_count,
                                                  CaptureTap& tap);

  // Takes over the device's addresses. Only those of RoCE v1 count.
  void set_addresses(std::span<const GidEntry> gids);
  // Returns the interface of an address, by which neighbours are found, or nothing if the address
  // is not one of RoCE v1.
  std::optional<std::uint32_t> interface_of(const Gid& address) const;
  bool is_own(const Gid& gid) const { return interface_of(gid).has_value(); }
  // Packets to a neighbour are lost until its MAC address is known.
  void set_neighbour(std::uint32_t interface_index, const Gid& gid, const wire::MacAddress& mac) {
    neighbours_[{interface_index, gid}] = mac;
  }
  bool knows(std::uint32_t interface_index, const Gid& gid) const {
    return is_own(gid) || neighbours_.contains({interface_index, gid});
  }
  std::size_t neighbour_count() const { return neighbours_.size(); }
  void forget_neighbours() { neighbours_.clear(); }
  // Makes frames to a group come in, on the interfaces of the addresses. Return 0 or an errno.
  int join(const Gid& group) const { return change_membership(PACKET_ADD_MEMBERSHIP, group); }
  void leave(const Gid& group) const { change_membership(PACKET_DROP_MEMBERSHIP, group); }

  int receiving_socket() const { return receiver_.get(); }
  int sending_socket() const { return sender_.get(); }
  const Counters& counters() const { return counters_; }

  // Gives the sockets up, in a forked child: they would keep frames that nobody takes. Their
  // numbers name another descriptor from now on.
  void replace_sockets(int by) const;

  // Takes a packet to send, and copies it. There is room for packets_max of them after send() has
  // returned `all`.
  static constexpr std::size_t packets_max = 64;
  void add(device::Datagram& datagram);
  // Sends what was added.
  enum class Sent : std::uint8_t { all, socket_is_full, queue_is_full };
  Sent send();
  // Drops what was added and is not sent.
  void drop_unsent() { message_count_ = next_message_ = 0; }

  // Makes one call to the kernel, which never blocks. Calls `handle` with each frame to an address
  // of the device or to a group, as (port::Arrival&, frame). Returns the number of frames that
  // came; if that is frames_max, more may be waiting.
  template <typename Handle>
  int receive(Handle handle) {
    const int count = fill();
    for (int i = 0; i < count; ++i) {
      const std::span<const std::byte> frame = accepted(i);
      if (frame.empty()) continue;
      port::Arrival arrival;
      arrival.framing = &port::roce_v1;
      handle(arrival, frame);
    }
    return count;
  }

 private:
  // The longest frame: outer headers, transport headers, payload, pad and ICRC.
  static constexpr std::size_t frame_bytes_max =
      port::outer_bytes_max + port::udp_payload_bytes_max;
  // A frame to a group leaves twice.
  static constexpr std::size_t messages_max = 2 * packets_max;

  struct Link {
    std::uint32_t interface_index = 0;
    wire::MacAddress mac{};
    bool is_loopback = false;
  };
  struct Address {
    Gid gid;
    Link link;
  };

  RoceV1Port() = default;
  int open_receiver(QpNumber first_qp, std::uint32_t qp_count);
  Link link_of(const GidEntry& entry) const;
  const Address* find(const Gid& gid) const;
  int change_membership(int option, const Gid& group) const;
  void add_frame(device::Datagram& datagram, const Link& link, const wire::MacAddress& destination);
  int fill();
  std::span<const std::byte> accepted(int index);
  std::byte* received_frame(int index) const {
    return received_.get() + static_cast<std::size_t>(index) * frame_bytes_max;
  }

  UniqueFd receiver_;
  UniqueFd sender_;
  CaptureTap* tap_ = nullptr;
  std::vector<Address> addresses_;
  std::map<std::pair<std::uint32_t, Gid>, wire::MacAddress> neighbours_;
  Link loopback_;
  Counters counters_;

  std::unique_ptr<std::byte[]> received_;  // frames_max frames
  std::array<iovec, frames_max> received_pieces_{};
  std::array<sockaddr_ll, frames_max> senders_{};
  std::array<mmsghdr, frames_max> received_headers_{};

  std::unique_ptr<std::byte[]> kept_;  // messages_max frames
  std::array<iovec, messages_max> pieces_{};
  std::array<sockaddr_ll, messages_max> names_{};
  std::array<mmsghdr, messages_max> headers_{};
  std::size_t message_count_ = 0;
  std::size_t next_message_ = 0;  // the first message that is not sent
};

}  // namespace tulle::live
