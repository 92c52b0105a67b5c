#pragma once

// Sends the adapter's pending datagrams. Neighbouring datagrams of one size to one process go to
// the kernel as one segmented message (UDP_SEGMENT), and several messages go in one call. Payloads
// are not copied on the way there.
//
// Source ports: there is one socket for each slot of destination queue pairs. So datagrams to two
// processes of one host are two flows, both for switches that spread flows and for a receiving
// kernel, which joins a flow's datagrams (GRO) before it determines their receiver.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/adapter.h"
#include "fabric/faults.h"
#include "live/message/counters_page.h"
#include "live/message/device_info.h"
#include "live/path/memory/host_packets.h"
#include "live/path/packets/backlog.h"
#include "live/path/packets/capture_tap.h"
#include "live/path/packets/fault_line.h"
#include "live/path/packets/roce_v1_port.h"
#include "live/path/packets/socket_group.h"
#include "live/path/packets/udp_socket.h"
#include "live/security/seal.h"

namespace tulle::live {

class Transmitter {
 public:
  struct Options {
    int socket = -1;  // the slot's socket, used if no other can be had
    std::uint16_t port = 0;
    bool offload = true;
    fabric::FaultSettings faults;
    Seal* seal = nullptr;  // seals the datagrams; null: they are plain
  };
  // `vault` holds the host's sockets, or is empty.
  Transmitter(const Options& options, UniqueFd vault, const DeviceInfo& device, CaptureTap& tap,
              DriverCounters& counters);
  ~Transmitter();

  // Pulls and sends datagrams until the adapter has no more, the kernel takes no more, or a fixed
  // number of batches is sent.
  void transmit(device::Adapter& adapter, Time now);
  // Makes packets to local peers go by memory from now on. Null: none do.
  void use(HostPackets* memory) { memory_ = memory; }
  // Makes packets of RoCE v1 go by this port. Without one, they are lost.
  void use(RoceV1Port* port) { roce_v1_ = port; }
  // Closes the descriptors by which the host's other sockets live on, in a forked child.
  void forget_vault() { backlog_.forget(); }
  // Returns the socket that was full, or -1 if there is none. The caller calls transmit() again
  // when it is writable.
  int blocked_socket() const {
    if (frames_wait_ == RoceV1Port::Sent::socket_is_full) return roce_v1_->sending_socket();
    return blocked_ && !is_held_back_ ? messages_[next_message_].socket : -1;
  }
  bool has_more() const { return has_more_; }
  // Returns the time at which transmit() must check again whether a receiver has room, or at which
  // a datagram that a fault holds up is due.
  Time next_deadline() const {
    if (faults_) return faults_->next_deadline();
    if (frames_wait_ == RoceV1Port::Sent::queue_is_full) return held_back_until_;
    return is_held_back_ || waits_for_reader_ ? held_back_until_ : Time::never();
  }
  void rebase(Time by) {
    tulle::rebase(by, held_back_until_);
    backlog_.rebase(by);
    if (faults_) faults_->rebase(by);
  }

 private:
  // Maximum of datagrams pulled at a time. It is also Linux's smallest UDP_MAX_SEGMENTS.
  static constexpr std::size_t batch_max = 64;
  static_assert(batch_max <= RoceV1Port::packets_max);
  static constexpr std::size_t pieces_per_datagram_max = verbs::sges_max + 4;
  // A message is one datagram, or a batch of segments.
  struct Message {
    int socket = -1;
    std::uint32_t slot = 0;  // slot of the destination
    bool stays_on_host = false;
    std::size_t first = 0;  // index in datagrams_
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;  // size of each datagram; the last may be shorter
    SendAddress address;
  };
  struct Sender {
    int socket = -1;
    std::uint16_t port = 0;
  };

  bool resume(Time now);
  bool resume_memory(Time now);
  bool send_frames(Time now);
  void add_frame(device::Datagram& datagram);
  struct Pulled {
    std::size_t by_udp = 0;  // datagrams, which are in datagrams_
    std::size_t in_all = 0;
  };
  Pulled pull(device::Adapter& adapter, Time now);
  void compose(std::size_t count);
  bool joins(const Message& message, const device::Datagram& datagram, int socket,
             std::size_t bytes, std::size_t pieces) const;
  void begin_message(std::size_t datagram, const Sender& sender, std::size_t bytes);
  void append_frame(const device::Datagram& datagram);
  void append_copy(std::span<const std::byte> bytes);
  void append(std::span<const std::byte> bytes);
  void end_message();
  void send(Time now);
  bool is_held_back(const Message& message, Time now);
  bool refused(int error);
  void send_singly(Message& message);
  std::span<std::byte> sealed_copy(device::Datagram& datagram, std::uint16_t identification,
                                   std::byte* room);
  void keep_rest();
  void send_with_faults(std::size_t count, Time now);
  void send_held(const wire::IpUdp& ip, std::span<const std::byte> bytes);
  Sender& sender_for(QpNumber destination);
  std::uint32_t interface_of(const Gid& gid) const;
  bool is_own(const Gid& gid) const;

  Options options_;
  const DeviceInfo& device_;
  CaptureTap& tap_;
  DriverCounters& counters_;
  bool offload_;
  bool is_ipv6_;
  std::array<Sender, slots> senders_;
  HostPackets* memory_ = nullptr;
  RoceV1Port* roce_v1_ = nullptr;
  RoceV1Port::Sent frames_wait_ = RoceV1Port::Sent::all;
  Backlog backlog_;
  std::unique_ptr<FaultLine> faults_;

  std::vector<device::Datagram> datagrams_;
  std::vector<Message> messages_;
  std::vector<mmsghdr> headers_;
  std::vector<iovec> pieces_;
  std::unique_ptr<std::byte[]> scratch_;  // headers and small payloads, to keep pieces few
  std::unique_ptr<std::byte[]> sealed_;   // null if datagrams are plain
  std::unique_ptr<std::byte[]> kept_;     // datagrams that wait for a full socket
  std::size_t message_count_ = 0;
  std::size_t next_message_ = 0;  // the first message that is not sent
  std::size_t piece_count_ = 0;
  std::size_t scratch_used_ = 0;
  bool blocked_ = false;
  bool is_held_back_ = false;      // blocked by the receiver rather than by a socket of ours
  bool waits_for_reader_ = false;  // a ring is full, and keeps a packet
  Time held_back_until_;
  bool has_more_ = false;
};

}  // namespace tulle::live
