#pragma once

// Traffic as data: the source, destination, size and start of each flow. Each generator is a
// function of its settings and, if it draws, of a seed. An error is one line: "GENERATOR: fault".
//
// A flow waits only for flows before it in the list, so that every list is free of cycles.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "study/workload/distribution.h"

namespace tulle::workload {

// One message from one host to another.
struct Flow {
  std::uint32_t source = 0;  // host numbers
  std::uint32_t destination = 0;
  std::uint64_t bytes = 0;
  Time start = Time::zero();  // earliest start
  // Index of an earlier flow that must have arrived at this flow's source before this one starts;
  // -1 means none.
  std::int32_t after = -1;
  // Flows of one connection, a number from 0, go from one host to one other, in order and by one
  // path; -1 means a connection of the flow's own.
  std::int32_t connection = -1;

  bool operator==(const Flow&) const = default;
};
using Flows = std::vector<Flow>;

// Most flows in one list, which take 3.2 GB. A generator that would make more returns an error.
inline constexpr std::size_t flows_max = 100'000'000;

// Every host sends to one host and receives from one host other than itself: a random derangement.
struct PermutationSettings {
  std::uint32_t hosts = 0;  // at least 2
  std::uint64_t bytes = 0;  // bytes of each flow
  Time start = Time::zero();
  std::uint64_t seed = 1;
};
Result<Flows> permutation(const PermutationSettings& settings);

// Every host sends to the host `distance` further on, wrapping round at the end.
struct ShiftSettings {
  std::uint32_t hosts = 0;     // at least 2
  std::uint32_t distance = 1;  // not a multiple of hosts
  std::uint64_t bytes = 0;     // bytes of each flow
  Time start = Time::zero();
};
Result<Flows> shift(const ShiftSettings& settings);

// Several senders send to one receiver at once.
struct IncastSettings {
  std::uint32_t hosts = 0;
  std::uint32_t senders = 0;                             // 1 to hosts - 1; drawn if not all send
  std::optional<std::uint32_t> receiver = std::nullopt;  // drawn if not given
  std::uint64_t bytes = 0;                               // bytes of each flow
  Time start = Time::zero();
  std::uint64_t seed = 1;
};
Result<Flows> incast(const IncastSettings& settings);

// Every host sends to every other, in hosts - 1 rounds. In round r, from 1, host h sends to h + r,
// so that in each round every host receives from one.
struct AllToAllSettings {
  enum class Rounds {
    at_once,    // every flow may start at once
    staggered,  // a host starts a round when it has received the flow of the round before
  };
  std::uint32_t hosts = 0;  // at least 2
  std::uint64_t bytes = 0;  // bytes of each flow
  Rounds rounds = Rounds::staggered;
  Time start = Time::zero();
};
Result<Flows> all_to_all(const AllToAllSettings& settings);

// Flows between random pairs that arrive independently of one another (a Poisson process).
struct PoissonSettings {
  std::uint32_t hosts = 0;                // at least 2
  std::int64_t link_bits_per_second = 0;  // rate of each host's link
  double load = 0;  // the flows' bytes as a share of the capacity of all hosts' links, in (0, 1]
  SizeDistribution sizes = SizeDistribution::web_search();
  Time start = Time::zero();     // start of the arrivals
  Time duration = Time::zero();  // no flow starts at start + duration or later
  std::uint64_t seed = 1;
};
Result<Flows> poisson(const PoissonSettings& settings);

// The ring algorithm. The buffer is cut into as many segments as there are hosts. Each segment goes
// once round the ring to be summed and once more to be handed out, which takes 2 (n - 1) steps, and
// every host passes on the segment that it received in the step before. A host sends 2 (n - 1) / n
// times the buffer.
struct RingAllReduceSettings {
  std::vector<std::uint32_t> ring;  // host numbers in ring order, at least 2, all distinct
  std::uint64_t bytes = 0;          // bytes of the buffer of each host
  std::uint32_t rings = 1;   // rings that share the buffer side by side, in the same host order
  std::uint32_t chunks = 1;  // chunks that each step's segment is cut into; they follow one another
  Time start = Time::zero();
};
Result<Flows> ring_all_reduce(const RingAllReduceSettings& settings);

// Delays each start by a time drawn uniformly from [0, jitter), since real hosts never start
// together. For a flow that waits for another, only its own start is delayed, which rarely
// determines when the flow begins.
struct JitterSettings {
  enum class Per { flow, host };  // host: all flows of a source get the same delay
  Time jitter = Time::zero();
  Per per = Per::flow;
  std::uint64_t seed = 1;
};
Result<void> add_jitter(Flows& flows, const JitterSettings& settings);

// Cuts each flow into `parts` of nearly the same length. Each part is a separate flow, like the
// messages of an application that uses several queue pairs. A part waits for the same part of the
// flow that its own flow waits for. A flow of fewer bytes than parts is cut into single bytes.
// Returns the index of each flow's first part, and at the end the number of all parts.
Result<std::vector<std::uint32_t>> split(Flows& flows, std::uint32_t parts);

// Cuts each flow into parts that are sprayed over planes, or gives each flow a plane, round robin
// at its source. The hosts of the flows are adapters before, and ports of adapters afterwards: the
// port of adapter a in plane p is a * planes + p. A flow that waits for another stays in this one's
// planes, and each of its parts waits for the part in the same plane. Returns as split() does.
Result<std::vector<std::uint32_t>> deal_over_planes(Flows& flows, std::uint32_t planes,
                                                    bool sprays);
// Each packet of a sprayed message may take another plane. A message has no more parts than packets
// of so many bytes.
inline constexpr std::uint64_t spray_bytes_min = 4'096;

// Appends `more` to `flows`. Flows of `more` that wait still wait for the same flow.
Result<void> append(Flows& flows, const Flows& more);

}  // namespace tulle::workload
