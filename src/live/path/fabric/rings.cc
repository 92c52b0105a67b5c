#include "live/path/fabric/rings.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <utility>

#include "live/path/memory/packet_bytes.h"
#include "os/cancellation.h"
#include "os/shared_memory.h"

namespace tulle::live {
namespace {

constexpr std::size_t memory_page_bytes = 4'096;

}  // namespace

// The words in shared memory by which one end tells the other about itself.
struct FabricRings::Flags {
  // The place up to which this end has read each ring.
  alignas(PacketRing::line_bytes) std::array<RingProgress, lanes> progress;
  alignas(PacketRing::line_bytes) std::atomic<std::uint32_t> sleeps{0};
  std::atomic<std::uint32_t> waits_for_room{0};
  std::atomic<std::uint32_t> used{0};  // lanes on which this end has sent
};

struct FabricRings::Memory {
  Flags program;
  Flags fabric;
  alignas(memory_page_bytes) std::byte to_fabric[lanes][PacketRing::ring_bytes];
  alignas(memory_page_bytes) std::byte to_program[PacketRing::ring_bytes];
};

FabricRings::FabricRings(Memory* memory, UniqueFd button, End end)
    : memory_(memory), button_(std::move(button)), end_(end) {
  if (end == End::program) {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      out_[lane] = RingWriter(memory->to_fabric[lane], other().progress[lane]);
    }
    in_[0] = RingReader(memory->to_program, own().progress[0]);
    return;
  }
  out_[0] = RingWriter(memory->to_program, other().progress[0]);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    in_[lane] = RingReader(memory->to_fabric[lane], own().progress[lane]);
  }
}

FabricRings::FabricRings(FabricRings&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      button_(std::move(other.button_)),
      end_(other.end_),
      out_(other.out_),
      in_(other.in_),
      used_(other.used_),
      has_written_(other.has_written_) {}

FabricRings::~FabricRings() {
  if (memory_ != nullptr) munmap(memory_, sizeof(Memory));
}

Result<UniqueFd> FabricRings::create_memory() {
  return make_shared_memory("tulle-fabric", sizeof(Memory));
}

Result<FabricRings> FabricRings::map(UniqueFd memory, UniqueFd button, End end) {
  auto mapped = map_shared_memory(memory.get(), sizeof(Memory));
  if (!mapped) return mapped.error();
  return FabricRings(static_cast<Memory*>(*mapped), std::move(button), end);
}

FabricRings::Flags& FabricRings::own() {
  return end_ == End::program ? memory_->program : memory_->fabric;
}
FabricRings::Flags& FabricRings::other() {
  return end_ == End::program ? memory_->fabric : memory_->program;
}

std::byte* FabricRings::reserve(std::size_t content_bytes, std::uint32_t lane) {
  return out_[lane].reserve(content_bytes);
}

void FabricRings::wait_for_room() {
  own().waits_for_room.store(1, std::memory_order_relaxed);
  full_fence();
}

void FabricRings::publish(std::size_t content_bytes, std::uint32_t lane) {
  out_[lane].publish(content_bytes);
  has_written_ = true;
  if ((used_ >> lane & 1) != 0) return;
  used_ |= 1u << lane;
  own().used.store(used_, std::memory_order_release);
}

std::uint32_t FabricRings::lanes_in_use() {
  return other().used.load(std::memory_order_acquire) & ((1u << lanes) - 1);
}

void FabricRings::ring_if_asleep() {
  if (!std::exchange(has_written_, false)) return;
  full_fence();
  std::atomic<std::uint32_t>& sleeps = other().sleeps;
  if (sleeps.load(std::memory_order_relaxed) == 0) return;
  if (sleeps.exchange(0, std::memory_order_relaxed) != 0) ring();
}

void FabricRings::tell() {
  for (std::uint32_t lane = 0; lane < (end_ == End::program ? 1 : lanes); ++lane) in_[lane].tell();
  full_fence();
  std::atomic<std::uint32_t>& waits = other().waits_for_room;
  if (waits.load(std::memory_order_relaxed) == 0) return;
  if (waits.exchange(0, std::memory_order_relaxed) != 0) ring();
}

void FabricRings::fall_asleep() {
  own().sleeps.store(1, std::memory_order_relaxed);
  full_fence();
}

void FabricRings::stay_awake() { own().sleeps.store(0, std::memory_order_relaxed); }

// A bell that is full has been rung.
void FabricRings::ring() {
  const std::byte one{1};
  const CancellationOff cancellation_off;
  static_cast<void>(send(button_.get(), &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace tulle::live
