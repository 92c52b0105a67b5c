#include "live/path/packets/packet_port.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "live/path/packets/kernel_socket.h"
#include "rdma/wire/internet_checksum.h"

namespace tulle::live {
namespace {

// Mark of frames that this device's programs send, by which the programs of its host recognise
// them: "tull".
constexpr std::uint32_t own_mark = 0x7475'6C6C;
constexpr std::size_t tag_bytes = sizeof(wire::VlanTag);
// Requested receive buffer. The kernel grants at most what the administrator allows
// (net.core.rmem_max), or all of it to a privileged process.
constexpr int receive_buffer_bytes = 16 << 20;

struct Interface {
  int index = 0;
  unsigned mtu_bytes = 0;
  bool is_loopback = false;
  wire::MacAddress mac{};
};

// Returns 0 or an errno.
int describe(int socket, const std::string& interface, Interface& link) {
  ifreq request{};
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (ioctl(socket, SIOCGIFINDEX, &request) != 0) return errno;
  link.index = request.ifr_ifindex;
  if (ioctl(socket, SIOCGIFMTU, &request) != 0) return errno;
  link.mtu_bytes = static_cast<unsigned>(request.ifr_mtu);
  if (ioctl(socket, SIOCGIFHWADDR, &request) != 0) return errno;
  link.is_loopback = request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
  if (!link.is_loopback && request.ifr_hwaddr.sa_family != ARPHRD_ETHER) return EOPNOTSUPP;
  std::memcpy(link.mac.data(), request.ifr_hwaddr.sa_data, link.mac.size());
  return 0;
}

int errno_of(int result) { return result == 0 ? 0 : errno; }

int bind_to(int socket, int interface_index, std::uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = interface_index;
  return errno_of(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
}

template <typename Value>
int set_option(int socket, int level, int option, const Value& value) {
  return errno_of(setsockopt(socket, level, option, &value, sizeof(value)));
}

bool is_all_ones(const wire::MacAddress& mask) {
  return std::all_of(mask.begin(), mask.end(), [](std::uint8_t byte) { return byte == 0xFF; });
}

}  // namespace

int PacketPort::probe(const std::string& interface) {
  const UniqueFd socket = kernel_socket(AF_PACKET, SOCK_RAW);
  if (!socket) return errno == EAFNOSUPPORT ? EOPNOTSUPP : EPERM;
  Interface link;
  return describe(socket.get(), interface, link);
}

Result<std::unique_ptr<PacketPort>> PacketPort::open(const std::string& interface) {
  const auto fail = [&](int error) {
    return Error{"cannot send frames on " + interface + ": " + std::strerror(error), error};
  };
  std::unique_ptr<PacketPort> port(new PacketPort);
  port->sender_ = kernel_socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  const int socket = port->sender_.get();
  if (socket < 0) return fail(errno);
  Interface link;
  if (const int error = describe(socket, interface, link); error != 0) return fail(error);
  // Linux before 5.17 requires CAP_NET_ADMIN for the mark. Without the mark, this host's programs
  // do not receive the frame.
  set_option(socket, SOL_SOCKET, SO_MARK, own_mark);
  // Protocol 0 means that the socket receives nothing.
  if (const int error = bind_to(socket, link.index, 0); error != 0) return fail(error);
  port->interface_index_ = link.index;
  port->is_loopback_ = link.is_loopback;
  port->mac_ = link.mac;
  port->frame_bytes_max_ = link.mtu_bytes + static_cast<unsigned>(sizeof(wire::Ethernet));
  return port;
}

// --- flows ---

int PacketPort::watch(const device::FlowRule& rule) {
  if (flows_ == 0) {
    if (const int error = open_receiver(); error != 0) {
      receiver_.reset();
      return error;
    }
  }
  if (const int error = change_membership(PACKET_ADD_MEMBERSHIP, rule); error != 0) {
    if (flows_ == 0) receiver_.reset();
    return error;
  }
  ++flows_;
  return 0;
}

void PacketPort::unwatch(const device::FlowRule& rule) {
  change_membership(PACKET_DROP_MEMBERSHIP, rule);
  if (--flows_ > 0) return;
  receiver_.reset();
  first_ = count_ = 0;
  waits_since_ = Time::never();
}

int PacketPort::open_receiver() {
  receiver_ = kernel_socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  const int socket = receiver_.get();
  if (socket < 0) return errno;
  if (const int error = filter_receiver(); error != 0) return error;
  constexpr int yes = 1;
  int error = set_option(socket, SOL_PACKET, PACKET_AUXDATA, yes);
  if (error == 0) error = set_option(socket, SOL_PACKET, PACKET_VNET_HDR, yes);
  if (error != 0) return error;
  set_buffer(socket, SO_RCVBUFFORCE, SO_RCVBUF, receive_buffer_bytes);
  memory_.resize(frames_max * (tag_bytes + frame_bytes_max_ + tag_bytes));
  return bind_to(socket, interface_index_, ETH_P_ALL);
}

// Attaches the filter. This happens before the socket is bound, so that no frame comes unfiltered.
int PacketPort::filter_receiver() const {
  const auto mac = [this](std::size_t first, std::size_t count) {
    std::uint32_t value = 0;
    for (std::size_t i = first; i < first + count; ++i) value = value << 8 | mac_[i];
    return value;
  };
  constexpr std::uint32_t packet_type = SKF_AD_OFF + SKF_AD_PKTTYPE;
  constexpr std::uint32_t mark = SKF_AD_OFF + SKF_AD_MARK;
  std::array<sock_filter, 12> program = {{
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, packet_type),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 8),  // not outgoing: take it
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, mark),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own_mark, 0, 7),  // no mark: drop it
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 4, 0),  // to a group: take it
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mac(0, 4), 0, 3),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mac(4, 2), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF'FFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  // Outgoing frames on loopback also come in as received frames, so the filter drops them here.
  if (is_loopback_) program[1].jt = 9;
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return set_option(receiver_.get(), SOL_SOCKET, SO_ATTACH_FILTER, filter);
}

// Registers the frames to receive in addition to the interface's own and broadcasts. The kernel
// counts how often a socket has made the same request.
int PacketPort::change_membership(int option, const device::FlowRule& rule) {
  packet_mreq request{};
  request.mr_ifindex = interface_index_;
  switch (rule.kind) {
    case device::FlowKind::normal: {
      if (!is_all_ones(rule.match.mask.destination_mac)) return 0;
      const wire::MacAddress& address = rule.match.value.destination_mac;
      if (address == mac_) return 0;
      request.mr_type = wire::is_multicast(address) ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST;
      request.mr_alen = static_cast<unsigned short>(address.size());
      std::copy(address.begin(), address.end(), request.mr_address);
      break;
    }
    case device::FlowKind::multicast_default:
      request.mr_type = PACKET_MR_ALLMULTI;
      break;
    case device::FlowKind::all_default:
    case device::FlowKind::sniffer:
      request.mr_type = PACKET_MR_PROMISC;
      break;
  }
  return set_option(receiver_.get(), SOL_PACKET, option, request);
}

// --- frames ---

void PacketPort::prepare(int frame) {
  const auto at = static_cast<std::size_t>(frame);
  Slot& slot = slots_[at];
  const std::size_t bytes = frame_bytes_max_ + tag_bytes;
  slot.pieces[0] = {&slot.offload, sizeof(slot.offload)};
  slot.pieces[1] = {memory_.data() + at * (tag_bytes + bytes) + tag_bytes, bytes};
  msghdr& message = received_[at].msg_hdr;
  message = {};
  message.msg_iov = slot.pieces;
  message.msg_iovlen = 2;
  message.msg_control = slot.control;
  message.msg_controllen = sizeof(slot.control);
}

int PacketPort::receive(Time now, device::RawPackets& packets) {
  if (!receiver_) return 0;
  if (!is_waiting()) {
    for (int i = 0; i < frames_max; ++i) prepare(i);
    first_ = 0;
    count_ = recvmmsg(receiver_.get(), received_.data(), frames_max, MSG_DONTWAIT, nullptr);
  }
  using IfNoRoom = device::RawPackets::IfNoRoom;
  int handed_on = 0;
  for (; first_ < count_; ++first_, ++handed_on) {
    if (waits_since_.is_never()) current_ = complete(first_);
    if (current_.empty()) continue;
    const bool gives_up = !waits_since_.is_never() && now >= waits_since_ + waiting_time_max;
    if (!packets.handle_frame(current_, gives_up ? IfNoRoom::drop : IfNoRoom::wait)) {
      if (waits_since_.is_never()) waits_since_ = now;
      return handed_on;
    }
    waits_since_ = Time::never();
  }
  return handed_on;
}

// Returns the frame as a wire would have brought it, or nothing if no wire could have brought it.
std::span<const std::byte> PacketPort::complete(int index) {
  const auto at = static_cast<std::size_t>(index);
  const Slot& slot = slots_[at];
  msghdr& message = received_[at].msg_hdr;
  const std::size_t got = received_[at].msg_len;
  if ((message.msg_flags & MSG_TRUNC) != 0 || got < sizeof(slot.offload) + sizeof(wire::Ethernet)) {
    return {};
  }
  auto* begin = static_cast<std::byte*>(slot.pieces[1].iov_base);
  std::size_t bytes = got - sizeof(slot.offload);
  if ((slot.offload.flags & Offload::needs_checksum) != 0) {
    const std::size_t start = slot.offload.checksum_start;
    const std::size_t field = start + slot.offload.checksum_offset;
    if (field + sizeof(be16) > bytes) return {};
    wire::InternetChecksum checksum;
    checksum.add(std::span<const std::byte>(begin + start, bytes - start));
    const std::uint16_t value = checksum.value();
    const be16 written = value != 0 ? value : std::uint16_t{0xFFFF};  // RFC 768: 0 means none
    std::memcpy(begin + field, &written, sizeof(written));
  }
  tpacket_auxdata beside{};
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA) continue;
    std::memcpy(&beside, CMSG_DATA(c), sizeof(beside));
  }
  if ((beside.tp_status & TP_STATUS_VLAN_VALID) != 0) {
    const bool has_type = (beside.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    const be16 type = has_type ? beside.tp_vlan_tpid : wire::ether_type_vlan;
    const be16 control = beside.tp_vlan_tci;
    begin -= tag_bytes;
    std::memmove(begin, begin + tag_bytes, 2 * sizeof(wire::MacAddress));
    std::memcpy(begin + 2 * sizeof(wire::MacAddress), &type, sizeof(type));
    std::memcpy(begin + 2 * sizeof(wire::MacAddress) + sizeof(type), &control, sizeof(control));
    bytes += tag_bytes;
  }
  return {begin, bytes};
}

PacketPort::Sent PacketPort::transmit(device::RawPackets& packets) {
  constexpr std::size_t batch = device::RawPackets::frames_at_once;
  std::array<mmsghdr, batch> messages;
  std::array<std::array<iovec, verbs::sges_max + 2>, batch> pieces;
  for (;;) {
    const auto frames = packets.pull_frames();
    if (frames.empty()) return Sent::all;
    for (std::size_t i = 0; i < frames.size(); ++i) {
      messages[i] = {};
      for (std::size_t k = 0; k < frames[i].piece_count; ++k) {
        const auto piece = frames[i].pieces[k];
        pieces[i][k] = {const_cast<std::byte*>(piece.data()), piece.size()};
      }
      messages[i].msg_hdr.msg_iov = pieces[i].data();
      messages[i].msg_hdr.msg_iovlen = frames[i].piece_count;
    }
    const int count = sendmmsg(sender_.get(), messages.data(), static_cast<unsigned>(frames.size()),
                               MSG_DONTWAIT);
    const int error = count < 0 ? errno : 0;
    if (error == EAGAIN || error == ENOBUFS) {
      packets.sent(0);
      return error == EAGAIN ? Sent::socket_is_full : Sent::queue_is_full;
    }
    // Any other error means that the interface does not take the frame, for example because it is
    // down. The program is not told, and the frame is lost.
    packets.sent(count < 0 ? (error == EINTR ? 0 : 1) : static_cast<std::size_t>(count));
  }
}

}  // namespace tulle::live
