#pragma once

// A rank's device: its memory, and a reliable connection to each (rank, channel) with which it
// exchanges messages.

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ranks/frames.h"
#include "ranks/plan.h"
#include "ranks/values.h"
#include "ranks/verbs_library.h"

namespace tulle::ranks {

// Memory that the kernel gives, zeroed, as it is touched.
class Memory {
 public:
  Memory() = default;
  Memory(Memory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();
  static Result<Memory> of(std::uint64_t bytes);

  std::span<std::byte> bytes() const { return bytes_; }
  std::span<Value> values(std::uint64_t offset, std::uint64_t length) const {
    return {reinterpret_cast<Value*>(&bytes_[offset]), length / sizeof(Value)};
  }

 private:
  std::span<std::byte> bytes_;
};

struct Link {
  std::uint32_t peer = 0;
  std::uint32_t channel = 0;
  bool adds = false;          // some message that comes is added
  std::uint32_t slots = 0;    // of this end
  std::uint64_t staging = 0;  // offset of this end's slots in the staging memory
  ibv_qp* qp = nullptr;
  Address remote{};
};

// Returns the exponent of the acknowledgement time-out (IBTA 9.7.6.1.3: 4.096 us times 2^n) with
// which eight attempts last at least that long: 14 to 24. So a rank that is stopped ends the run by
// saying nothing, and not by a broken connection that would name another.
std::uint8_t ack_timeout_of(std::chrono::milliseconds timeout);

class Endpoint {
 public:
  // Opens the first device and makes the links of this rank.
  static Result<Endpoint> open(const VerbsLibrary& verbs, const Plan& plan, std::uint32_t rank,
                               std::chrono::milliseconds timeout);

  std::vector<Address> addresses() const;
  // Connects the links with the ends that their peers have made.
  Result<void> connect(std::span<const Address> remote);

  std::vector<Link>& links() { return links_; }
  // Returns the number of a link that exists.
  std::uint32_t link_to(std::uint32_t peer, std::uint32_t channel) const {
    return by_peer_.at({peer, channel});
  }
  Memory& memory() { return memory_; }
  // Returns a slot of a link's end.
  std::byte* slot(const Link& link, std::uint64_t sequence) {
    return &staging_.bytes()[link.staging + sequence % link.slots * chunk_bytes_];
  }

  // Writes a chunk of this rank's memory, and then tells the peer that it is there. `key` and
  // `address` are the peer's.
  Result<void> write(const Link& link, std::uint64_t offset, std::uint32_t bytes,
                     std::uint64_t address, std::uint32_t key, std::uint32_t told,
                     std::uint64_t request);
  // Tells the peer a number.
  Result<void> tell(const Link& link, std::uint32_t told, std::uint64_t request);
  // Takes one more notice. The first requests have the number of their link, times 2^32.
  Result<void> receive(const Link& link, std::uint64_t request);

  // Takes completions. The error names the peer of a connection that broke.
  Result<std::span<const ibv_wc>> poll();
  // Asks to be woken by events() at the next completion.
  Result<void> arm();
  int events() const { return channel_->fd; }
  void take_event();

 private:
  Result<void> make_links(const Plan& plan, std::uint32_t rank);
  Result<void> make_queues();
  Result<void> make_queue_pair(Link& link, std::uint32_t number);
  Result<void> connect(Link& link);

  VerbsLibrary verbs_;
  std::uint32_t chunk_bytes_ = 0;
  std::uint64_t target_offset_ = 0;
  std::uint8_t ack_timeout_ = 14;
  Memory memory_, staging_;
  std::vector<Link> links_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> by_peer_;
  std::map<std::uint32_t, std::uint32_t> by_qp_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* memory_region_ = nullptr;
  ibv_mr* staging_region_ = nullptr;
  ibv_gid gid_{};
  std::vector<ibv_wc> completions_;
};

}  // namespace tulle::ranks
