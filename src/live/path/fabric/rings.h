#pragma once

// The memory between a program and the process of a software fabric: a ring of packets for each
// virtual lane from the program to the fabric, one ring from the fabric to the program, and a bell
// to wake the other end. The room in a lane's ring is what the program may send on it, counted as
// InfiniBand counts credits: both ends know the bytes that have come in total. A lane that is full
// holds up no other.
// Both ends can write to all of it. So each end
// believes nothing that it reads there: the rings' ends keep their places themselves
// (live/path/memory/packet_ring.h), and a wrong flag costs a wake-up or a wait of the end that set
// it wrong.
//
// An end sleeps at its own bell, a socket, and rings the other end's by the button that belongs to
// it. Calls by a button never block, whatever the other end does to it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "live/path/memory/packet_ring.h"
#include "os/unique_fd.h"

namespace tulle::live {

class FabricRings {
 public:
  enum class End : std::uint8_t { program, fabric };

  // Makes the memory. Its size is sealed.
  static Result<UniqueFd> create_memory();
  // Maps memory that create_memory() made. The error says that it is none. `button` rings the other
  // end.
  static Result<FabricRings> map(UniqueFd memory, UniqueFd button, End end);
  FabricRings(FabricRings&& other) noexcept;
  FabricRings& operator=(FabricRings&&) = delete;
  ~FabricRings();

  // --- writing ---

  // The fabric's end writes on lane 0 alone.
  static constexpr std::uint32_t lanes = 8;

  // Returns room for a record, or null.
  std::byte* reserve(std::size_t content_bytes, std::uint32_t lane = 0);
  // Says that this end waits for room, so that the other end rings once it has made some. The
  // caller must look once more after this.
  void wait_for_room();
  void publish(std::size_t content_bytes, std::uint32_t lane = 0);
  // Wakes the other end if it sleeps and something was written since the last call.
  void ring_if_asleep();

  // --- reading ---

  // The program's end has lane 0 alone.
  RingReader& in(std::uint32_t lane = 0) { return in_[lane]; }
  // The fabric's end: returns the lanes on which the program has ever sent, as bits.
  std::uint32_t lanes_in_use();
  // Tells the other end what has been read, and rings if it waits for room.
  void tell();
  // Says that this end is about to sleep, and must be rung for what comes. The caller must look at
  // its ring once more after this.
  void fall_asleep();
  // Says that this end looks by itself. Nobody needs to ring.
  void stay_awake();

  // Forgets the other end's bell in a forked child, whose parent has the rings.
  void forget_button() { button_.reset(); }

 private:
  struct Memory;
  FabricRings(Memory* memory, UniqueFd button, End end);
  struct Flags;
  Flags& own();
  Flags& other();
  void ring();

  Memory* memory_;
  UniqueFd button_;
  End end_;
  std::array<RingWriter, lanes> out_;
  std::array<RingReader, lanes> in_;
  std::uint32_t used_ = 0;  // the program's end: lanes on which it has sent
  bool has_written_ = false;
};

}  // namespace tulle::live
