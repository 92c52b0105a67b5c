#include "live/path/packets/roce_v1_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "base/check.h"
#include "base/guarded_access.h"
#include "live/path/memory/packet_bytes.h"
#include "live/path/packets/kernel_socket.h"
#include "rdma/device/multicast.h"
#include "rdma/wire/path.h"

namespace tulle::live {
namespace {

// Requested buffers of the sockets. The kernel grants at most what the administrator allows, or all
// of it to a privileged process.
constexpr int frame_buffer_bytes = 16 << 20;
constexpr int send_buffer_bytes = 4 << 20;

constexpr std::size_t grh_offset = sizeof(wire::Ethernet);
constexpr std::size_t bth_offset = grh_offset + wire::grh_bytes;

Error failed(int error) {
  const char* hint = error == EPERM ? " (RoCE v1 needs CAP_NET_RAW)" : "";
  return {std::string("cannot open a packet socket: ") + std::strerror(error) + hint, error};
}

int bind_to_protocol(int socket, std::uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  const int result = bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return result == 0 ? 0 : errno;
}

// Passes frames of RoCE v1 to these queue pairs, and to groups, which the multicast queue pair
// number represents (IBTA 9.2). The kernel has taken a tag off already.
int filter(int socket, QpNumber first_qp, std::uint32_t qp_count) {
  constexpr std::uint32_t type_offset = 12;
  constexpr std::uint32_t qp_offset = bth_offset + 4;  // one byte, and the number's three
  constexpr std::uint32_t qp_mask = 0xFF'FFFF;
  const std::uint32_t end = first_qp.value + qp_count;
  std::array<sock_filter, 9> program = {{
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, type_offset),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wire::ether_type_roce, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, qp_offset),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, qp_mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, device::multicast_qp.value, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first_qp.value, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, end, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF'FFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  const sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &whole, sizeof whole) == 0 ? 0 : errno;
}

}  // namespace

Result<std::unique_ptr<RoceV1Port>> RoceV1Port::open(QpNumber first_qp, std::uint32_t qp_count,
                                                     CaptureTap& tap) {
  std::unique_ptr<RoceV1Port> port(new RoceV1Port);
  port->tap_ = &tap;
  port->sender_ = kernel_socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  if (!port->sender_) return failed(errno == EAFNOSUPPORT ? EOPNOTSUPP : errno);
  set_buffer(port->sender_.get(), SO_SNDBUFFORCE, SO_SNDBUF, send_buffer_bytes);
  if (const int error = port->open_receiver(first_qp, qp_count); error != 0) return failed(error);
  port->loopback_.interface_index = if_nametoindex("lo");
  port->loopback_.is_loopback = true;

  port->received_ = std::make_unique_for_overwrite<std::byte[]>(frames_max * frame_bytes_max);
  for (int i = 0; i < frames_max; ++i) {
    const auto at = static_cast<std::size_t>(i);
    port->received_pieces_[at] = {port->received_frame(i), frame_bytes_max};
    msghdr& header = port->received_headers_[at].msg_hdr;
    header.msg_iov = &port->received_pieces_[at];
    header.msg_iovlen = 1;
    header.msg_name = &port->senders_[at];
  }
  port->kept_ = std::make_unique_for_overwrite<std::byte[]>(messages_max * frame_bytes_max);
  for (std::size_t i = 0; i < messages_max; ++i) {
    msghdr& header = port->headers_[i].msg_hdr;
    header.msg_iov = &port->pieces_[i];
    header.msg_iovlen = 1;
    header.msg_name = &port->names_[i];
    header.msg_namelen = sizeof(sockaddr_ll);
  }
  return port;
}

// The filter is attached before the socket is bound, so that no frame comes unfiltered.
int RoceV1Port::open_receiver(QpNumber first_qp, std::uint32_t qp_count) {
  receiver_ = kernel_socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK);
  if (!receiver_) return errno;
  if (const int error = filter(receiver_.get(), first_qp, qp_count); error != 0) return error;
  set_buffer(receiver_.get(), SO_RCVBUFFORCE, SO_RCVBUF, frame_buffer_bytes);
  return bind_to_protocol(receiver_.get(), wire::ether_type_roce);
}

void RoceV1Port::replace_sockets(int by) const {
  for (const int socket : {receiver_.get(), sender_.get()}) {
    static_cast<void>(dup3(by, socket, O_CLOEXEC));
  }
}

// --- addresses ---

void RoceV1Port::set_addresses(std::span<const GidEntry> gids) {
  addresses_.clear();
  for (const GidEntry& entry : gids) {
    if (entry.in_use() && entry.is_roce_v1) addresses_.push_back({entry.gid, link_of(entry)});
  }
}

RoceV1Port::Link RoceV1Port::link_of(const GidEntry& entry) const {
  Link link{entry.interface_index, {}, false};
  ifreq request{};
  entry.interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  if (ioctl(sender_.get(), SIOCGIFHWADDR, &request) != 0) return link;
  link.is_loopback = request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
  std::memcpy(link.mac.data(), request.ifr_hwaddr.sa_data, link.mac.size());
  return link;
}

const RoceV1Port::Address* RoceV1Port::find(const Gid& gid) const {
  const auto found =
      std::ranges::find_if(addresses_, [&](const Address& each) { return each.gid == gid; });
  return found == addresses_.end() ? nullptr : &*found;
}

std::optional<std::uint32_t> RoceV1Port::interface_of(const Gid& address) const {
  const Address* found = find(address);
  return found == nullptr ? std::nullopt : std::optional(found->link.interface_index);
}

int RoceV1Port::change_membership(int option, const Gid& group) const {
  std::set<std::uint32_t> interfaces;
  for (const Address& address : addresses_) interfaces.insert(address.link.interface_index);
  const wire::MacAddress mac = port::mac_of(group);
  packet_mreq request{};
  request.mr_type = PACKET_MR_MULTICAST;
  request.mr_alen = static_cast<unsigned short>(mac.size());
  std::copy(mac.begin(), mac.end(), request.mr_address);
  for (const std::uint32_t interface_index : interfaces) {
    request.mr_ifindex = static_cast<int>(interface_index);
    if (setsockopt(receiver_.get(), SOL_PACKET, option, &request, sizeof request) != 0) {
      return errno;
    }
  }
  return 0;
}

// --- sending ---

void RoceV1Port::add(device::Datagram& datagram) {
  const auto& path = std::get<wire::EthernetPath>(datagram.path);
  const Gid destination = path.global.destination;
  const Address* source = find(path.global.source);
  if (source == nullptr) {  // the address is gone, and its interface with it
    ++counters_.unresolved;
    return;
  }
  const Link link = source->link;
  if (destination.is_multicast()) {
    if (!link.is_loopback) add_frame(datagram, link, port::mac_of(destination));
    return add_frame(datagram, loopback_, port::mac_of(destination));
  }
  if (is_own(destination)) return add_frame(datagram, loopback_, {});
  const auto neighbour = neighbours_.find({link.interface_index, destination});
  if (neighbour == neighbours_.end()) {
    ++counters_.unresolved;
    return;
  }
  add_frame(datagram, link, neighbour->second);
}

void RoceV1Port::add_frame(device::Datagram& datagram, const Link& link,
                           const wire::MacAddress& destination) {
  TULLE_CHECK(message_count_ < messages_max);
  auto& path = std::get<wire::EthernetPath>(datagram.path);
  path.source = link.mac;
  path.destination = destination;
  std::byte* const room = kept_.get() + message_count_ * frame_bytes_max;
  std::size_t size = 0;
  const auto append = [&](std::span<const std::byte> piece) {
    std::copy(piece.begin(), piece.end(), room + size);
    size += piece.size();
  };
  const bool is_there = attempt(payload_of(datagram), [&] {
    datagram.finish_frame(0);
    append(std::span(datagram.frame.head).first(datagram.frame.head_bytes));
    for (std::size_t i = 0; i < datagram.piece_count; ++i) append(datagram.pieces[i]);
    append(std::span(datagram.frame.tail).first(datagram.frame.tail_bytes));
  });
  if (!is_there) {  // to the transport, a payload that is gone by now is lost on the way
    ++counters_.send_errors;
    return;
  }
  if (tap_->is_open()) tap_->sent_frame({room, size});
  pieces_[message_count_] = {room, size};
  sockaddr_ll& name = names_[message_count_];
  name = {};
  name.sll_family = AF_PACKET;
  name.sll_protocol = htons(wire::ether_type_roce);
  name.sll_ifindex = static_cast<int>(link.interface_index);
  name.sll_halen = static_cast<unsigned char>(destination.size());
  std::copy(destination.begin(), destination.end(), name.sll_addr);
  ++message_count_;
}

RoceV1Port::Sent RoceV1Port::send() {
  while (next_message_ < message_count_) {
    const int count = sendmmsg(sender_.get(), &headers_[next_message_],
                               static_cast<unsigned>(message_count_ - next_message_), MSG_DONTWAIT);
    if (count > 0) {
      next_message_ += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EAGAIN) return Sent::socket_is_full;
    if (errno == ENOBUFS) return Sent::queue_is_full;
    if (errno == EINTR) continue;
    // The interface is down or gone, or its MTU is smaller than the device's. To the transport, the
    // frame is lost on the way.
    ++counters_.send_errors;
    ++next_message_;
  }
  message_count_ = next_message_ = 0;
  return Sent::all;
}

// --- receiving ---

int RoceV1Port::fill() {
  for (auto& header : received_headers_) header.msg_hdr.msg_namelen = sizeof(sockaddr_ll);
  const int count =
      recvmmsg(receiver_.get(), received_headers_.data(), frames_max, MSG_DONTWAIT, nullptr);
  return std::max(count, 0);
}

// Returns a frame that came to an address of the device or to a group. A switch floods frames to
// addresses that it does not know, and an interface may let all frames in.
std::span<const std::byte> RoceV1Port::accepted(int index) {
  const auto at = static_cast<std::size_t>(index);
  const std::size_t size = received_headers_[at].msg_len;
  const bool is_whole = (received_headers_[at].msg_hdr.msg_flags & MSG_TRUNC) == 0;
  const std::uint8_t type = senders_[at].sll_pkttype;
  const bool is_for_here = type == PACKET_HOST || type == PACKET_MULTICAST;
  wire::GlobalRoute route;
  const std::span<const std::byte> frame(received_frame(index), size);
  const bool is_to_us =
      is_whole && is_for_here && size >= bth_offset &&
      wire::decode_grh(frame.subspan(grh_offset).first<wire::grh_bytes>(), route).ok &&
      (route.destination.is_multicast() || is_own(route.destination));
  if (!is_to_us) {
    ++counters_.refused;
    return {};
  }
  if (tap_->is_open()) tap_->received_frame(frame);
  return frame;
}

}  // namespace tulle::live
