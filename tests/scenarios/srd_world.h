#pragma once

// Random scenarios of the scalable reliable datagram, each from a seed. Queue pairs of several
// nodes send and write to each other under loss, duplication, reordering and damage. Some requests
// must fail, a queue pair may be ended, and a node may be cut off. A checker that knows what was
// posted, what completed and what memory holds, and no more, holds the adapters to what SRD
// promises:
//
// - a request that succeeded has arrived, as it was sent, once;
// - one that failed has arrived once or not at all, and had a reason to fail;
// - every request that is signaled or fails completes once; in any order;
// - a receive request takes one message as a whole, and completes once;
// - nothing else is written to.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "rdma/verbs/types.h"
#include "sim/cluster.h"

namespace tulle::scenarios {

// Faults made on purpose between the adapters and the checker, to show that the checker sees them.
enum class SrdSabotage : std::uint8_t {
  none,
  completion_twice,
  completion_lost,
  status_changed,
  arrival_twice,
  arrival_lost,
  received_byte_changed,
  written_byte_changed,
  stray_byte_written,
};
inline constexpr std::size_t srd_sabotages = 9;
std::string_view name_of(SrdSabotage sabotage);

// Work request ids of receive requests have this bit.
inline constexpr std::uint64_t receive_bit = std::uint64_t{1} << 63;
inline constexpr std::uint32_t tag_bytes = 4;  // the first bytes of a message hold its number

class SrdWorld {
 public:
  explicit SrdWorld(std::uint64_t seed, SrdSabotage sabotage = SrdSabotage::none,
                    const sim::Clocks& clocks = {});
  ~SrdWorld();

  struct Outcome {
    std::uint64_t digest = 0;
    std::uint64_t events = 0;
    std::uint64_t completions = 0;
    std::uint64_t failures = 0;
    std::uint64_t retransmitted = 0;
  };
  // Plays the whole scenario. Throws Broken if a promise was not kept.
  Outcome run();
  bool sabotaged() const { return sabotaged_; }
  void describe() const;
  void trace();

 private:
  enum class Work : std::uint8_t { send, send_with_immediate, write, write_with_immediate };
  // Reason why a request must fail.
  enum class Mishap : std::uint8_t {
    none,
    unknown_remote_key,
    out_of_bounds,
    unknown_local_key,
    wrong_qkey,
    no_such_queue_pair,
    too_long,
    receive_too_short,
  };
  struct Op {
    std::uint32_t from = 0, to = 0;  // indices of ends
    Work work{};
    Mishap mishap{};
    std::uint32_t bytes = 0;
    bool signaled = true;
    std::uint32_t local = 0;   // where in the sender's memory
    std::uint32_t remote = 0;  // where in the receiver's memory, if it writes
    Time pause;
    bool posted = false;
    bool forgotten = false;  // its queue pair was destroyed, and its completion with it
    std::uint32_t arrivals = 0;
    std::optional<verbs::CompletionStatus> status;
    std::vector<std::byte> payload;
  };
  struct Memory {
    std::vector<std::byte> bytes;
    std::vector<std::byte> expected;
    std::vector<bool> open;  // true for bytes that may be anything
    verbs::MemoryRegion* region = nullptr;
    std::uint64_t iova = 0;
  };
  struct Buffer {
    std::uint32_t offset = 0;
    bool posted = false;
    bool may_flush = false;  // in a shared queue, and perhaps taken by a message of the queue pair
  };
  struct End {
    std::uint32_t node = 0;
    transport::QueuePair* qp = nullptr;
    QpNumber number;
    Memory memory;
    std::vector<Buffer> buffers;
    std::uint32_t buffer_bytes = 0;
    std::vector<std::uint32_t> ops;  // in the order in which they are posted
    std::size_t next_op = 0;
    std::uint32_t depth = 0;
    std::uint8_t rnr_retry = 7;
    Time ends_at = Time::never();
    bool destroyed = false;  // destroyed at `ends_at`; else moved to error
    bool ended = false;
    bool paused = false;
    bool shared = false;  // receives through a shared receive queue
  };
  struct Node {
    verbs::ProtectionDomain* pd = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    std::map<std::uint32_t, verbs::AddressHandle*> handles;  // by peer node
  };
  enum class Alarm : std::uint8_t {
    resume,
    receive,
    end,
    cut_off,
    look,  // a request that was just posted may have completed at once
  };

  std::uint32_t below(std::uint64_t bound) {
    return static_cast<std::uint32_t>(random_.below(bound));
  }
  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  void draw_network();
  void draw_ends();
  void draw_ops();
  void draw_mishap(Op& op);
  void place();
  void build_node(std::uint32_t number);
  void build_end(std::uint32_t number);
  void bring_up(End& end);
  void pump(std::uint32_t end);
  void post(std::uint32_t op);
  void post_receive(std::uint32_t end, std::uint32_t buffer);
  void handle_alarm(std::uint64_t token);
  void finish_end(std::uint32_t end);
  void poll(std::uint32_t node);
  void completed(const verbs::Completion& completion);
  void send_completed(const verbs::Completion& completion);
  void receive_completed(const verbs::Completion& completion);
  void arrived(std::uint32_t op, const verbs::Completion& completion, Buffer& buffer);
  bool may_fail(const Op& op, verbs::CompletionStatus status) const;
  static verbs::CompletionStatus status_of(Mishap mishap);
  bool is_written(const Op& op) const;
  void check_op(std::uint32_t number);
  void check_memory(std::uint32_t end) const;
  void check_at_rest();
  bool sabotage(verbs::Completion& completion);
  device::Adapter& adapter(std::uint32_t node) { return cluster_->adapter(sim::NodeNumber(node)); }

  std::uint64_t seed_;
  SrdSabotage sabotage_;
  bool sabotaged_ = false;
  Random random_;
  sim::Settings network_;
  transport::srd::Settings srd_;
  std::uint32_t mtu_bytes_ = 0;
  bool perfect_ = false;
  bool stormy_ = false;
  std::uint32_t node_count_ = 0;
  std::optional<std::uint32_t> cut_off_;
  Time cut_off_at_;
  std::unique_ptr<sim::Cluster> cluster_;
  std::vector<Node> nodes_;
  std::vector<End> ends_;
  std::vector<Op> ops_;
  Outcome outcome_;
};

}  // namespace tulle::scenarios
