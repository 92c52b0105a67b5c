// For any input, an adapter must not crash or touch memory that is not registered for it.
//
// The input's first byte chooses between go-back-N and selective repeat, and whether payload is
// withheld (rdma/transport/withheld.h). The rest is a script. Each step is a few bytes that choose
// a packet (mostly a plausible one: a PSN near the expected one, an address near the region's
// bounds, the right key), or that post work, pull packets or let time pass. Packets arrive decoded,
// or as datagrams whose ICRC is correct, since chance would never find one.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "rdma/device/adapter.h"
#include "rdma/optional/transports.h"

namespace tulle::device {
namespace {

using verbs::Access;
using verbs::AccessFlags;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

constexpr std::uint64_t iova = 0x40'0000;
constexpr std::size_t region_bytes = 4'096;
constexpr std::size_t guard_bytes = 4'096;
constexpr std::byte guard{0x5C};
constexpr std::uint32_t mtu = 256;
const Gid peer = Gid::from_ipv4(0x0A00'0002);

class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool over() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t out = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return out;
  }
  std::uint32_t word() { return byte() | byte() << 8 | byte() << 16 | std::uint32_t{byte()} << 24; }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Selective repeat holds early packets, and accepts NACKs that name them.
Configuration configuration(bool selective) {
  Configuration configuration;
  configuration.transports = &transport::all_transports();
  if (!selective) return configuration;
  configuration.recovery.kind = transport::Recovery::selective_repeat;
  configuration.recovery.window_packets = 16;
  return configuration;
}

class Target {
 public:
  Target(bool selective, bool withholds)
      : memory_(region_bytes + 2 * guard_bytes, guard), adapter_(configuration(selective)) {
    if (withholds) adapter_.objects().withhold_payload();
    const Gid gid = Gid::from_ipv4(0x0A00'0001);
    adapter_.set_gids({&gid, 1});
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    cq_ = adapter_.objects().create_cq(4'096, nullptr, status);
    const auto access = AccessFlags::from_bits(1 | 2 | 4 | 8 | 16);
    region_ = adapter_.objects().register_memory(*pd_, memory_.data() + guard_bytes, region_bytes,
                                                 iova, access, status);
    srq_ = adapter_.objects().create_srq(*pd_, 64, 2, nullptr, status);
    window_ = adapter_.objects().create_window(*pd_, verbs::WindowType::type2, status);
    domain_ = adapter_.objects().create_xrc_domain();
    for (auto& srq : xrc_srqs_) {
      srq = adapter_.objects().create_xrc_srq(*pd_, *domain_, *cq_, 16, 2, nullptr, status);
    }
    for (const QpType type : {QpType::rc, QpType::rc, QpType::uc, QpType::ud, QpType::srd,
                              QpType::xrc_initiator, QpType::xrc_target}) {
      open(type);
    }
    verbs::AddressVector to;
    to.destination = peer;
    handle_ = adapter_.create_ah(*pd_, to, status);
  }

  void play(Script script) {
    while (!script.over()) {
      switch (script.byte() % 8) {
        case 0:
          post_send(script);
          break;
        case 1:
          post_receive(script);
          break;
        case 2:
          pull(script.byte());
          break;
        case 3:
          pass(script.byte());
          break;
        default:
          deliver(script);
          break;
      }
    }
    pull(255);
    check();
  }

 private:
  void open(QpType type) {
    transport::QueuePairInit init;
    init.type = type;
    if (type == QpType::xrc_target) {
      init.xrc_domain = domain_;
    } else {
      init.pd = pd_;
      init.send_cq = init.receive_cq = cq_;
    }
    if (qps_.size() == 1) init.srq = srq_;
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 2;
    VerbsStatus status{};
    transport::QueuePair* qp = adapter_.create_qp(init, status);
    TULLE_CHECK(qp != nullptr);
    transport::QueuePairAttributes a;
    a.access = AccessFlags(Access::remote_write) | Access::remote_read | Access::remote_atomic;
    a.path_mtu = verbs::Mtu::b256;
    a.destination_qp = QpNumber(7);
    a.address.destination = peer;
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.timeout = a.retry_count = a.rnr_retry = a.min_rnr_timer = 3;
    auto mask = QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port;
    const bool is_datagram = qp->transport.is_datagram;
    step(*qp, a, QpState::init,
         mask | (is_datagram ? QpAttribute::qkey : QpAttribute::access_flags));
    mask = {};
    if (!is_datagram) {
      mask = QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
             QpAttribute::destination_qp | QpAttribute::rq_psn;
    }
    const bool is_rc =
        type == QpType::rc || type == QpType::xrc_initiator || type == QpType::xrc_target;
    if (is_rc) {
      mask |= QpAttributeMask(QpAttribute::max_dest_rd_atomic) | QpAttribute::min_rnr_timer;
    }
    step(*qp, a, QpState::rtr, mask);
    mask = QpAttribute::sq_psn;
    if (is_rc) {
      mask |= QpAttributeMask(QpAttribute::timeout) | QpAttribute::retry_count |
              QpAttribute::rnr_retry | QpAttribute::max_rd_atomic;
    }
    if (type == QpType::srd) mask |= QpAttribute::rnr_retry;
    step(*qp, a, QpState::rts, mask);
    qps_.push_back(qp);
  }

  void step(transport::QueuePair& qp, transport::QueuePairAttributes to, QpState state,
            QpAttributeMask mask) {
    to.state = state;
    const auto status = adapter_.modify(qp, to, mask | QpAttribute::state);
    TULLE_CHECK(status == VerbsStatus::ok);
  }

  // Returns an address mostly within the region, sometimes across its end, before its start, or
  // beyond the end of all addresses.
  std::uint64_t address(Script& script) {
    const std::uint8_t choice = script.byte();
    const std::uint64_t offset = std::uint64_t{script.byte()} * 16;
    if (choice < 200) return iova + offset;
    if (choice < 220) return iova + region_bytes - (choice - 200);
    return choice < 240 ? iova - (choice - 219) : ~std::uint64_t{0} - offset;
  }

  RemoteKey key(Script& script) {
    const std::uint8_t choice = script.byte();
    if (choice < 200) return region_->rkey();
    return choice < 230 ? window_->rkey() : RemoteKey{region_->key ^ choice};
  }

  void deliver(Script& script) {
    transport::QueuePair& qp = *qps_[script.byte() % qps_.size()];
    constexpr std::array classes = {wire::TransportClass::rc,  wire::TransportClass::rc,
                                    wire::TransportClass::uc,  wire::TransportClass::ud,
                                    wire::TransportClass::srd, wire::TransportClass::xrc,
                                    wire::TransportClass::xrc};
    wire::Packet packet;
    const std::uint8_t operation = script.byte();
    const auto place =
        static_cast<std::size_t>(std::find(qps_.begin(), qps_.end(), &qp) - qps_.begin());
    const auto own = classes[place];
    packet.opcode = operation < 224
                        ? wire::opcode(own, static_cast<wire::Operation>(operation % 0x20))
                        : static_cast<wire::Opcode>(script.byte());
    const std::uint8_t flags = script.byte();
    packet.ack_request = (flags & 1) != 0;
    packet.solicited_event = (flags & 2) != 0;
    packet.destination_qp = qp.number;
    // The PSN is mostly near the current one of the script, and seldom arbitrary.
    const std::uint8_t move = script.byte();
    std::uint32_t& psn = psns_[place];
    packet.psn = Psn(move < 160 ? psn++ : move < 250 ? psn + move - 205u : script.word());
    packet.early_psn = Psn(psn + (flags >> 3));
    if (flags >= 248) packet.opcode = wire::selective_acknowledge;
    packet.virtual_address = address(script);
    packet.rkey = packet.invalidate_rkey = key(script);
    const std::uint8_t length = script.byte();
    packet.dma_length = length < 128 ? length : length < 250 ? (length - 127) * 64u : script.word();
    packet.swap_or_add = length;
    packet.compare = flags;
    packet.syndrome = wire::Syndrome::decoded(script.byte());
    packet.source_qp = QpNumber(9);
    if (own == wire::TransportClass::srd) fill_srd(script, packet);
    if (own == wire::TransportClass::xrc) packet.xrc_srq = xrc_srq(script);
    const std::uint8_t size = script.byte();
    std::uint32_t bytes = size < 64 ? packet.dma_length % (mtu + 1) : size < 192 ? mtu : size;
    const wire::OpcodeInfo& info = wire::info(packet.opcode);
    if (info.kind == wire::Kind::none) return;  // decode rejects these
    if (!info.payload) bytes = 0;
    packet.pad_count = static_cast<std::uint8_t>(-bytes & 3);
    hand_over(packet, bytes, (flags & 4) != 0);
    check();
  }

  // Mostly returns the number of an existing queue. Rarely destroys the queue instead, and returns
  // another number.
  std::uint32_t xrc_srq(Script& script) {
    const std::uint8_t choice = script.byte();
    verbs::SharedReceiveQueue*& srq = xrc_srqs_[choice % 2u];
    if (choice >= 252 && srq != nullptr) {
      TULLE_CHECK(adapter_.objects().destroy(srq) == VerbsStatus::ok);
      srq = nullptr;
    }
    return srq != nullptr && choice < 240 ? srq->number : choice;
  }

  // Fills in contexts and answers close to the existing ones.
  void fill_srd(Script& script, wire::Packet& packet) {
    const std::uint8_t choice = script.byte();
    packet.srd_context = (1u + choice % 3) << 4 | (choice < 240 ? 0u : choice % 16u);
    packet.srd_path = script.byte();
    packet.srd_message = script.byte() % 4;
    packet.srd_offset = choice < 128 ? script.byte() * 16u : script.byte();
    packet.early_psn = Psn(choice < 200 ? script.byte() % 32u : script.word());
    packet.srd_received = std::uint64_t{script.word()} << 32 | script.word();
    packet.srd_held_ns = script.byte();
    if (wire::info(packet.opcode).srd_ack) packet.psn = Psn(script.byte() % 32u);
  }

  void hand_over(const wire::Packet& packet, std::uint32_t bytes, bool as_datagram) {
    wire::IpUdp ip;
    ip.source = peer;
    ip.destination = Gid::from_ipv4(0x0A00'0001);
    if (!as_datagram) {
      adapter_.handle_packet(now_, packet, {payload_.data(), bytes}, ip);
      return;
    }
    port::FrameBytes frame;
    const std::span<const std::byte> piece(payload_.data(), bytes);
    port::encode(ip, packet, {&piece, 1}, frame);
    std::vector<std::byte> datagram(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    datagram.insert(datagram.end(), piece.begin(), piece.end());
    datagram.insert(datagram.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
    const auto verdict = adapter_.handle_datagram(now_, ip, true, datagram);
    TULLE_CHECK(verdict == port::Verdict::ok);
  }

  void post_send(Script& script) {
    transport::QueuePair& qp = *qps_[script.byte() % qps_.size()];
    const verbs::Sge sge{iova + script.byte(), script.byte() * 4u, region_->lkey()};
    verbs::SendRequest request;
    request.opcode = static_cast<verbs::SendOpcode>(script.byte() % verbs::send_opcodes);
    request.flags = verbs::SendFlags::from_bits(script.byte() & 7u);
    request.sges = {&sge, 1};
    request.remote_address = iova;
    request.address_handle = handle_;
    request.window = window_;
    request.window_region = region_;
    request.window_address = iova;
    request.window_length = region_bytes / 2;
    request.window_access = AccessFlags(Access::remote_write) | Access::remote_read;
    request.window_rkey = RemoteKey{window_->key + 1};
    request.invalidate_rkey = window_->rkey();
    request.xrc_srq = 1u + script.byte();
    (void)adapter_.post_send(qp, request);
  }

  void post_receive(Script& script) {
    const std::uint8_t which = script.byte();
    const verbs::Sge sge{iova + script.byte(), script.byte() * 8u, region_->lkey()};
    const verbs::ReceiveRequest request{which, {&sge, 1}};
    if (which % 4 == 1) {
      (void)adapter_.objects().post_receive(*srq_, request);
    } else if (which % 4 == 2 && xrc_srqs_[which / 4 % 2u] != nullptr) {
      (void)adapter_.objects().post_receive(*xrc_srqs_[which / 4 % 2u], request);
    } else {
      (void)adapter_.post_receive(*qps_[which % qps_.size()], request);
    }
  }

  void pull(unsigned most) {
    for (; most > 0 && adapter_.pull_datagram(now_, outgoing_); --most) {
      outgoing_.finish_frame(0);
      // All payload that leaves must come from the region.
      std::uint32_t bytes = 0;
      for (std::uint8_t i = 0; i < outgoing_.piece_count; ++i) {
        bytes += static_cast<std::uint32_t>(outgoing_.pieces[i].size());
        TULLE_CHECK(outgoing_.pieces[i].data() >= memory_.data() + guard_bytes);
        TULLE_CHECK(outgoing_.pieces[i].data() + outgoing_.pieces[i].size() <=
                    memory_.data() + guard_bytes + region_bytes);
      }
      TULLE_CHECK(bytes == outgoing_.payload_bytes && bytes <= 4'096);
    }
    for (Event event; adapter_.pull_event(event);) {
    }
    std::array<verbs::Completion, 16> completions;
    while (adapter_.objects().poll(*cq_, completions) > 0) {
    }
  }

  void pass(std::uint8_t steps) {
    now_ += Time::microseconds(steps);
    adapter_.handle_deadline(now_);
    TULLE_CHECK(adapter_.next_deadline() > now_);
  }

  void check() const {
    const auto is_guard = [](std::byte each) { return each == guard; };
    TULLE_CHECK(std::all_of(memory_.begin(), memory_.begin() + guard_bytes, is_guard));
    TULLE_CHECK(std::all_of(memory_.end() - guard_bytes, memory_.end(), is_guard));
  }

  std::vector<std::byte> memory_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(4'096, std::byte{0x3C});
  Adapter adapter_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  verbs::MemoryRegion* region_ = nullptr;
  verbs::MemoryWindow* window_ = nullptr;
  verbs::SharedReceiveQueue* srq_ = nullptr;
  verbs::XrcDomain* domain_ = nullptr;
  std::array<verbs::SharedReceiveQueue*, 2> xrc_srqs_{};
  verbs::AddressHandle* handle_ = nullptr;
  std::vector<transport::QueuePair*> qps_;
  std::array<std::uint32_t, 7> psns_{};
  Datagram outgoing_;
  Time now_;
};

}  // namespace
}  // namespace tulle::device

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::device::Script script({data, size});
  const std::uint8_t choice = script.byte();
  tulle::device::Target target((choice & 1) != 0, (choice & 2) != 0);
  target.play(script);
  return 0;
}
