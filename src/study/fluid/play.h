#pragma once

// Plays flows as fluids: each has a rate, which is its max-min fair share, until its bytes are
// gone. What a flow takes longer than in an empty network is the time that its share costs it, and
// the time that its packets wait in the queues which it finds.
//
// There is a queue before a link that is the bottleneck of some flows, since a sender does not know
// its fair share: it sends at its own link's rate until something limits it. What that is decides
// how much is queued there (Backlog).

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "study/fluid/max_min.h"

namespace tulle::fluid {

// Times are in picoseconds, and rates in bytes a picosecond.
struct Link {
  double rate = 0;
  // A queue that is longer than this many bytes would have other effects than its waiting time:
  // marks, pauses, losses.
  double queue_bytes_max = 0;
};

struct Flow {
  double start = 0;
  double bytes = 0;       // on the links, with headers and gaps
  double alone = 0;       // the time that its bytes take in an empty network
  double round_trip = 0;  // of one packet there
  // Its path, and that of its acknowledgements, which is stored behind it in Traffic::hops.
  std::uint32_t first_hop = 0;
  std::uint32_t hops = 0;
  std::uint32_t hops_back = 0;
};

struct Traffic {
  std::vector<Link> links;
  std::vector<Flow> flows;
  std::vector<LinkIndex> hops;  // the paths of all flows, one behind the other
  std::uint32_t hops_max = 0;   // of the path of one flow
};

// What holds a sender back.
enum class Backlog : std::uint8_t {
  // It has at most a window of bytes in flight. Of these, its rate times the round trip fill the
  // way; the rest waits before its bottleneck.
  window,
  // A link lets it send only what the next switch has room for. Its bytes fill the switch's room
  // before the bottleneck, then that of the switch before it, and so on back to the sender.
  credits,
};

struct Settings {
  Backlog backlog = Backlog::window;
  double bytes = 0;         // of a window, or of a switch's room for each port
  double packet_bytes = 0;  // of a long packet on a link
  double tolerance = 0;     // of max-min fairness: MaxMin::Settings
};

// Counts what the flows have found when they came.
struct Findings {
  std::uint64_t queues = 0;      // all queues on their paths
  std::uint64_t too_long = 0;    // those that were longer than Link::queue_bytes_max
  double longest = 0;            // bytes
  double longest_of_max = 0;     // the most that one had of its link's queue_bytes_max
  std::uint32_t most_bound = 0;  // the most flows that had one bottleneck at a time
  // Paths, there and back, with a link that a bottleneck further on slowed.
  std::uint64_t blocked = 0;
};

class Play {
 public:
  // Keeps the reference, which must outlive it.
  Play(const Traffic& traffic, const Settings& settings);

  // Plays all flows, each from its start on. `goes_on` is called now and then with the number of
  // flows that are done, and returns false to stop.
  void run(const std::function<bool(std::uint64_t done)>& goes_on);

  // The next four are for callers that start flows themselves. All that happens at one time is
  // followed by settle(), before which no time of an end may be asked for.
  //
  // Starts a flow now, whatever its start in Traffic says, which must be now, too.
  void begin(double now, std::uint32_t flow);
  // Returns the time at which the first of the flows under way ends: its last byte has passed its
  // bottleneck. Infinity: there is none.
  double next_end() const;
  // Ends that flow, and returns it, with what its acknowledgement waits for on the way back, which
  // is a part of its delay().
  struct Ended {
    std::uint32_t flow = 0;
    double waits_back = 0;
  };
  Ended end_first(double now);
  void settle(double now);

  // Returns by how much longer a flow takes than in an empty network; negative if it is not done.
  double delay(std::uint32_t flow) const { return delays_[flow]; }
  const Findings& findings() const { return findings_; }
  std::uint64_t solved() const { return rates_.solved(); }

 private:
  // A flow that is under way.
  struct Active {
    std::uint32_t flow = 0;
    double waits = 0;    // in the queues that it has found
    double since = 0;    // when the next three were so
    double left = 0;     // bytes
    double backlog = 0;  // bytes that wait before the bottleneck, and behind it
    double rate = 0;
    std::uint32_t place = 0;  // in heap_
  };
  // The flows by the times at which they end.
  struct Ending {
    double at = 0;
    FlowSlot slot = 0;
  };

  void catch_up(double now, FlowSlot slot);
  double backlog(double now, FlowSlot slot) const;
  double queue(double now, LinkIndex link, bool& is_blocked);
  double wait(double now, std::span<const LinkIndex> path);
  void lift(std::uint32_t place);
  void sink(std::uint32_t place);
  void put(std::uint32_t place, Ending ending) {
    heap_[place] = ending;
    active_[ending.slot].place = place;
  }

  const Traffic& traffic_;
  Settings settings_;
  MaxMin rates_;
  std::vector<Active> active_;  // by slot
  std::vector<Ending> heap_;
  std::vector<double> delays_;
  Findings findings_;
  struct Input {
    LinkIndex from = 0;
    double bytes = 0;
  };
  std::vector<Input> inputs_;  // of the queue that is looked at
};

}  // namespace tulle::fluid
