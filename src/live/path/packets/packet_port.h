#pragma once

// The driver of raw packets. It reaches the device's interface through packet sockets (packet(7)),
// which need CAP_NET_RAW. One socket sends, and receives nothing. The other is open only while
// there are flows, so that a program without flows pays for no frame. It gets a copy of each frame
// that the interface receives; the kernel still processes the frame as usual.
//
// Frames between two programs of one host never come back from the network, where a NIC would turn
// them round inside. Instead the kernel shows the receiving socket the frames that the interface
// sends. Frames from this device's programs bear a mark (SO_MARK). Of those, the socket takes the
// frames that a NIC would turn round: frames to multicast groups and frames to the interface
// itself. Loopback brings all frames back by itself.
//
// A program that is not running posts no receive requests. Frames then wait for a while in the
// socket's buffer, as in a NIC's, and those for the process's other queues wait behind them.
//
// Frames that come from the same kernel, as over veth and loopback, may lack parts that a wire
// would have brought. A checksum that was left to the hardware is filled in here. A batch of
// segments that was never cut up is longer than any frame, and is dropped. VLAN tags, which the
// kernel keeps outside the frame, are put back.

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
#include "os/unique_fd.h"
#include "rdma/device/raw_packets.h"
#include "rdma/wire/ethernet.h"

namespace tulle::live {

class PacketPort {
 public:
  static constexpr int frames_max = 16;  // in one call of receive()

  // Returns 0 if this process may send and receive whole frames on the interface. Otherwise returns
  // EPERM, or EOPNOTSUPP if the interface has no Ethernet frames.
  static int probe(const std::string& interface);
  // Opens the interface. The errors are those of probe() and of the kernel.
  static Result<std::unique_ptr<PacketPort>> open(const std::string& interface);

  // Returns the length of the longest frame, without its check sequence.
  std::uint32_t frame_bytes_max() const { return frame_bytes_max_; }

  // Must be called before a flow is created. The frames that it asks for come in from now on.
  // Returns 0 or an errno.
  int watch(const device::FlowRule& rule);
  // Must be called when the flow has been destroyed.
  void unwatch(const device::FlowRule& rule);
  // Returns -1 while there are no flows.
  int receiving_socket() const { return receiver_.get(); }
  int sending_socket() const { return sender_.get(); }

  // Returns the number of frames that were handed on or dropped. If it is frames_max, more may be
  // waiting.
  int receive(Time now, device::RawPackets& packets);
  // Returns true if frames wait for a receive request. The caller tries again a little later.
  bool is_waiting() const { return first_ < count_; }
  // Tells whether all frames were sent, or the socket or the interface's queue is full.
  enum class Sent : std::uint8_t { all, socket_is_full, queue_is_full };
  Sent transmit(device::RawPackets& packets);
  void rebase(Time by) { tulle::rebase(by, waits_since_); }

 private:
  // The header in front of each frame, in the machine's byte order (PACKET_VNET_HDR; virtio 1.2
  // §5.1.6.1; linux/virtio_net.h declares it in a form that is not C++).
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

  // Time for which a frame waits for a queue without receive requests, as in mlx5 (mlx5_ib.h:
  // MLX5_MAX_DELAY_DROP_TIMEOUT_MS).
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
  std::vector<std::byte> memory_;  // room for frames_max frames
  std::array<Slot, frames_max> slots_;
  std::array<mmsghdr, frames_max> received_;
  int first_ = 0;  // index of the next received frame to hand on
  int count_ = 0;
  Time waits_since_ = Time::never();
  std::span<const std::byte> current_;  // the frame that is handed on, completed
};

}  // namespace tulle::live
