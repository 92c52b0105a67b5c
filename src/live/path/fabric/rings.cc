#include "live/path/fabric/rings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "live/path/memory/packet_bytes.h"

namespace tulle::live {
namespace {

constexpr std::size_t memory_page_bytes = 4'096;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error memory_error(const char* what) {
  return {std::string("cannot ") + what + " the memory for packets: " + std::strerror(errno),
          errno};
}

}  // namespace

// What one end says to the other.
struct FabricRings::Flags {
  alignas(PacketRing::line_bytes) RingProgress progress;  // how far this end has read
  alignas(PacketRing::line_bytes) std::atomic<std::uint32_t> sleeps{0};
  std::atomic<std::uint32_t> waits_for_room{0};
};

struct FabricRings::Memory {
  Flags program;
  Flags fabric;
  alignas(memory_page_bytes) std::byte to_fabric[PacketRing::ring_bytes];
  alignas(memory_page_bytes) std::byte to_program[PacketRing::ring_bytes];
};

FabricRings::FabricRings(Memory* memory, UniqueFd button, End end)
    : memory_(memory), button_(std::move(button)), end_(end) {
  const bool is_program = end == End::program;
  out_ = RingWriter(is_program ? memory->to_fabric : memory->to_program, other().progress);
  in_ = RingReader(is_program ? memory->to_program : memory->to_fabric, own().progress);
}

FabricRings::FabricRings(FabricRings&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      button_(std::move(other.button_)),
      end_(other.end_),
      out_(other.out_),
      in_(other.in_),
      has_written_(other.has_written_) {}

FabricRings::~FabricRings() {
  if (memory_ != nullptr) munmap(memory_, sizeof(Memory));
}

Result<UniqueFd> FabricRings::create_memory() {
  UniqueFd memory(memfd_create("tulle-fabric", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return memory_error("make");
  if (ftruncate(memory.get(), sizeof(Memory)) != 0) return memory_error("size");
  if (fcntl(memory.get(), F_ADD_SEALS, seals) != 0) return memory_error("seal");
  return memory;
}

Result<FabricRings::Bell> FabricRings::create_bell() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Error{std::string("cannot make a socket: ") + std::strerror(errno), errno};
  }
  return Bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool FabricRings::is_button(int descriptor) {
  const auto has = [descriptor](int option, int wanted) {
    int value = 0;
    socklen_t bytes = sizeof value;
    return getsockopt(descriptor, SOL_SOCKET, option, &value, &bytes) == 0 && value == wanted;
  };
  return has(SO_DOMAIN, AF_UNIX) && has(SO_TYPE, SOCK_DGRAM);
}

Result<FabricRings> FabricRings::map(UniqueFd memory, UniqueFd button, End end) {
  struct stat its = {};
  // Memory that somebody could shrink would end whoever reads it.
  const bool is_ours = fstat(memory.get(), &its) == 0 && its.st_size == sizeof(Memory) &&
                       (fcntl(memory.get(), F_GET_SEALS) & F_SEAL_SHRINK) != 0;
  if (!is_ours) return Error{"the memory for packets is not as a fabric makes it", EPROTO};
  void* at = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return memory_error("map");
  return FabricRings(static_cast<Memory*>(at), std::move(button), end);
}

FabricRings::Flags& FabricRings::own() {
  return end_ == End::program ? memory_->program : memory_->fabric;
}
FabricRings::Flags& FabricRings::other() {
  return end_ == End::program ? memory_->fabric : memory_->program;
}

std::byte* FabricRings::reserve(std::size_t content_bytes, bool must_ring) {
  std::byte* room = out_.reserve(content_bytes);
  if (room != nullptr || !must_ring) return room;
  own().waits_for_room.store(1, std::memory_order_relaxed);
  full_fence();
  // The reader may have made room before it could see that this end waits.
  room = out_.reserve(content_bytes);
  if (room != nullptr) own().waits_for_room.store(0, std::memory_order_relaxed);
  return room;
}

void FabricRings::publish(std::size_t content_bytes) {
  out_.publish(content_bytes);
  has_written_ = true;
}

void FabricRings::ring_if_asleep() {
  if (!std::exchange(has_written_, false)) return;
  full_fence();
  std::atomic<std::uint32_t>& sleeps = other().sleeps;
  if (sleeps.load(std::memory_order_relaxed) == 0) return;
  if (sleeps.exchange(0, std::memory_order_relaxed) != 0) ring();
}

void FabricRings::tell() {
  in_.tell();
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
  static_cast<void>(send(button_.get(), &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace tulle::live
