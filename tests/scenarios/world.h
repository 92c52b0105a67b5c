#pragma once

// Plays a plan: builds the nodes, connects the queue pairs, and acts as the applications on top of
// them.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "sim/cluster.h"
#include "tests/scenarios/end.h"
#include "tests/scenarios/plan.h"
#include "tests/scenarios/promises.h"
#include "tests/scenarios/wire_watch.h"

namespace tulle::scenarios {

// Faults made on purpose between the adapters and the checker, to show that the checker sees them.
enum class Sabotage : std::uint8_t {
  none,
  completion_twice,
  completion_lost,
  completions_swapped,
  status_changed,
  length_changed,
  immediate_changed,
  payload_damaged,  // by the network, where no ICRC sees it
  guard_byte_written,
  old_write_repeated,
  atomic_twice,
  event_lost,
  request_sent_again,  // though nothing asked for it
  credits_raised,
  acknowledged_early,
};
std::string_view name_of(Sabotage sabotage);

struct Outcome {
  std::uint64_t digest = 0;
  std::uint64_t events = 0;
  std::uint64_t completions = 0;
  std::uint64_t retransmitted = 0;
  bool sabotaged = false;  // the sabotage found an occasion
};

class World {
 public:
  explicit World(const Plan& plan, Sabotage sabotage = Sabotage::none);

  // Plays the whole plan. Throws Broken if a promise was not kept.
  Outcome run();
  // Returns true if the sabotage found an occasion.
  bool sabotaged() const { return outcome_.sabotaged; }
  // Makes run() print every packet that leaves and every completion.
  void trace() { tracing_ = true; }

 private:
  enum class Alarm : std::uint8_t {
    resume,  // an end posts again after a pause
    to_rts,
    drain,
    drained_over,
    post_receive,  // a buffer of a pool
    poll,          // a node's completion queue
    mishap,        // a channel's mishap
    reconnect,
    cut_off,
    look,  // a request that was just posted may have completed at once
  };

  struct Cq {
    verbs::CompletionQueue* cq = nullptr;
    bool poll_planned = false;
    bool event_came = false;
  };

  // world_build.cc
  void build_nodes();
  void build_node(std::uint32_t number);
  void build_channels();
  void build_end(End& end);
  void place_ops(End& end);
  void build_receives(End& end);
  void build_shared_receives(std::uint32_t node);
  void register_block(std::uint32_t node, Block& block, verbs::AccessFlags access);
  void create_queue_pair(End& end);
  void to_init(End& end);
  void to_rtr(End& end);
  void to_rts(End& end);
  void modify(End& end, const transport::QueuePairAttributes& attributes,
              verbs::QpAttributeMask mask);
  void modify_target(End& end, const transport::QueuePairAttributes& attributes,
                     verbs::QpAttributeMask mask);
  void connect(End& first, End& second);
  void post_first_receives(End& end);
  std::uint32_t capacity_of_queue(std::uint32_t node) const;
  void destroy_all();

  // world.cc
  void plan_alarms();
  void alarm(Time at, std::uint32_t node, Alarm what, std::uint32_t which, std::uint32_t more = 0);
  void handle_alarm(std::uint32_t node, std::uint64_t token);
  void start_mishap(std::uint32_t channel);
  void reset_channel(std::uint32_t channel);
  void start_drain(End& end);
  void end_drain(End& end);
  void look_at(std::uint32_t node);
  void pull_events(std::uint32_t node);
  void handle_event(std::uint32_t node, const device::Event& event);
  void look_at_queue(std::uint32_t node, std::uint32_t queue);
  void poll_unasked(std::uint32_t node, Cq& queue);
  void poll(std::uint32_t node, verbs::CompletionQueue& cq);
  void completed(std::uint32_t node, verbs::Completion completion);
  void receive_completed(End& end, const verbs::Completion& completion);
  void recover(End& end);
  bool finished(const End& end) const;
  bool all_finished() const;
  void settle();
  void tear_down();
  void check_perfect();
  std::string unfinished() const;

  // world_watch.cc
  void watch();
  void watch_connection(const End& end);
  void packet_left(const sim::Departure& departure);
  void packet_arrived(const sim::Arrival& arrival);
  static std::size_t number_of(const End& end) {
    return std::size_t{2} * end.channel_number + static_cast<std::size_t>(end.side);
  }
  void print(const sim::Departure& departure) const;

  // world_post.cc
  void pump(End& end);
  bool may_post(const End& end, const Op& op);
  void post(End& end, std::size_t index);
  void aim(End& end, std::size_t index, verbs::SendRequest& request);
  void aim_atomic(End& end, std::size_t index, verbs::SendRequest& request);
  void aim_window(End& end, const Op& op, Posted& posted, verbs::SendRequest& request);
  void spoil(End& end, std::size_t index, verbs::SendRequest& request);
  void post_receive(ReceivePool& pool, std::uint32_t buffer);
  bool can_post_receive(const ReceivePool& pool) const;

  // sabotage.cc
  void sabotage_departure(Time now, std::size_t sender, wire::Packet& packet);
  bool sabotage_completion(End& end, verbs::Completion& completion);
  void sabotage_memory();

  End& end_of(std::uint32_t channel, int side) { return *ends_[2 * channel + side]; }
  device::Adapter& adapter(std::uint32_t node) { return cluster_.adapter(sim::NodeNumber(node)); }

  Plan plan_;
  Sabotage sabotage_;
  Random random_;
  sim::Cluster cluster_;
  std::vector<NodeState> nodes_;
  std::vector<std::vector<Cq>> queues_;  // by node
  std::vector<std::unique_ptr<End>> ends_;
  std::vector<std::unique_ptr<ReceivePool>> pools_;
  std::vector<End*> owner_of_pool_;  // null if the pool is shared
  Promises promises_;
  WireWatch wire_;
  Outcome outcome_;
  bool tracing_ = false;
  bool tearing_down_ = false;
  // Pieces of the request that is being posted.
  std::vector<verbs::Sge> sges_;
  std::vector<std::span<const std::byte>> inline_pieces_;
};

}  // namespace tulle::scenarios
