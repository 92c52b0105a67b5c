// Measures the cost of a packet from queue pair to queue pair, without a network: encoding, ICRC,
// decoding, both engines.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "rdma/device/adapter.h"

namespace tulle::device {
namespace {

using verbs::QpAttribute;

// Two adapters that exchange their datagrams as bytes.
class Pair {
 public:
  Pair() : buffers_(2, std::vector<std::byte>(1u << 20)), wire_(port::udp_payload_bytes_max) {
    for (int side = 0; side < 2; ++side) {
      Configuration configuration;
      configuration.seed = 7 + side;
      configuration.first_qp = QpNumber{0x1000u * (side + 1)};
      adapters_[side] = std::make_unique<Adapter>(configuration);
      gids_[side] = Gid::from_ipv4(0x0A00'0001 + side);
      adapters_[side]->set_gids({&gids_[side], 1});
      open(side);
    }
    for (int side = 0; side < 2; ++side) connect(side);
  }

  void write(std::uint32_t bytes) {
    const verbs::Sge sge{reinterpret_cast<std::uint64_t>(buffers_[0].data()), bytes,
                         regions_[0]->lkey()};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::write;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.remote_address = reinterpret_cast<std::uint64_t>(buffers_[1].data());
    request.rkey = regions_[1]->rkey();
    TULLE_CHECK(adapters_[0]->post_send(*qps_[0], request) == verbs::VerbsStatus::ok);
    while (move(0) | move(1)) {
    }
    verbs::Completion completion;
    TULLE_CHECK(cqs_[0]->poll({&completion, 1}) == 1);
    TULLE_CHECK(completion.status == verbs::CompletionStatus::success);
  }

  std::uint64_t packets() { return adapters_[0]->counters().packets_sent; }

 private:
  void open(int side) {
    verbs::VerbsStatus status{};
    Adapter& adapter = *adapters_[side];
    auto* pd = adapter.objects().create_pd(status);
    const auto access = verbs::AccessFlags(verbs::Access::local_write) |
                        verbs::Access::remote_write | verbs::Access::remote_read;
    auto& buffer = buffers_[side];
    regions_[side] = adapter.objects().register_memory(
        *pd, buffer.data(), buffer.size(), reinterpret_cast<std::uint64_t>(buffer.data()), access,
        status);
    cqs_[side] = adapter.objects().create_cq(64, nullptr, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cqs_[side];
    init.send_work_requests = init.receive_work_requests = 64;
    init.send_sges = init.receive_sges = 1;
    qps_[side] = adapter.create_qp(init, status);
  }

  void connect(int side) {
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = verbs::AccessFlags(verbs::Access::remote_write);
    auto mask = verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::pkey_index |
                QpAttribute::port | QpAttribute::access_flags;
    step(side, to, mask);
    to.state = verbs::QpState::rtr;
    to.path_mtu = verbs::Mtu::b4096;
    to.destination_qp = qps_[1 - side]->number;
    to.address.destination = gids_[1 - side];
    to.max_dest_rd_atomic = 1;
    mask = verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::address_vector |
           QpAttribute::path_mtu | QpAttribute::destination_qp | QpAttribute::rq_psn |
           QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer;
    step(side, to, mask);
    to.state = verbs::QpState::rts;
    to.timeout = 14;
    to.retry_count = 7;
    mask = verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
           QpAttribute::retry_count | QpAttribute::rnr_retry | QpAttribute::sq_psn |
           QpAttribute::max_rd_atomic;
    step(side, to, mask);
  }

  void step(int side, const transport::QueuePairAttributes& to, verbs::QpAttributeMask mask) {
    TULLE_CHECK(adapters_[side]->modify(*qps_[side], to, mask) == verbs::VerbsStatus::ok);
  }

  bool move(int from) {
    bool any = false;
    while (adapters_[from]->pull_datagram(now_, datagram_)) {
      any = true;
      datagram_.finish_frame(0);
      std::byte* at = wire_.data();
      const auto put = [&at](const std::byte* bytes, std::size_t size) {
        std::memcpy(at, bytes, size);
        at += size;
      };
      put(datagram_.frame.head.data(), datagram_.frame.head_bytes);
      for (int i = 0; i < datagram_.piece_count; ++i) {
        put(datagram_.pieces[i].data(), datagram_.pieces[i].size());
      }
      put(datagram_.frame.tail.data(), datagram_.frame.tail_bytes);
      const auto verdict = adapters_[1 - from]->handle_datagram(
          now_, datagram_.ip(), true, {wire_.data(), static_cast<std::size_t>(at - wire_.data())});
      TULLE_CHECK(verdict == port::Verdict::ok);
    }
    return any;
  }

  Time now_;
  std::unique_ptr<Adapter> adapters_[2];
  Gid gids_[2];
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<std::byte> wire_;
  verbs::MemoryRegion* regions_[2] = {};
  verbs::CompletionQueue* cqs_[2] = {};
  transport::QueuePair* qps_[2] = {};
  Datagram datagram_;
};

void write_bytes(benchmark::State& state) {
  Pair pair;
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  for ([[maybe_unused]] auto _ : state) pair.write(bytes);
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.counters["packets/s"] =
      benchmark::Counter(static_cast<double>(pair.packets()), benchmark::Counter::kIsRate);
}
BENCHMARK(write_bytes)->Arg(8)->Arg(4096)->Arg(65536)->Arg(1 << 20);

}  // namespace
}  // namespace tulle::device
