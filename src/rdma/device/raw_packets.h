#pragma once

// Raw packet queue pairs: this class decides which of them get a frame from the wire, and which one
// sends next. An adapter has it once the first raw packet queue pair is created.
//
// Steering is that of Linux and its NICs (ibv_create_flow(3)). Rules look at the headers. The
// lowest priority number that matches wins, and all queue pairs with such a rule get a copy. Frames
// that no rule takes go to the queue pairs with a default rule. Sniffers get a copy of every frame.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "rdma/device/flow_fields.h"
#include "rdma/device/owned.h"
#include "rdma/device/receive_hash.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/types.h"

namespace tulle::device {

enum class FlowKind : std::uint8_t { normal, all_default, multicast_default, sniffer };

struct FlowRule {
  FlowKind kind = FlowKind::normal;
  std::uint16_t priority = 0;  // 0 is tried first
  bool drops = false;          // matching frames go nowhere
  bool passes_on = false;      // matching frames are tried against rules of other priorities too
  FlowMatch match;
};

struct Flow {
  transport::QueuePair* qp = nullptr;
  FlowRule rule;
};

// Maps a hash to a receive work queue: the hash's low bits are the index. The number of queues is a
// power of two.
struct IndirectionTable {
  std::vector<transport::QueuePair*> queues;
  std::uint32_t users = 0;
};

class RawPackets {
 public:
  static constexpr std::uint32_t flows_max = 65'536;
  static constexpr std::uint32_t tables_max = 16'384;
  static constexpr std::uint32_t table_entries_max = 2'048;
  static constexpr std::size_t frames_at_once = 32;

  // Sets the length of the longest frame that the port carries, without the check sequence.
  void set_frame_bytes_max(std::uint32_t bytes) { frame_bytes_max_ = bytes; }

  // Returns null if there are too many flows.
  Flow* add_flow(transport::QueuePair& qp, const FlowRule& rule);
  void remove(Flow* flow);
  bool has_flows() const { return flows_.size() > 0; }

  // Creates a table of receive work queues. Returns null if there are too many tables, if the
  // number of entries is not a power of two or is too large, or if a queue is of another kind.
  IndirectionTable* create_table(std::span<transport::QueuePair* const> queues,
                                 verbs::VerbsStatus& status);
  [[nodiscard]] verbs::VerbsStatus destroy(IndirectionTable* table);
  // Makes the frames for the queue pair go to the table's queues from now on.
  void spread(transport::QueuePair& qp, IndirectionTable& table, const ReceiveHash& hash);

  // True if a flow or a table refers to the queue pair. Otherwise it can be forgotten.
  bool is_used(const transport::QueuePair& qp) const;
  void forget(transport::QueuePair& qp);

  // Handles a frame from the wire; the driver calls this. If a queue has no receive request for the
  // frame, `drop` makes that queue lose it. With `wait`, the frame goes nowhere and the call
  // returns false, and the driver hands it in again a little later. If that did not help, frames do
  // not wait for that queue again until it has received one.
  enum class IfNoRoom : std::uint8_t { wait, drop };
  [[nodiscard]] bool handle_frame(std::span<const std::byte> frame, IfNoRoom if_no_room);
  // Returns frames of one queue pair to send. They are valid until `sent` says how many of them,
  // from the first, have left. An empty result means that there is nothing to send now.
  std::span<const transport::OutgoingPacket> pull_frames();
  void sent(std::size_t count);
  bool has_ready() const { return !ready_.empty(); }
  // For the adapter: marks a queue pair that has something to send.
  // Makes room for that many queue pairs, so that sending and receiving allocate nothing.
  void make_room(std::size_t queue_pairs);
  void make_ready(transport::QueuePair& qp);

 private:
  void release_entry(const transport::QueuePair& queue);
  struct Spreading {
    IndirectionTable* table = nullptr;
    ReceiveHash hash;
  };

  void find_receivers(const FlowFields& fields);
  bool find_by_rules(const FlowFields& fields);
  void add_receiver(transport::QueuePair& qp, const FlowFields& fields);
  bool is_worth_waiting(const transport::QueuePair& queue) const;

  std::uint32_t frame_bytes_max_ = 1'514;
  Owned<Flow> flows_;
  std::vector<Flow*> rules_;     // normal rules by priority
  std::vector<Flow*> defaults_;  // both kinds of default rules
  std::vector<Flow*> sniffers_;
  Owned<IndirectionTable> tables_;
  std::unordered_map<const transport::QueuePair*, std::uint32_t> table_entries_;
  std::unordered_map<const transport::QueuePair*, Spreading> spreadings_;
  std::vector<const transport::QueuePair*> found_;     // queue pairs that get the current frame
  std::vector<transport::QueuePair*> receivers_;       // queues that receive the frame for them
  std::vector<const transport::QueuePair*> given_up_;  // queues without room
  std::vector<transport::QueuePair*> ready_;           // queue pairs with frames, round robin
  std::array<transport::OutgoingPacket, frames_at_once> frames_;
};

}  // namespace tulle::device
