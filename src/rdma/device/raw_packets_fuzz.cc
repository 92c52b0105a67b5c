// Gives any frame to an adapter with flows: it reads the fields of every header that flow steering
// knows, and delivers the frame to the queues of the rules that match. Only memory of posted
// receive requests may change, a frame that waits goes nowhere, and the fields agree with one
// another.

#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "rdma/device/adapter.h"
#include "rdma/device/flow_fields.h"
#include "rdma/device/raw_packets.h"

namespace tulle::device {
namespace {

using base::Script;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::QpState;
using verbs::VerbsStatus;

constexpr std::size_t region_bytes = 4'096, guard_bytes = 4'096;
constexpr std::byte guard{0xA5};
constexpr std::uint64_t iova = 0x1000;

// Makes a frame out of headers that belong together, or of any bytes.
std::vector<std::byte> any_frame(Script& script) {
  std::vector<std::byte> frame;
  const auto add = [&frame](std::initializer_list<int> bytes) {
    for (const int each : bytes) frame.push_back(static_cast<std::byte>(each));
  };
  if (script.one_in(8)) return script.bytes(script.byte());
  add({1, 0, 0, 0, 0, static_cast<int>(script.below(4)), 2, 0, 0, 0, 0, 9});
  for (unsigned tags = script.below(4) == 0 ? script.below(4) : 0; tags > 0; --tags) {
    add({script.below(2) == 0 ? 0x81 : 0x88, script.below(2) == 0 ? 0x00 : 0xA8, script.byte(),
         script.byte()});
  }
  const bool is_ipv4 = script.below(2) == 0;
  constexpr std::array protocols = {17, 6, 47, 50, 0, 43, 44, 60, 51, 59};
  const int protocol = protocols[script.below(10)];
  if (is_ipv4) {
    const int words = script.one_in(4) ? script.byte() % 16 : 5;
    add({8,
         0,
         0x40 | words,
         script.byte(),
         0,
         script.byte(),
         0,
         0,
         script.one_in(4) ? 0x20 : 0,
         script.one_in(8) ? 1 : 0,
         64,
         protocol,
         0,
         0,
         1,
         1,
         1,
         1,
         2,
         2,
         2,
         2});
    for (int i = 5; i < words; ++i) add({0, 0, 0, 0});
  } else {
    add({0x86, 0xDD, 0x60, script.byte(), 0, 0, 0, script.byte(), protocol, 64});
    for (int i = 0; i < 32; ++i) add({i});
    for (unsigned more = script.below(4); more > 0; --more) {
      add({protocols[script.below(10)], script.below(2) == 0 ? 0 : script.byte(), script.byte(),
           script.byte(), 0, 0, 0, 0});
    }
  }
  // Ports of UDP and TCP, or the headers of a tunnel.
  if (script.below(2) == 0)
    add({0, script.byte(), 0x12, 0xB5, 0, 30, 0, 0, 8, 0, 0, 0, 0, 1, 2, 0});
  const auto rest = script.bytes(script.byte());
  frame.insert(frame.end(), rest.begin(), rest.end());
  return frame;
}

void check_fields(std::span<const std::byte> frame) {
  const FlowFields fields = read_flow_fields(frame);
  TULLE_CHECK(!(fields.has(FlowHeader::ipv4) && fields.has(FlowHeader::ipv6)));
  TULLE_CHECK(!(fields.has(FlowHeader::tcp) && fields.has(FlowHeader::udp)));
  const bool has_ip = fields.has(FlowHeader::ipv4) || fields.has(FlowHeader::ipv6);
  const bool has_more = fields.has(FlowHeader::tcp) || fields.has(FlowHeader::udp) ||
                        fields.has(FlowHeader::esp) || fields.has(FlowHeader::gre);
  TULLE_CHECK(has_ip || !has_more);
  TULLE_CHECK(fields.has(FlowHeader::udp) || !fields.has(FlowHeader::vxlan));
  TULLE_CHECK(fields.unused == 0);
  FlowMatch exact{fields, {}};
  std::memset(static_cast<void*>(&exact.mask), 0xFF, sizeof(exact.mask));
  TULLE_CHECK(matches(fields, exact));
  // Bytes behind the end of the frame mean nothing.
  for (const std::size_t cut : {frame.size() / 2, frame.size() / 4}) {
    const std::vector<std::byte> shorter(frame.begin(),
                                         frame.begin() + static_cast<std::ptrdiff_t>(cut));
    static_cast<void>(read_flow_fields(shorter));
  }
}

class Run {
 public:
  explicit Run(Script& script)
      : script_(script), memory_(region_bytes + 2 * guard_bytes, guard), adapter_({}) {
    VerbsStatus status{};
    pd_ = adapter_.objects().create_pd(status);
    region_ = adapter_.objects().register_memory(*pd_, memory_.data() + guard_bytes, region_bytes,
                                                 iova, verbs::Access::local_write, status);
    cq_ = adapter_.objects().create_cq(256, nullptr, status);
    for (auto& qp : qps_) qp = create();
  }

  void go() {
    while (!script_.is_over()) {
      switch (script_.below(8)) {
        case 0:
          add_flow();
          break;
        case 1:
          if (!flows_.empty()) {
            adapter_.raw_packets().remove(flows_.back());
            flows_.pop_back();
          }
          break;
        case 2:
        case 3:
          post_receive();
          break;
        default:
          deliver();
      }
    }
    while (!flows_.empty()) {
      adapter_.raw_packets().remove(flows_.back());
      flows_.pop_back();
    }
  }

 private:
  transport::QueuePair* create() {
    transport::QueuePairInit init;
    init.type = verbs::QpType::raw_packet;
    init.pd = pd_;
    init.send_cq = init.receive_cq = cq_;
    init.send_work_requests = init.receive_work_requests = 16;
    init.send_sges = init.receive_sges = 2;
    VerbsStatus status{};
    auto* qp = adapter_.create_qp(init, status);
    TULLE_CHECK(qp != nullptr);
    transport::QueuePairAttributes to;
    to.state = QpState::init;
    TULLE_CHECK(adapter_.modify(*qp, to, QpAttributeMask(QpAttribute::state) | QpAttribute::port) ==
                VerbsStatus::ok);
    to.state = QpState::rtr;
    TULLE_CHECK(adapter_.modify(*qp, to, QpAttribute::state) == VerbsStatus::ok);
    return qp;
  }

  void add_flow() {
    if (flows_.size() >= 16) return;
    FlowRule rule;
    rule.kind = static_cast<FlowKind>(script_.below(4));
    rule.priority = script_.below(4) & 0xFF;
    rule.drops = script_.one_in(8);
    rule.passes_on = script_.one_in(4);
    rule.match.value = read_flow_fields(any_frame(script_));
    auto* mask = reinterpret_cast<std::uint8_t*>(&rule.match.mask);
    for (unsigned i = script_.below(4); i > 0; --i) mask[script_.below(sizeof(FlowFields))] = 0xFF;
    if (Flow* flow = adapter_.raw_packets().add_flow(*qps_[script_.below(3)], rule)) {
      flows_.push_back(flow);
    }
  }

  void post_receive() {
    const verbs::Sge sge{iova + script_.byte() * 8u, script_.byte() * 8u, region_->lkey()};
    (void)adapter_.post_receive(*qps_[script_.below(3)], {1, {&sge, 1}});
  }

  void deliver() {
    const auto frame = any_frame(script_);
    check_fields(frame);
    using IfNoRoom = RawPackets::IfNoRoom;
    const std::vector<std::byte> before = memory_;
    const bool drops = script_.below(2) == 0;
    const bool is_taken =
        adapter_.raw_packets().handle_frame(frame, drops ? IfNoRoom::drop : IfNoRoom::wait);
    TULLE_CHECK(is_taken || !drops);
    TULLE_CHECK(is_taken || memory_ == before);
    for (std::size_t i = 0; i < guard_bytes; ++i) {
      TULLE_CHECK(memory_[i] == guard && memory_[memory_.size() - 1 - i] == guard);
    }
    std::array<verbs::Completion, 16> completions;
    while (const auto count = cq_->poll(completions)) {
      for (std::uint32_t i = 0; i < count; ++i) {
        const bool is_received = completions[i].status == verbs::CompletionStatus::success;
        TULLE_CHECK(!is_received || completions[i].byte_length == frame.size());
      }
    }
  }

  Script& script_;
  std::vector<std::byte> memory_;
  Adapter adapter_;
  verbs::ProtectionDomain* pd_ = nullptr;
  verbs::CompletionQueue* cq_ = nullptr;
  verbs::MemoryRegion* region_ = nullptr;
  std::array<transport::QueuePair*, 3> qps_{};
  std::vector<Flow*> flows_;
};

}  // namespace
}  // namespace tulle::device

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tulle::base::Script script(data, size);
  tulle::device::Run(script).go();
  return 0;
}
