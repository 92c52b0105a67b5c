#pragma once

// Traffic as data: who sends how much to whom, and when. Each generator is a function of its
// settings and, where it draws, of a seed. An error is one line: "GENERATOR: what is wrong".
//
// A flow waits only for flows before it in the list, so that every list is free of cycles.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "workload/distribution.h"

namespace tulle::workload {

// One message from one host to another.
struct Flow {
  std::uint32_t source = 0;  // host numbers
  std::uint32_t destination = 0;
  std::uint64_t bytes = 0;
  Time start = Time::zero();  // not before this
  std::int32_t after = -1;    // the index of an earlier flow that must have arrived, at this flow's
                              // source, first; -1: none

  bool operator==(const Flow&) const = default;
};
using Flows = std::vector<Flow>;

// 3.2 GB of flows; a generator that would make more says so.
inline constexpr std::size_t flows_max = 100'000'000;

// Every host sends to one other and receives from one other: a random derangement.
struct PermutationSettings {
  std::uint32_t hosts = 0;  // at least 2
  std::uint64_t bytes = 0;  // of each flow
  Time start = Time::zero();
  std::uint64_t seed = 1;
};
Result<Flows> permutation(const PermutationSettings& settings);

// Every host sends to the one `distance` further on, round the end.
struct ShiftSettings {
  std::uint32_t hosts = 0;     // at least 2
  std::uint32_t distance = 1;  // not a multiple of hosts
  std::uint64_t bytes = 0;     // of each flow
  Time start = Time::zero();
};
Result<Flows> shift(const ShiftSettings& settings);

// Several senders to one receiver at once.
struct IncastSettings {
  std::uint32_t hosts = 0;
  std::uint32_t senders = 0;                             // 1 to hosts - 1; drawn when not all send
  std::optional<std::uint32_t> receiver = std::nullopt;  // drawn where not given
  std::uint64_t bytes = 0;                               // of each flow
  Time start = Time::zero();
  std::uint64_t seed = 1;
};
Result<Flows> incast(const IncastSettings& settings);

// Every host to every other, in hosts - 1 rounds: in round r, from 1, host h sends to h + r, so
// that in each round every host receives from one.
struct AllToAllSettings {
  enum class Rounds {
    at_once,    // every flow may start at once
    staggered,  // a host starts its next round when it has received what the last one brings it
  };
  std::uint32_t hosts = 0;  // at least 2
  std::uint64_t bytes = 0;  // of each flow
  Rounds rounds = Rounds::staggered;
  Time start = Time::zero();
};
Result<Flows> all_to_all(const AllToAllSettings& settings);

// Flows between random pairs that arrive independently of one another (a Poisson process).
struct PoissonSettings {
  std::uint32_t hosts = 0;                // at least 2
  std::int64_t link_bits_per_second = 0;  // of each host's link
  double load = 0;  // flows' bytes as a share of what all hosts' links carry, in (0, 1]
  SizeDistribution sizes = SizeDistribution::web_search();
  Time start = Time::zero();     // of the first arrivals
  Time duration = Time::zero();  // no flow starts at start + duration or later
  std::uint64_t seed = 1;
};
Result<Flows> poisson(const PoissonSettings& settings);

// The ring algorithm: the buffer is cut into as many segments as there are hosts; each goes once
// round to be summed and once more to be handed out, 2 (n - 1) steps in all, and every host passes
// on what it received in the step before. A host sends 2 (n - 1) / n times the buffer.
struct RingAllReduceSettings {
  std::vector<std::uint32_t>
      ring;                  // host numbers in the order of the ring, at least 2, all distinct
  std::uint64_t bytes = 0;   // of the buffer that each host has
  std::uint32_t rings = 1;   // that share the buffer, side by side, in this order of hosts
  std::uint32_t chunks = 1;  // into which each step's segment is cut: they follow one another
  Time start = Time::zero();
};
Result<Flows> ring_all_reduce(const RingAllReduceSettings& settings);

// Delays each start by a time drawn uniformly from [0, jitter), as real hosts never start together.
// A flow that waits for another is delayed only in its own start, which rarely decides.
struct JitterSettings {
  enum class Per { flow, host };  // host: all flows of one source are delayed alike
  Time jitter = Time::zero();
  Per per = Per::flow;
  std::uint64_t seed = 1;
};
Result<void> add_jitter(Flows& flows, const JitterSettings& settings);

// Cuts each flow into `parts` of nearly the same length, each a flow of its own beside the others,
// as applications do that share a message among several queue pairs. A part waits for the same part
// of what its flow waits for. A flow of fewer bytes than parts becomes as many as it has bytes.
// Returns where each flow's parts begin, and their number in all.
Result<std::vector<std::uint32_t>> split(Flows& flows, std::uint32_t parts);

// Puts `more` behind `flows`; what waits in `more` still waits for the same flow.
Result<void> append(Flows& flows, const Flows& more);

}  // namespace tulle::workload
