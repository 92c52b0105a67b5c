#pragma once

// Raw packet queue pairs: which of them a frame from the wire goes to, and whose frame goes to the
// wire next. An adapter has this once the first of them is made.
//
// Steering is Linux's and its NICs' (ibv_create_flow(3)): rules look at the headers; the lowest
// priority number that matches wins, and all the queue pairs that have such a rule get a copy.
// What no rule takes goes to those with a default rule, and sniffers get everything beside.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/flow_fields.h"
#include "device/owned.h"
#include "device/receive_hash.h"
#include "transport/queue_pair.h"
#include "verbs/types.h"

namespace tulle::device {

enum class FlowKind : std::uint8_t { normal, all_default, multicast_default, sniffer };

struct FlowRule {
  FlowKind kind = FlowKind::normal;
  std::uint16_t priority = 0;  // 0 is tried first
  bool drops = false;          // what matches goes nowhere
  bool passes_on = false;      // what matches is tried against rules of other priorities too
  FlowMatch match;
};

struct Flow {
  transport::QueuePair* qp = nullptr;
  FlowRule rule;
};

// Which receive work queue a hash stands for: its low bits are the place. A power of two of them.
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

  // The longest frame that the port carries, without its check sequence.
  void set_frame_bytes_max(std::uint32_t bytes) { frame_bytes_max_ = bytes; }

  // Null: there are too many.
  Flow* add_flow(transport::QueuePair& qp, const FlowRule& rule);
  void remove(Flow* flow);
  bool has_flows() const { return flows_.size() > 0; }

  // Of receive work queues. Null: there are too many, or this one has too many or too few entries.
  IndirectionTable* create_table(std::span<transport::QueuePair* const> queues,
                                 verbs::VerbsStatus& status);
  [[nodiscard]] verbs::VerbsStatus destroy(IndirectionTable* table);
  // What comes for the queue pair goes to one of the table's queues from now on.
  void spread(transport::QueuePair& qp, IndirectionTable& table, const ReceiveHash& hash);

  // Whether a flow or a table holds it; if not, it can be forgotten.
  bool is_used(const transport::QueuePair& qp) const;
  void forget(transport::QueuePair& qp);

  // For the driver. A frame from the wire. Where a queue has no receive request for it, it is lost
  // there; or it goes nowhere and the answer is false: the driver gives it again a little later.
  // For a queue where that did not help, nobody waits again before it has received something.
  enum class IfNoRoom : std::uint8_t { wait, drop };
  [[nodiscard]] bool handle_frame(std::span<const std::byte> frame, IfNoRoom if_no_room);
  // Frames of one queue pair to send, good until `sent` says how many of them, from the first, have
  // left; none: nothing to send now.
  std::span<const transport::OutgoingPacket> pull_frames();
  void sent(std::size_t count);
  bool has_ready() const { return !ready_.empty(); }
  // For the adapter: it has something to send.
  void make_ready(transport::QueuePair& qp);

 private:
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
  std::vector<Flow*> rules_;     // normal ones, by priority
  std::vector<Flow*> defaults_;  // of both kinds
  std::vector<Flow*> sniffers_;
  Owned<IndirectionTable> tables_;
  std::unordered_map<const transport::QueuePair*, std::uint32_t> table_entries_;
  std::unordered_map<const transport::QueuePair*, Spreading> spreadings_;
  std::vector<const transport::QueuePair*> found_;     // that the frame at hand is for
  std::vector<transport::QueuePair*> receivers_;       // the queues that take it for them
  std::vector<const transport::QueuePair*> given_up_;  // queues without room
  std::vector<transport::QueuePair*> ready_;           // in turn
  std::array<transport::OutgoingPacket, frames_at_once> frames_;
};

}  // namespace tulle::device
