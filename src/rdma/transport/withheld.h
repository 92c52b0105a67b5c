#pragma once

// Payload that has arrived, and that its application does not see yet. An adapter writes the bytes
// of a message in any order, and at the latest when the application takes the completion; before
// that, the buffer's content is undefined (IBTA 9.5). A device that withholds payload finds the
// programs that count on more than that (decision 055):
//
// - The first and the last bytes of what a SEND or a response brings appear when the application
//   polls the completion of the message.
// - The first packet of a WRITE appears last, before the acknowledgement leaves.
// - An atomic operation is atomic among the adapter's own operations alone (IBV_ATOMIC_HCA), and
//   not towards processors.
// - What the specification leaves undefined in a buffer holds `undefined_byte`.
//
// Packets allocate memory here, as nowhere else: such a device is not meant to be fast.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "rdma/transport/packet_io.h"
#include "rdma/verbs/types.h"

namespace tulle::transport {

inline constexpr std::byte undefined_byte{0xA5};

// The ends of a message's data that are in one packet's payload.
struct Edges {
  bool first = false;
  bool last = false;
};

class Withheld {
 public:
  static constexpr std::uint32_t edge_bytes = 64;

  // Keeps bytes that go to `memory` until a completion of that work queue is polled. Returns false
  // if there is no memory to keep them: the caller then writes them at once. An XRC target
  // completes to several queues and must not keep any.
  [[nodiscard]] bool keep(QpNumber qp, bool is_receive, std::byte* memory, const std::byte* from,
                          std::uint32_t bytes);
  // The first packet of a WRITE, where it goes, and the key and address by which it may. The memory
  // is null once its region has gone away.
  struct FirstPacket {
    RemoteKey key;
    std::uint64_t address = 0;
    std::byte* memory = nullptr;
    std::vector<std::byte> bytes;
  };
  // Keeps the first packet of a WRITE until the last one has been written. Nothing else writes it.
  // The caller must look at the peer's right to write it again before write_first_packet().
  [[nodiscard]] bool keep_first_packet(QpNumber qp, RemoteKey key, std::uint64_t address,
                                       std::byte* memory, std::span<const std::byte> bytes);
  // Returns null if there is none.
  const FirstPacket* first_packet(QpNumber qp) const;
  // The last packet of that WRITE has been written. Returns false if the memory is gone.
  [[nodiscard]] bool write_first_packet(QpNumber qp);
  // The WRITE has been abandoned, or may no longer be written.
  void drop_first_packet(QpNumber qp);

  // A completion has been queued; what was kept before belongs to it.
  void bind(const verbs::Completion& completion);
  // The application has taken a completion.
  void release(const verbs::Completion& completion);
  // Writes what is kept for a queue pair if some of it belongs into this memory, into which a later
  // request of the same queue pair is about to write.
  void release_under(QpNumber qp, const std::byte* memory, std::uint32_t bytes);
  // Writes what is kept for a queue pair: its peer reads, or a fence has been passed.
  void release_all(QpNumber qp);
  // A memory region goes away. First packets for it are not written.
  void release_all(std::span<const std::byte> region);
  // The queue pair goes away or is reset: what is kept is written, and its completions are of
  // the past.
  void forget(QpNumber qp);

 private:
  struct Piece {
    std::byte* memory = nullptr;
    std::uint32_t bytes = 0;
    std::array<std::byte, edge_bytes> data{};
  };
  struct Queue {
    std::deque<Piece> pieces;
    std::deque<std::uint32_t> bound;  // pieces of each completion that waits in its queue
    std::uint32_t unbound = 0;        // pieces of messages that have not completed
  };
  struct Kept {
    Queue sends;
    Queue receives;
    FirstPacket first_packet;
  };

  static bool is_receive(const verbs::Completion& completion);
  static void write(Queue& queue, std::size_t count);
  static void write_all(Kept& kept);

  std::unordered_map<std::uint32_t, Kept> queue_pairs_;  // by number
};

}  // namespace tulle::transport
