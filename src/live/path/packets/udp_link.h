#pragma once

// The link by UDP: RoCE v2's datagrams to and from processes of any host. Neighbouring datagrams of
// one size to one process go to the kernel as one segmented message (UDP_SEGMENT), and several
// messages go in one call. Payloads are not copied on the way there.
//
// Source ports: there is one socket for each slot of destination queue pairs. So datagrams to two
// processes of one host are two flows, both for switches that spread flows and for a receiving
// kernel, which joins a flow's datagrams (GRO) before it determines their receiver.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/faults.h"
#include "live/link.h"
#include "live/message/device_info.h"
#include "live/path/packets/backlog.h"
#include "live/path/packets/capture_tap.h"
#include "live/path/packets/fault_line.h"
#include "live/path/packets/receiver.h"
#include "live/path/packets/socket_group.h"
#include "live/path/packets/udp_socket.h"
#include "live/security/seal.h"
#include "os/unique_fd.h"
#include "rdma/device/adapter.h"

namespace tulle::live {

class UdpLink final : public Link {
 public:
  // Joins a multicast group, or leaves it. Returns 0 or an errno.
  using ChangeMembership = std::function<int(const Gid& group, bool leaves)>;
  struct Options {
    UniqueFd socket;  // the slot's socket, or the end of a relay
    Receiver::From from = Receiver::From::udp_socket;
    UniqueFd sender;  // with a relay: the socket that sends if no other can be had
    std::uint16_t port = 0;
    bool offload = true;
    fabric::FaultSettings faults;
    std::unique_ptr<Seal> seal;  // seals the datagrams; null: they are plain
    UniqueFd vault;              // holds the host's sockets; may be none
    ChangeMembership change_membership;
  };
  UdpLink(Options options, const DeviceInfo& device, CaptureTap& tap, DriverCounters& counters);
  ~UdpLink() override;

  Offer offer(device::Datagram& datagram, Time now) override;
  Flushed flush(Time now) override;
  [[nodiscard]] bool resume(Time now) override;
  int blocked_socket() const override {
    return blocked_ && !is_held_back_ ? messages_[next_message_].socket : -1;
  }
  // Returns the time at which it must be checked again whether a receiver has room, or at which a
  // datagram that a fault holds up is due.
  Time next_deadline() const override {
    if (faults_) return faults_->next_deadline();
    return is_held_back_ ? held_back_until_ : Time::never();
  }

  int receive(device::Adapter& adapter, Time now) override;
  int receiving_socket() const override { return options_.socket.get(); }
  bool wakes_sleepers() const override { return true; }

  int join(const Gid& group) override { return options_.change_membership(group, false); }
  void leave(const Gid& group) override { options_.change_membership(group, true); }

  void count(DriverCounters& counters) override {
    counters.kernel_drops = receiver_.kernel_drops();
  }
  void rebase(Time by) override;
  // The lost host agent belonged to another user and took the socket group with it. In what is left
  // of the group, this process's socket no longer has the place that its queue pair numbers name.
  // Keeping the socket would only keep the port from the next host agent.
  void lose_network(DeviceInfo& device, int other) override;
  // The port must be free once its users are gone, even if the child lives on.
  void forget_in_child(int other) override;

 private:
  static constexpr std::size_t pieces_per_datagram_max = verbs::sges_max + 4;
  // A message is one datagram, or a batch of segments.
  struct Message {
    int socket = -1;
    std::uint32_t slot = 0;  // slot of the destination
    bool stays_on_host = false;
    std::size_t first = 0;  // index in borrowed_
    std::size_t count = 0;
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;  // size of each datagram; the last may be shorter
    SendAddress address;
  };
  struct Sender {
    int socket = -1;
    std::uint16_t port = 0;
  };

  bool send_rest(Time now);
  void compose();
  bool joins(const Message& message, std::size_t datagram, int socket, std::size_t bytes,
             std::size_t pieces) const;
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
  void send_with_faults(Time now);
  void send_held(const wire::IpUdp& ip, std::span<const std::byte> bytes);
  Sender& sender_for(QpNumber destination);
  std::uint32_t interface_of(const Gid& gid) const;
  bool is_own(const Gid& gid) const;

  Options options_;
  int own_sender_;  // sends if no other socket can be had
  const DeviceInfo& device_;
  CaptureTap& tap_;
  DriverCounters& counters_;
  bool offload_;
  bool is_ipv6_;
  std::array<Sender, slots> senders_;
  Receiver receiver_;
  Backlog backlog_;
  std::unique_ptr<FaultLine> faults_;

  std::vector<device::Datagram*> borrowed_;
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
  bool is_held_back_ = false;  // blocked by the receiver rather than by a socket of ours
  Time held_back_until_;
};

}  // namespace tulle::live
