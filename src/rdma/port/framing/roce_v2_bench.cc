// Measures the cost of a packet at the link: headers, and the ICRC over all of it.

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rdma/port/framing/roce_v2.h"

namespace tulle::port {
namespace {

struct Sample {
  wire::IpUdp ip;
  wire::Packet packet{.opcode =
                          wire::opcode(wire::TransportClass::rc, wire::Operation::write_only)};
  std::vector<std::byte> payload;
  std::vector<std::byte> datagram;

  explicit Sample(std::size_t payload_bytes) : payload(payload_bytes) {
    ip.source = Gid::from_ipv4(0x0A00'0001);
    ip.destination = Gid::from_ipv4(0x0A00'0002);
    ip.identification = 4711;
    FrameBytes frame;
    encode(ip, packet, std::array{std::span<const std::byte>(payload)}, frame);
    datagram.assign(frame.head.begin(), frame.head.begin() + frame.head_bytes);
    datagram.insert(datagram.end(), payload.begin(), payload.end());
    datagram.insert(datagram.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  }
};

void roce_v2_encode(benchmark::State& state) {
  const Sample sample(static_cast<std::size_t>(state.range(0)));
  FrameBytes frame;
  for ([[maybe_unused]] auto _ : state) {
    encode(sample.ip, sample.packet, std::array{std::span<const std::byte>(sample.payload)}, frame);
    benchmark::DoNotOptimize(frame);
  }
}
BENCHMARK(roce_v2_encode)->Arg(0)->Arg(64)->Arg(1024)->Arg(4096);

void decode_loop(benchmark::State& state, bool identification_known) {
  const Sample sample(static_cast<std::size_t>(state.range(0)));
  wire::IpUdp ip = sample.ip;
  if (!identification_known) ip.identification = 0;
  wire::Packet packet;
  std::span<const std::byte> payload;
  for ([[maybe_unused]] auto _ : state) {
    const Verdict verdict = decode(ip, identification_known, sample.datagram, packet, payload);
    if (verdict != Verdict::ok) state.SkipWithError("refused");
    benchmark::DoNotOptimize(packet);
  }
}

void roce_v2_decode(benchmark::State& state) { decode_loop(state, true); }
BENCHMARK(roce_v2_decode)->Arg(0)->Arg(64)->Arg(1024)->Arg(4096);

void roce_v2_decode_unidentified(benchmark::State& state) { decode_loop(state, false); }
BENCHMARK(roce_v2_decode_unidentified)->Arg(0)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace tulle::port
