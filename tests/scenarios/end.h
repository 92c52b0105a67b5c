#pragma once

// One end of a channel: a queue pair, its memory, and what its application did and was told.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rdma/device/adapter.h"
#include "tests/scenarios/atomic_history.h"
#include "tests/scenarios/block.h"
#include "tests/scenarios/plan.h"

namespace tulle::scenarios {

// Buffers for one queue pair's receive queue or for a shared one.
struct ReceivePool {
  struct Buffer {
    std::vector<Piece> pieces;
    std::uint64_t wr_id = 0;
    bool posted = false;
    std::uint32_t bytes = 0;  // posted length; less than the pieces hold if it is short on purpose
  };
  static constexpr std::uint32_t no_limit = ~0u;

  std::uint32_t number = 0;
  std::uint32_t node = 0;
  Block block;
  std::vector<Buffer> buffers;
  std::uint32_t posts = 0;  // since the queue pair was connected
  std::uint32_t posts_max = no_limit;
  std::deque<std::uint64_t> order;           // wr_ids of posted buffers, oldest first
  verbs::SharedReceiveQueue* srq = nullptr;  // null: the queue pair's own receive queue
  std::uint32_t limit_events = 0;
};

// A send request that was posted. Its index in End::posted is its index in the plan.
struct Posted {
  std::uint64_t wr_id = 0;
  Time at;
  bool signaled = false;
  bool done = false;  // by its own completion or by a later one
  bool succeeded = false;
  bool delivered = false;          // the peer has its receive completion
  std::vector<std::byte> payload;  // bytes that it carries
  std::size_t hot_version = 0;     // write_hot: its own version; read_hot: the last one before it
  std::uint64_t compare = 0;
  std::uint64_t operand = 0;
  RemoteKey invalidates;
};

struct End {
  const Plan* plan = nullptr;
  const ChannelPlan* channel = nullptr;
  const EndPlan* mine = nullptr;
  int side = 0;
  std::uint32_t channel_number = 0;
  End* peer = nullptr;
  transport::QueuePair* qp = nullptr;
  transport::QueuePair* target = nullptr;  // XRC's target, which receives; null for other types
  verbs::CompletionQueue* send_cq = nullptr;
  verbs::CompletionQueue* receive_cq = nullptr;
  verbs::AddressHandle* to_peer = nullptr;
  ReceivePool* receives = nullptr;
  std::vector<Op> ops;  // the plan's ops, with their places in memory

  Block local;                      // memory that it sends from and reads into
  Block exposed;                    // memory that the peer writes to and reads from
  Block sealed;                     // registered without any access
  std::uint32_t hot_offset = 0;     // place in exposed that the peer writes again and again
  std::uint32_t window_offset = 0;  // in exposed
  verbs::MemoryWindow* window = nullptr;
  RemoteKey window_key;
  std::uint32_t cycles_bound = 0;
  std::uint32_t cycles_ended = 0;
  std::vector<std::uint32_t> window_uses_left;  // by cycle of the peer's window

  std::vector<Posted> posted;
  std::size_t completed = 0;  // number of requests that have ended, counted from the first
  std::optional<std::size_t> first_error;
  verbs::CompletionStatus first_status = verbs::CompletionStatus::success;
  bool paused = false;
  bool ready = false;    // in RTS
  bool gave_up = false;  // waits for an action that the failed peer will not take
  bool drained = false;
  std::uint32_t waiting_when_drained = 0;
  std::uint32_t connections = 0;
  Psn psn;  // of its first packet
  std::uint32_t failures_as_planned = 0;
  std::uint32_t drains = 0;

  std::vector<std::size_t> messages;  // posted requests that take a receive, in order
  std::size_t messages_delivered = 0;
  std::vector<std::vector<std::byte>> hot_versions;  // contents of the peer's hot place, by version
  std::size_t hot_sure = 0;                          // oldest version that may be there
  std::size_t hot_last = 0;  // oldest version that a request posted now may see

  std::map<verbs::EventType, std::uint32_t> events;

  bool is_iwarp() const { return channel->type == verbs::QpType::iwarp; }
  // True for a reliable connection of any kind.
  bool is_rc() const { return channel->type == verbs::QpType::rc || is_iwarp() || is_xrc(); }
  bool is_xrc() const { return channel->type == verbs::QpType::xrc_initiator; }
  transport::QueuePair& receiver() const { return target != nullptr ? *target : *qp; }
  bool is_culprit() const { return channel->mishap != Mishap::none && channel->mishap_end == side; }
  bool is_victim() const { return channel->mishap != Mishap::none && channel->mishap_end != side; }
  bool cut_off() const {
    return plan->cut_off &&
           (mine->node == plan->cut_off_node || peer->mine->node == plan->cut_off_node);
  }
  std::size_t outstanding() const { return posted.size() - completed; }
  std::string name() const;
};

struct Word {
  std::uint64_t initial = 0;
  bool swaps = false;
  std::vector<AtomicEntry> history;
};

struct NodeState {
  verbs::ProtectionDomain* pd = nullptr;
  std::vector<verbs::CompletionQueue*> cqs;
  Block memory_of_words;
  std::vector<std::uint32_t> word_offsets;
  std::vector<Word> words;
  ReceivePool* shared = nullptr;
  verbs::XrcDomain* domain = nullptr;
};

}  // namespace tulle::scenarios
