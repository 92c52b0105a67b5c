// Owns a peer of this host that sends packets by memory: its table, its ring and what the packets
// refer to. All of it may have any bytes at any time.
//
// Whatever comes may change only the memory of receive requests that are posted, and what the key
// of a region allows. Sending and receiving must come to an end in each call.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/script_fuzz.h"
#include "live/path/memory/host_packets.h"
#include "live/path/memory/hostile_peer_fuzz.h"

namespace tulle::live {
namespace {

using base::Script;
using verbs::Access;
using wire::Operation;

constexpr std::uint32_t own_slot = 3;
constexpr std::uint32_t peer_slot = 0;  // that of the peer's queue pair number
constexpr std::size_t receive_at = GuardedRegion::receive_at;
constexpr std::size_t receive_bytes = GuardedRegion::receive_bytes;

class Run {
 public:
  explicit Run(Script& script)
      : script_(script),
        may_write_(script.one_in(2)),
        path_(peer_.open_path(own_slot, make_bell())),
        adapter_({}),
        connection_(adapter_, GuardedRegion::region(),
                    may_write_ ? verbs::AccessFlags(Access::remote_write) : verbs::AccessFlags()),
        packets_(path_->peers(), [](const Gid& gid, bool) { return gid == hostile_gid; }) {
    adapter_.objects().set_direct_path(path_.get());
    path_->expose(*connection_.qp);
    if (script.one_in(2)) connection_.start_sending(adapter_);
    name_each_other();
    packets_.meet_peers();
    ring_ = RingWriter(peer_.ring_to(own_slot), path_->peers().table().inboxes[peer_slot].progress);
  }
  ~Run() { adapter_.objects().set_direct_path(nullptr); }

  void go() {
    while (!script_.is_over()) {
      step();
      GuardedRegion::check(may_write_);
    }
  }

 private:
  UniqueFd make_bell() {
    std::array<int, 2> ends{-1, -1};
    TULLE_CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    bell_.reset(ends[0]);
    return UniqueFd(ends[1]);
  }
  void name_each_other() {
    const std::uint64_t proof = path_->peers().table().proof;
    peer_.table().outboxes[own_slot].reader = proof;
    peer_.table().inboxes[own_slot].writer = proof;
    peer_.table().inboxes[own_slot].reads_memory = 1;
  }

  void step() {
    switch (script_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return write_reference();
      case 4:
        return write_packet();
      case 5:
        return post_receive();
      case 6:
        return send();
      case 7:
        return scribble();
      case 8:
        peer_.table().recalls[PeerTable::recall_of(hostile_qp)] = script_.byte();
        return;
      case 9:
        name_each_other();
        return;
      default:
        while (packets_.receive(adapter_, now_) > 0) continue;
        now_ = now_ + Time::microseconds(script_.half());
        if (adapter_.next_deadline() <= now_) adapter_.handle_deadline(now_);
    }
  }

  // A packet of a message, mostly the next one that the queue pair expects.
  std::size_t encode_packet(std::uint32_t payload_bytes, std::byte* room) {
    constexpr std::array<Operation, 9> operations = {
        Operation::send_first, Operation::send_middle, Operation::send_last,
        Operation::send_only,  Operation::write_first, Operation::write_middle,
        Operation::write_last, Operation::write_only,  Operation::write_last_with_immediate};
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::rc, operations[script_.below(9)]);
    packet.destination_qp =
        script_.one_in(32) ? QpNumber{script_.word() & 0xFF'FFFF} : connection_.qp->number;
    if (script_.one_in(8)) psn_ = script_.byte();
    packet.psn = Psn(psn_++);
    packet.pad_count = static_cast<std::uint8_t>(-payload_bytes & 3);
    packet.ack_request = true;
    packet.virtual_address = 0x1000 + (script_.one_in(4) ? script_.number() : script_.half());
    packet.dma_length = script_.one_in(4) ? script_.word() : script_.half();
    packet.rkey = script_.one_in(16) ? RemoteKey{script_.word()} : connection_.region->rkey();
    return wire::encode(packet, {room, wire::header_bytes_max});
  }

  std::size_t write_path(std::byte* room) {
    struct {
      Gid source = hostile_gid;
      Gid destination = hostile_gid;
      std::array<std::uint32_t, 2> rest{};
      std::uint32_t is_roce_v1 = 0;
    } path;
    if (script_.one_in(4)) path.is_roce_v1 = script_.byte();
    static_assert(sizeof path == 44);
    std::memcpy(room, &path, sizeof path);
    return sizeof path;
  }

  void write_reference() {
    std::byte* const room = reserve();
    if (room == nullptr) return;
    std::byte* at = room;
    const bool has_path = script_.one_in(4) || !std::exchange(has_told_path_, true);
    if (has_path) at += write_path(at);
    std::array<std::span<const std::byte>, PayloadReference::pieces_max> pieces;
    const std::size_t count = 1 + script_.below(PayloadReference::pieces_max);
    std::uint32_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t length = script_.one_in(2) ? 4'096 / count : script_.half() % 4'097;
      const auto* from = script_.one_in(16) ? reinterpret_cast<const std::byte*>(script_.number())
                                            : HostilePeer::memory.data() + script_.half() % 32'768;
      pieces[i] = {from, length};
      bytes += static_cast<std::uint32_t>(length);
    }
    const PayloadReference reference({pieces.data(), count}, hostile_qp, peer_.table());
    reference.encode(at);
    at += PayloadReference::encoded_bytes(count);
    at += encode_packet(bytes, at);
    publish(room, static_cast<std::size_t>(at - room),
            PacketRing::has_reference | (has_path ? PacketRing::has_path : 0));
  }

  void write_packet() {
    std::byte* const room = reserve();
    if (room == nullptr) return;
    const std::uint32_t bytes = script_.half() % 4'097;
    std::size_t used = encode_packet(bytes, room);
    std::memset(room + used, 0x5A, bytes + 3);
    used += bytes + (-bytes & 3u);
    publish(room, used, 0);
  }

  std::byte* reserve() { return ring_.reserve(PacketRing::content_bytes_max / 2); }

  void publish(std::byte* room, std::size_t bytes, std::uint32_t marks) {
    const auto noise = script_.one_in(8) ? script_.bytes(4) : std::vector<std::byte>();
    std::ranges::copy(noise, room + script_.below(128));
    ring_.publish(script_.one_in(32) ? script_.half() % 8'192 : bytes, marks);
  }

  void post_receive() {
    const std::uint32_t first = script_.half() % (receive_bytes / 2);
    const std::uint32_t second = script_.half() % (receive_bytes / 2);
    const LocalKey key = connection_.region->lkey();
    const std::array<verbs::Sge, 2> sges = {
        {{0x1000 + receive_at, first, key}, {0x1000 + receive_at + first, second, key}}};
    verbs::ReceiveRequest request;
    request.sges = sges;
    static_cast<void>(adapter_.post_receive(*connection_.qp, request));
  }

  void send() {
    const verbs::Sge sge{0x1000, script_.one_in(2) ? 65'536u : script_.byte(),
                         connection_.region->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::send;
    request.sges = {&sge, 1};
    static_cast<void>(adapter_.post_send(*connection_.qp, request));
    if (!packets_.resume(now_)) return;
    device::Datagram datagram;
    for (int i = 0; i < 64 && adapter_.pull_datagram(now_, datagram); ++i) {
      if (packets_.offer(datagram, now_) == HostPackets::Offer::kept) break;
    }
    packets_.ring_doorbells();
    for (char ring; recv(bell_.get(), &ring, sizeof ring, MSG_DONTWAIT) == 1;) continue;
  }

  void scribble() {
    auto* const table = reinterpret_cast<std::byte*>(&peer_.table());
    std::size_t at = 0;
    switch (script_.below(4)) {
      case 0:
        at = script_.half() % (offsetof(PeerTable, qps) - 16);
        break;
      case 1:
        at = static_cast<std::size_t>(
            reinterpret_cast<std::byte*>(&peer_.table().inboxes[own_slot]) - table);
        break;
      case 2:
        at = static_cast<std::size_t>(
            reinterpret_cast<std::byte*>(&peer_.table().outboxes[own_slot]) - table);
        break;
      default:
        at = PeerFile::ring_at(own_slot) + script_.half();
    }
    const auto values = script_.bytes(1 + script_.below(12));
    std::ranges::copy(values, table + at);
  }

  Script& script_;
  const bool may_write_;
  GuardedRegion region_;
  UniqueFd bell_;
  HostilePeer peer_;
  std::unique_ptr<HostPath> path_;
  device::Adapter adapter_;
  HostileConnection connection_;
  HostPackets packets_;
  RingWriter ring_;
  bool has_told_path_ = false;
  std::uint32_t psn_ = 0;
  Time now_;
};

}  // namespace
}  // namespace tulle::live

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::live::HostilePeer::keep_alive();
  tulle::base::Script script(data, size);
  tulle::live::Run(script).go();
  return 0;
}
