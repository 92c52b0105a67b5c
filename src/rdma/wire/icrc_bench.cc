// Measures the cost of the ICRC over a packet's payload, with ISA-L and with the methods that it
// replaced, and that of the VCRC. Bytes per second are those of the packet. Reproduce: wire_bench
// --benchmark_filter=crc

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef TULLE_HAVE_ZLIB
#include <zlib.h>
#endif

#include "base/random.h"
#include "rdma/wire/icrc.h"
#include "rdma/wire/vcrc.h"

namespace tulle::wire {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(count);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void icrc_isal(benchmark::State& state) {
  const auto bytes = random_bytes(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    Icrc icrc;
    icrc.update(bytes);
    benchmark::DoNotOptimize(icrc.value());
  }
  count_bytes(state);
}
BENCHMARK(icrc_isal)->RangeMultiplier(2)->Range(64, 4096);

void vcrc(benchmark::State& state) {
  const auto bytes = random_bytes(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    Vcrc crc;
    crc.update(bytes);
    benchmark::DoNotOptimize(crc.value());
  }
  count_bytes(state);
}
BENCHMARK(vcrc)->RangeMultiplier(2)->Range(64, 4096);

#ifdef TULLE_HAVE_ZLIB
void icrc_zlib(benchmark::State& state) {
  const auto bytes = random_bytes(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(::crc32_z(
        Icrc().value(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  }
  count_bytes(state);
}
BENCHMARK(icrc_zlib)->RangeMultiplier(2)->Range(64, 4096);
#endif

// One table look-up a byte, the textbook method.
void icrc_bytewise(benchmark::State& state) {
  static constexpr std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> values{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xEDB8'8320 : 0);
      values[i] = value;
    }
    return values;
  }();
  const auto bytes = random_bytes(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    std::uint32_t crc = ~Icrc().value();
    for (const std::byte byte : bytes) {
      crc = (crc >> 8) ^ table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
    }
    benchmark::DoNotOptimize(~crc);
  }
  count_bytes(state);
}
BENCHMARK(icrc_bytewise)->RangeMultiplier(2)->Range(64, 4096);

void identification_solved(benchmark::State& state) {
  std::uint32_t difference = 1;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(explain_identification(difference, 4160));
    difference = difference * 1664525 + 1013904223;
  }
}
BENCHMARK(identification_solved);

}  // namespace
}  // namespace tulle::wire
