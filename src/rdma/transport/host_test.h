#pragma once

// One queue pair with memory, for tests that hand an engine a single packet and check how it
// responds.

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/address_handle.h"

namespace tulle::transport::testing {

inline constexpr std::uint32_t mtu = 256;
inline constexpr Psn first_psn{0xFF'FFFE};  // so that every test crosses the end of the PSN space
inline constexpr std::uint64_t iova = 0x10'0000;
inline const Gid peer_gid = Gid::from_ipv4(0x0A00'0002);
inline constexpr QpNumber peer_qp{0x77};

struct Pulled {
  wire::Packet packet;
  std::vector<std::byte> payload;
};

struct Options {
  verbs::QpType type = verbs::QpType::rc;
  const TransportTable* transports = &TransportTable::standard();
  bool shared_receives = false;
  std::uint32_t receive_depth = 16;
  std::uint8_t depth = 4;  // READs and atomics outstanding, in each direction
  std::uint8_t retry_count = 2;
  std::uint8_t rnr_retry = 2;
  std::uint8_t timeout = 10;
  std::uint8_t rnr_timer = 12;
  std::uint32_t inline_bytes = 64;
  std::uint32_t cq_entries = 256;
  congestion::WindowSettings window{false, 0, 0};
  RecoverySettings recovery = {};
  verbs::AccessFlags access = verbs::AccessFlags::from_bits(2 | 4 | 8);
  QpNumber number = QpNumber(0x55);
  QpNumber peer = peer_qp;
  PortAddress peer_address = peer_gid;
};

class Host {
 public:
  explicit Host(const Options& options = {})
      : options(options), cq(options.cq_entries, events, nullptr) {
    environment.congestion.window = options.window;
    environment.recovery = options.recovery;
    environment.link_overhead_bytes = 70;  // Ethernet's, with IPv4, UDP and ICRC
    if (options.recovery.window_packets > 0) {
      environment.congestion.window = bounded(options.window, options.recovery.window_packets);
    }
    region.pd = &pd;
    region.memory = memory.data();
    region.length = memory.size();
    region.iova = iova;
    region.access = verbs::AccessFlags::from_bits(1 | 2 | 4 | 8 | 16);
    environment.keys.add(region);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = pattern(i);
    QueuePairInit init;
    init.type = options.type;
    init.pd = &pd;
    init.send_cq = init.receive_cq = &cq;
    if (options.shared_receives) init.srq = &srq;
    init.send_work_requests = 32;
    init.receive_work_requests = options.receive_depth;
    init.send_sges = init.receive_sges = 4;
    init.inline_bytes = options.inline_bytes;
    init.port_mtu = verbs::Mtu::b256;
    qp = make_queue_pair(*options.transports, options.number, init, environment);
    to_init();
  }

  // --- the ladder ---

  verbs::VerbsStatus step(QueuePairAttributes to, verbs::QpState state,
                          verbs::QpAttributeMask more = {}) {
    to.state = state;
    return qp->modify(to, verbs::QpAttributeMask(verbs::QpAttribute::state) | more);
  }
  void to_init() {
    using enum verbs::QpAttribute;
    QueuePairAttributes to;
    to.access = options.access;
    to.qkey = Qkey(0x1234);
    must(step(to, verbs::QpState::init,
              verbs::QpAttributeMask(pkey_index) | port | (is_datagram() ? qkey : access_flags)));
  }
  void to_rtr() {
    using enum verbs::QpAttribute;
    QueuePairAttributes to;
    to.path_mtu = verbs::Mtu::b256;
    to.destination_qp = options.peer;
    to.address.destination = options.peer_address;
    to.rq_psn = first_psn;
    to.max_dest_rd_atomic = options.depth;
    to.min_rnr_timer = options.rnr_timer;
    verbs::QpAttributeMask more;
    if (!is_datagram()) {
      more = verbs::QpAttributeMask(address_vector) | path_mtu | destination_qp | rq_psn;
    }
    if (is_reliable()) more |= verbs::QpAttributeMask(max_dest_rd_atomic) | min_rnr_timer;
    must(step(to, verbs::QpState::rtr, more));
  }
  void to_rts() {
    using enum verbs::QpAttribute;
    QueuePairAttributes to;
    to.timeout = options.timeout;
    to.retry_count = options.retry_count;
    to.rnr_retry = options.rnr_retry;
    to.sq_psn = first_psn;
    to.max_rd_atomic = options.depth;
    auto more = verbs::QpAttributeMask(sq_psn);
    if (is_reliable()) {
      more |= verbs::QpAttributeMask(timeout) | retry_count | rnr_retry | max_rd_atomic;
    }
    if (options.type == verbs::QpType::srd) more |= rnr_retry;
    must(step(to, verbs::QpState::rts, more));
  }
  bool is_datagram() const {
    return options.type == verbs::QpType::ud || options.type == verbs::QpType::srd;
  }
  bool is_reliable() const {
    return options.type == verbs::QpType::rc || options.type == verbs::QpType::iwarp;
  }
  Host& connect() {
    to_rtr();
    to_rts();
    return *this;
  }

  // --- work ---

  verbs::Sge sge(std::uint64_t offset, std::uint32_t bytes) const {
    return {iova + offset, bytes, region.lkey()};
  }
  verbs::VerbsStatus try_post(verbs::SendRequest request, std::uint32_t bytes,
                              verbs::SendFlags flags = verbs::SendFlag::signaled) {
    const verbs::Sge data = sge(0, bytes);
    request.wr_id = next_wr_id++;
    request.flags = flags;
    request.sges = {&data, 1};
    if (request.rkey.value == 0) {
      request.rkey = region.rkey();
      request.remote_address = iova;
    }
    return qp->post_send(request);
  }
  void post(const verbs::SendRequest& request, std::uint32_t bytes,
            verbs::SendFlags flags = verbs::SendFlag::signaled) {
    must(try_post(request, bytes, flags));
  }
  void post(verbs::SendOpcode opcode, std::uint32_t bytes,
            verbs::SendFlags flags = verbs::SendFlag::signaled) {
    verbs::SendRequest request;
    request.opcode = opcode;
    post(request, bytes, flags);
  }
  void post_receive(std::uint32_t bytes, std::uint64_t offset = 8'192) {
    const verbs::Sge data = sge(offset, bytes);
    const verbs::ReceiveRequest request{next_receive_id++, {&data, 1}};
    must(options.shared_receives ? srq.queue.post(request) : qp->post_receive(request));
  }

  // --- packets ---

  std::vector<Pulled> pull(std::size_t most = 1'000) {
    std::vector<Pulled> out;
    for (OutgoingPacket packet; out.size() < most && qp->pull(now, packet).packet;) {
      Pulled pulled{packet.packet, {}};
      for (std::uint8_t i = 0; i < packet.piece_count; ++i) {
        pulled.payload.insert(pulled.payload.end(), packet.pieces[i].begin(),
                              packet.pieces[i].end());
      }
      out.push_back(pulled);
    }
    return out;
  }
  void deliver(const wire::Packet& packet, std::span<const std::byte> payload = {}) {
    wire::IpUdp ip;
    ip.source = peer_gid;
    ip.destination = Gid::from_ipv4(0x0A00'0001);
    deliver_by(ip, packet, payload);
  }
  void deliver_from(Lid lid, const wire::Packet& packet, std::span<const std::byte> payload = {}) {
    wire::LocalPath path;
    path.local.source = lid;
    deliver_by(path, packet, payload);
  }
  void deliver_by(const wire::Path& path, const wire::Packet& packet,
                  std::span<const std::byte> payload) {
    wire::Packet addressed = packet;
    addressed.destination_qp = qp->number;
    qp->handle_packet(now, addressed, {payload.data(), static_cast<std::uint32_t>(payload.size())},
                      path);
  }
  void pass(Time span) {
    now += span;
    qp->handle_deadline(now);
  }

  // --- completions, events and counters ---

  std::vector<verbs::Completion> completions() {
    std::vector<verbs::Completion> out(cq.size());
    cq.poll(out);
    return out;
  }
  std::vector<verbs::EventType> raised() {
    std::vector<verbs::EventType> out;
    for (; !environment.events.empty(); environment.events.pop()) {
      out.push_back(environment.events.front().type);
    }
    return out;
  }
  const Counters& counters() const { return environment.counters; }
  static std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 256); }
  static void must(verbs::VerbsStatus status) { TULLE_CHECK(status == verbs::VerbsStatus::ok); }

  Options options;
  Environment environment{RandomSource{1}};
  verbs::ProtectionDomain pd;
  verbs::CompletionEvents events;
  verbs::CompletionQueue cq;
  verbs::SharedReceiveQueue srq{pd, 16, 4, nullptr};
  std::vector<std::byte> memory = std::vector<std::byte>(32'768);
  verbs::MemoryRegion region;
  std::unique_ptr<QueuePair> qp;
  Time now = Time::microseconds(5);
  std::uint64_t next_wr_id = 0;
  std::uint64_t next_receive_id = 1'000;
};

inline std::vector<std::byte> bytes_of(std::uint32_t count, int seed = 1) {
  std::vector<std::byte> out(count);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i * 13 + seed);
  return out;
}

inline wire::Packet packet(wire::TransportClass transport, wire::Operation operation, Psn psn) {
  wire::Packet out;
  out.opcode = wire::opcode(transport, operation);
  out.psn = psn;
  return out;
}

}  // namespace tulle::transport::testing
