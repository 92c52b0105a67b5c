#pragma once

// The memory between a program and the process of a software fabric: a ring of packets in each
// direction, and a bell to wake the other end. Both ends can write to all of it. So each end
// believes nothing that it reads there: the rings' ends keep their places themselves
// (live/path/memory/packet_ring.h), and a wrong flag costs a wake-up or a wait of the end that set
// it wrong.
//
// An end sleeps at its own bell, a socket, and rings the other end's by the button that belongs to
// it. Calls by a button never block, whatever the other end does to it.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "live/path/memory/packet_ring.h"
#include "live/unique_fd.h"

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

  // Returns room for a record, or null. With `must_ring`, the other end then rings once it has made
  // room.
  std::byte* reserve(std::size_t content_bytes, bool must_ring = true);
  void publish(std::size_t content_bytes);
  // Wakes the other end if it sleeps and something was written since the last call.
  void ring_if_asleep();

  // --- reading ---

  RingReader& in() { return in_; }
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
  RingWriter out_;
  RingReader in_;
  bool has_written_ = false;
};

}  // namespace tulle::live
