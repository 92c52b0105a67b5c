// Sends datagrams of every length, 0 to 65,527 bytes, over IPv4 and IPv6, to the socket or the
// relay of a process, and takes them as the process does: through the receiver, past a capture that
// runs, into the adapter. Nothing outside of the registered memory may change, each datagram is
// handed on once and whole, and what leaves holds nothing but registered memory. Without a READ,
// answers are no longer than what came.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/path/packets/capture_tap.h"
#include "live/path/packets/receiver.h"
#include "live/private_network_test.h"
#include "rdma/device/adapter.h"
#include "rdma/port/framing/roce_v2.h"

namespace tulle::live {
namespace {

using base::Script;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

constexpr std::size_t region_bytes = 8'192, guard_bytes = 4'096;
constexpr std::byte guard{0xA5};
constexpr std::uint64_t iova = 0x40'0000;
constexpr std::uint16_t port = 4'791;

Gid ipv6_loopback() {
  Gid gid;
  gid.bytes[15] = 1;
  return gid;
}

struct Sockets {
  UniqueFd receiver;
  UniqueFd sender;  // sends over IPv6, or over IPv4 to a mapped address
};
Sockets& sockets() {
  static Sockets sockets = [] {
    Sockets made;
    auto bound = bind_udp(0, PortUse::exclusive);
    TULLE_CHECK(bound);
    made.receiver = std::move(*bound);
    made.sender.reset(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return made;
  }();
  return sockets;
}

class Run {
 public:
  explicit Run(Script& script)
      : script_(script), memory_(region_bytes + 2 * guard_bytes, guard), adapter_({}) {
    const std::array gids = {Gid::from_ipv4(0x7F00'0001), ipv6_loopback()};
    adapter_.set_gids(gids);
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    cq_ = adapter_.objects().create_cq(1'024, nullptr, status);
    region_ = adapter_.objects().register_memory(*pd_, memory_.data() + guard_bytes, region_bytes,
                                                 iova, verbs::AccessFlags::from_bits(31), status);
    for (const QpType type : {QpType::rc, QpType::uc, QpType::ud, QpType::rc}) open(type);
    if (script_.below(2) == 0) {
      auto ring = CaptureRing::create(1 << 20);
      reader_.emplace(
          std::move(*CaptureRing::map(UniqueFd(fcntl(ring->fd(), F_DUPFD_CLOEXEC, 0)))));
      tap_.open(std::move(*ring), script_.byte() * 8u);
    }
    int ends[2];
    TULLE_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    relay_in_.reset(ends[0]);
    relay_out_.reset(ends[1]);
    relay_receiver_.emplace(relay_out_.get(), port, Receiver::From::relay);
    const int bytes = 2 << 20;
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }

  void go() {
    while (!script_.is_over()) step();
  }

 private:
  void open(QpType type) {
    transport::QueuePairInit init;
    init.type = type;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 2;
    VerbsStatus status{};
    auto* qp = adapter_.create_qp(init, status);
    TULLE_CHECK(qp != nullptr);
    transport::QueuePairAttributes a;
    a.access = verbs::AccessFlags::from_bits(2 | 4 | 8);
    a.path_mtu = verbs::Mtu::b1024;
    a.destination_qp = QpNumber(7);
    a.address.destination = Gid::from_ipv4(0x7F00'0001);
    a.max_dest_rd_atomic = 4;
    const bool is_datagram = qp->transport.is_datagram;
    a.state = QpState::init;
    auto mask = QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index | QpAttribute::port;
    TULLE_CHECK(adapter_.modify(
                    *qp, a, mask | (is_datagram ? QpAttribute::qkey : QpAttribute::access_flags)) ==
                VerbsStatus::ok);
    a.state = QpState::rtr;
    mask = QpAttribute::state;
    if (!is_datagram) {
      mask |= QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
              QpAttribute::destination_qp | QpAttribute::rq_psn;
    }
    if (type == QpType::rc) {
      mask |= QpAttributeMask(QpAttribute::max_dest_rd_atomic) | QpAttribute::min_rnr_timer;
    }
    TULLE_CHECK(adapter_.modify(*qp, a, mask) == VerbsStatus::ok);
    qps_.push_back(qp);
  }

  void step() {
    if (script_.one_in(4)) post_receive();
    const bool is_ipv4 = script_.below(2) == 0;
    wire::IpUdp ip;
    ip.source = ip.destination = is_ipv4 ? Gid::from_ipv4(0x7F00'0001) : ipv6_loopback();
    ip.source_port = script_.half();
    const std::size_t most = wire::udp_payload_bytes_max(ip);
    std::vector<std::byte> datagram = any_datagram(ip, most);
    if (script_.one_in(8)) {
      through_relay(ip, datagram);
    } else {
      through_socket(is_ipv4, datagram);
    }
    pull();
    read_capture();
    const auto is_guard = [](std::byte each) { return each == guard; };
    TULLE_CHECK(std::all_of(memory_.begin(), memory_.begin() + guard_bytes, is_guard));
    TULLE_CHECK(std::all_of(memory_.end() - guard_bytes, memory_.end(), is_guard));
  }

  // Makes a datagram of a packet with a correct ICRC, or of any bytes and length.
  std::vector<std::byte> any_datagram(const wire::IpUdp& ip, std::size_t most) {
    const std::uint32_t kind = script_.below(8);
    if (kind < 2) {
      std::vector<std::byte> bytes = script_.bytes(script_.byte());
      const std::uint32_t length = script_.below(4);
      if (length == 1) bytes.resize(script_.half() % (most + 1));
      if (length == 2) bytes.resize(most - script_.byte() % 2);
      return bytes;
    }
    wire::Packet packet;
    const auto classes = std::array{wire::TransportClass::rc, wire::TransportClass::uc,
                                    wire::TransportClass::ud, wire::TransportClass::rc};
    const std::size_t place = script_.below(4);
    packet.opcode = wire::opcode(classes[place], static_cast<wire::Operation>(script_.below(0x20)));
    if (script_.one_in(16)) packet.opcode = static_cast<wire::Opcode>(script_.byte());
    packet.destination_qp = script_.one_in(8) ? QpNumber{script_.below(4)} : qps_[place]->number;
    packet.psn = Psn(script_.one_in(8) ? script_.word() : psns_[place]++);
    packet.ack_request = script_.below(2) == 0;
    packet.virtual_address = iova + script_.half() % (region_bytes + 16);
    packet.rkey = region_->rkey();
    packet.dma_length = script_.half();
    packet.source_qp = QpNumber(9);
    const wire::Kind of = wire::info(packet.opcode).kind;
    if (of == wire::Kind::none) return {};
    has_read_ |= of == wire::Kind::read_request;
    const std::size_t longest = most - wire::header_bytes_max - wire::icrc_bytes - 3;
    std::size_t length = script_.one_in(4) ? script_.half() : script_.below(4) * 256u;
    length = std::min(length, longest);
    if (!wire::info(packet.opcode).payload) length = 0;
    packet.pad_count = static_cast<std::uint8_t>(-length & 3);
    const std::vector<std::byte> payload(length, std::byte{0x3C});
    const std::span<const std::byte> piece = payload;
    port::FrameBytes frame;
    port::encode(ip, packet, {&piece, 1}, frame);
    std::vector<std::byte> out(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    out.insert(out.end(), payload.begin(), payload.end());
    out.insert(out.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
    return out;
  }

  void through_socket(bool is_ipv4, std::span<const std::byte> datagram) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    const Gid gid = is_ipv4 ? Gid::from_ipv4(0x7F00'0001) : ipv6_loopback();
    std::memcpy(&to.sin6_addr, gid.bytes.data(), 16);
    to.sin6_port = htons(port_of(sockets().receiver.get()));
    const ssize_t sent = sendto(sockets().sender.get(), datagram.data(), datagram.size(), 0,
                                reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    TULLE_CHECK(sent == static_cast<ssize_t>(datagram.size()));
    take(socket_receiver(), datagram.size());
  }

  void through_relay(const wire::IpUdp& ip, std::span<const std::byte> datagram) {
    RelayedHeaders headers;
    headers.source = ip.source;
    headers.destination = ip.destination;
    headers.source_port = ip.source_port;
    headers.segment_bytes = script_.one_in(4) ? script_.half() : std::uint16_t{0};
    headers.traffic_class = script_.byte();
    std::vector<std::byte> message(sizeof(headers) + datagram.size());
    std::memcpy(message.data(), &headers, sizeof(headers));
    std::copy(datagram.begin(), datagram.end(), message.begin() + sizeof(headers));
    // A message may also be cut short.
    if (script_.one_in(16)) message.resize(std::min<std::size_t>(message.size(), script_.byte()));
    if (send(relay_in_.get(), message.data(), message.size(), MSG_DONTWAIT) < 0) return;
    const std::size_t left =
        message.size() < sizeof(headers) ? 0 : message.size() - sizeof(headers);
    take(*relay_receiver_, left);
  }

  static Receiver& socket_receiver() {
    static Receiver receiver(sockets().receiver.get(), port);
    return receiver;
  }

  // Takes what came. All its bytes are handed on.
  void take(Receiver& receiver, std::size_t bytes) {
    std::size_t handed_on = 0;
    const int messages = receiver.receive([&](const wire::IpUdp& ip, auto datagram) {
      handed_on += datagram.size();
      if (tap_.is_open()) tap_.received(ip, datagram);
      static_cast<void>(adapter_.handle_datagram(now_, ip, false, datagram));
      received_bytes_ += datagram.size() + wire::ip_udp_header_bytes(ip);
    });
    TULLE_CHECK(messages <= 1 && handed_on == bytes);
  }

  void post_receive() {
    const verbs::Sge sge{iova + script_.byte(), script_.byte() * 32u, region_->lkey()};
    (void)adapter_.post_receive(*qps_[script_.below(4)], {1, {&sge, 1}});
  }

  void pull() {
    now_ += Time::microseconds(1);
    adapter_.handle_deadline(now_);
    while (adapter_.pull_datagram(now_, outgoing_)) {
      outgoing_.finish_frame(0);
      for (std::uint8_t i = 0; i < outgoing_.piece_count; ++i) {
        const std::byte* begin = outgoing_.pieces[i].data();
        TULLE_CHECK(begin >= memory_.data() + guard_bytes);
        TULLE_CHECK(begin + outgoing_.pieces[i].size() <=
                    memory_.data() + guard_bytes + region_bytes);
      }
      if (tap_.is_open()) tap_.sent(outgoing_);
      sent_bytes_ +=
          outgoing_.frame.head_bytes + outgoing_.payload_bytes + outgoing_.frame.tail_bytes;
    }
    TULLE_CHECK(has_read_ || sent_bytes_ <= 4 * received_bytes_);
    for (device::Event event; adapter_.pull_event(event);) {
    }
    std::array<verbs::Completion, 16> completions;
    while (cq_->poll(completions) > 0) {
    }
  }

  void read_capture() {
    if (!reader_) return;
    CapturedFrame frame;
    std::vector<std::byte> bytes;
    while (reader_->read(frame, bytes)) {
      TULLE_CHECK(bytes.size() <= frame.original_bytes);
      wire::IpUdp headers;
      const wire::DecodedIpUdp decoded = wire::decode(bytes, headers);
      const bool is_whole = bytes.size() == frame.original_bytes;
      TULLE_CHECK(decoded.ok == is_whole || !is_whole);
    }
  }

  Script& script_;
  std::vector<std::byte> memory_;
  device::Adapter adapter_;
  CaptureTap tap_;
  std::optional<CaptureRing> reader_;
  UniqueFd relay_in_, relay_out_;
  std::optional<Receiver> relay_receiver_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  verbs::MemoryRegion* region_ = nullptr;
  std::vector<transport::QueuePair*> qps_;
  std::array<std::uint32_t, 4> psns_{};
  std::uint64_t received_bytes_ = 0, sent_bytes_ = 0;
  bool has_read_ = false;  // a READ may have come, whose answer is longer than itself
  device::Datagram outgoing_;
  Time now_;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tulle::live::enter_private_network();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
