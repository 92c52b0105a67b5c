#pragma once

// The driver of raw packets: the device's interface by packet sockets (packet(7)), which need
// CAP_NET_RAW. One sends, and receives nothing. The other is open only while there are flows, so
// that a program without them pays for no frame; it gets a copy of what the interface receives,
// beside the kernel, which goes on as if nobody looked.
//
// What two programs of one host say to each other never comes back from the network, where a NIC
// would turn it round inside. Here the kernel shows the receiving socket what the interface sends;
// frames from this device's programs bear a mark (SO_MARK), and of those it takes what a NIC would
// turn round: groups' frames and the interface's own. Loopback brings everything back by itself.
//
// A program that is not running posts no receive requests. Frames then wait for a while in the
// socket's buffer, as in a NIC's, and those of the process's other queues behind them.
//
// Frames that come from this very kernel, as over veth and loopback, may lack what a wire would
// have brought: a checksum that is left to the hardware is filled in here; a batch of segments that
// was never cut up is longer than any frame, and dropped. VLAN tags, which the kernel keeps beside
// the frame, are put back.

#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "device/raw_packets.h"
#include "live/unique_fd.h"
#include "wire/ethernet.h"

namespace tulle::live {

class PacketPort {
 public:
  static constexpr int frames_max = 16;  // of one call of receive

  // 0: this process may send and receive whole frames on the interface; else EPERM, or EOPNOTSUPP
  // where the interface has no Ethernet frames.
  static int probe(const std::string& interface);
  // The errors are probe's and the kernel's.
  static Result<std::unique_ptr<PacketPort>> open(const std::string& interface);

  // The longest frame, without its check sequence.
  std::uint32_t frame_bytes_max() const { return frame_bytes_max_; }

  // Before a flow is made: what it asks for comes in from now on. 0, or the errno.
  int watch(const device::FlowRule& rule);
  // When the flow has gone.
  void unwatch(const device::FlowRule& rule);
  // -1 while there are no flows.
  int receiving_socket() const { return receiver_.get(); }
  int sending_socket() const { return sender_.get(); }

  // How many frames were handed on; frames_max: there may be more.
  int receive(Time now, device::RawPackets& packets);
  // Whether frames wait for a receive request: to be tried again a little later.
  bool is_waiting() const { return first_ < count_; }
  // Whether all was sent, or the socket or the interface's queue is full.
  enum class Sent : std::uint8_t { all, socket_is_full, queue_is_full };
  Sent transmit(device::RawPackets& packets);

 private:
  // In front of each frame, in the machine's order (PACKET_VNET_HDR; virtio 1.2 §5.1.6.1, which
  // linux/virtio_net.h has in a form that is not C++).
  struct Offload {
    static constexpr std::uint8_t needs_checksum = 1;
    std::uint8_t flags;
    std::uint8_t segment_type;
    std::uint16_t header_bytes;
    std::uint16_t segment_bytes;
    std::uint16_t checksum_start;
    std::uint16_t checksum_offset;
  };
  static_assert(sizeof(Offload) == 10);
  struct Slot {
    Offload offload;
    iovec pieces[2];
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  };

  // What mlx5 gives a queue without requests (mlx5_ib.h: MLX5_MAX_DELAY_DROP_TIMEOUT_MS).
  static constexpr Time waiting_time_max = Time::milliseconds(100);

  PacketPort() = default;
  int open_receiver();
  int filter_receiver() const;
  int change_membership(int option, const device::FlowRule& rule);
  void prepare(int frame);
  std::span<const std::byte> complete(int frame);

  int interface_index_ = 0;
  bool is_loopback_ = false;
  wire::MacAddress mac_{};
  std::uint32_t frame_bytes_max_ = 0;
  std::uint32_t flows_ = 0;
  UniqueFd sender_;
  UniqueFd receiver_;
  std::vector<std::byte> memory_;  // of frames_max frames
  std::array<Slot, frames_max> slots_;
  std::array<mmsghdr, frames_max> received_;
  int first_ = 0;  // of those received, the next to hand on
  int count_ = 0;
  Time waits_since_ = Time::never();
  std::span<const std::byte> current_;  // completed
};

}  // namespace tulle::live
