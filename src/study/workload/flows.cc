#include "study/workload/flows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/random.h"
#include "study/workload/part.h"

namespace tulle::workload {
namespace {

Error refusal(const char* generator, const std::string& what) {
  return {std::string(generator) + ": " + what};
}

// Checks the settings that all generators have in common.
std::optional<Error> check(const char* generator, std::uint32_t hosts, std::uint64_t bytes,
                           Time start) {
  if (hosts < 2) return refusal(generator, "at least 2 hosts are needed");
  if (bytes == 0) return refusal(generator, "a flow needs at least 1 byte");
  if (start < Time::zero()) return refusal(generator, "the start is before time 0");
  return std::nullopt;
}

std::optional<Error> check_count(const char* generator, double count) {
  if (count <= static_cast<double>(flows_max)) return std::nullopt;
  return refusal(generator, "these settings make more than " + std::to_string(flows_max) +
                                " flows; take fewer hosts or less time");
}

// Shuffles by the method of Fisher and Yates.
void shuffle(std::vector<std::uint32_t>& values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    std::swap(values[left - 1], values[random.below(left)]);
  }
}

std::vector<std::uint32_t> all_hosts(std::uint32_t hosts) {
  std::vector<std::uint32_t> numbers(hosts);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

bool is_derangement(const std::vector<std::uint32_t>& destinations) {
  for (std::uint32_t host = 0; host < destinations.size(); ++host) {
    if (destinations[host] == host) return false;
  }
  return true;
}

}  // namespace

Result<Flows> permutation(const PermutationSettings& settings) {
  if (auto error = check("permutation", settings.hosts, settings.bytes, settings.start)) {
    return *error;
  }
  if (auto error = check_count("permutation", settings.hosts)) return *error;
  Random random(settings.seed);
  std::vector<std::uint32_t> destinations = all_hosts(settings.hosts);
  // One permutation in e has no fixed point. The loop thus ends after a few turns, without a bias.
  do {
    shuffle(destinations, random);
  } while (!is_derangement(destinations));
  Flows flows;
  flows.reserve(settings.hosts);
  for (std::uint32_t host = 0; host < settings.hosts; ++host) {
    flows.push_back({host, destinations[host], settings.bytes, settings.start});
  }
  return flows;
}

Result<Flows> shift(const ShiftSettings& settings) {
  if (auto error = check("shift", settings.hosts, settings.bytes, settings.start)) return *error;
  if (auto error = check_count("shift", settings.hosts)) return *error;
  const std::uint32_t distance = settings.distance % settings.hosts;
  if (distance == 0) {
    return Error{"shift: a distance of " + std::to_string(settings.distance) + " among " +
                 std::to_string(settings.hosts) + " hosts is each host to itself"};
  }
  Flows flows;
  flows.reserve(settings.hosts);
  for (std::uint64_t host = 0; host < settings.hosts; ++host) {
    const auto destination = static_cast<std::uint32_t>((host + distance) % settings.hosts);
    flows.push_back(
        {static_cast<std::uint32_t>(host), destination, settings.bytes, settings.start});
  }
  return flows;
}

Result<Flows> incast(const IncastSettings& settings) {
  if (auto error = check("incast", settings.hosts, settings.bytes, settings.start)) return *error;
  if (auto error = check_count("incast", settings.hosts)) return *error;
  if (settings.senders < 1 || settings.senders >= settings.hosts) {
    return Error{"incast: " + std::to_string(settings.senders) + " senders among " +
                 std::to_string(settings.hosts) + " hosts: take 1 to hosts - 1"};
  }
  if (settings.receiver && *settings.receiver >= settings.hosts) {
    return Error{"incast: receiver " + std::to_string(*settings.receiver) +
                 " is no host: they are 0 to " + std::to_string(settings.hosts - 1)};
  }
  Random random(settings.seed);
  const auto drawn = static_cast<std::uint32_t>(random.below(settings.hosts));
  const std::uint32_t receiver = settings.receiver.value_or(drawn);
  std::vector<std::uint32_t> senders = all_hosts(settings.hosts);
  std::erase(senders, receiver);
  if (settings.senders < senders.size()) {
    shuffle(senders, random);
    senders.resize(settings.senders);
    std::sort(senders.begin(), senders.end());
  }
  Flows flows;
  flows.reserve(senders.size());
  for (const std::uint32_t sender : senders) {
    flows.push_back({sender, receiver, settings.bytes, settings.start});
  }
  return flows;
}

Result<Flows> all_to_all(const AllToAllSettings& settings) {
  if (auto error = check("all_to_all", settings.hosts, settings.bytes, settings.start)) {
    return *error;
  }
  const std::uint64_t hosts = settings.hosts;
  if (auto error = check_count("all_to_all", settings.hosts * (settings.hosts - 1.0))) {
    return *error;
  }
  Flows flows;
  flows.reserve(hosts * (hosts - 1));
  for (std::uint64_t round = 1; round < hosts; ++round) {
    for (std::uint64_t host = 0; host < hosts; ++host) {
      const std::uint64_t destination = (host + round) % hosts;
      std::int32_t after = -1;
      if (settings.rounds == AllToAllSettings::Rounds::staggered && round > 1) {
        const std::uint64_t sent_here = (host + hosts - (round - 1)) % hosts;
        after = static_cast<std::int32_t>((round - 2) * hosts + sent_here);
      }
      flows.push_back({static_cast<std::uint32_t>(host), static_cast<std::uint32_t>(destination),
                       settings.bytes, settings.start, after});
    }
  }
  return flows;
}

Result<Flows> poisson(const PoissonSettings& settings) {
  if (auto error = check("poisson", settings.hosts, 1, settings.start)) return *error;
  if (settings.link_bits_per_second <= 0) return Error{"poisson: the link rate must be above 0"};
  if (!(settings.load > 0 && settings.load <= 1)) {
    return Error{"poisson: the load is a share of the links' rate, above 0 and at most 1"};
  }
  if (settings.duration <= Time::zero()) return Error{"poisson: the duration must be above 0"};
  if (settings.duration > Time::never() - settings.start) {
    return Error{"poisson: the end is later than a time can be (106 days)"};
  }
  const double bytes_per_second =
      settings.load * settings.hosts * (static_cast<double>(settings.link_bits_per_second) / 8);
  const double gap_ps = settings.sizes.mean_bytes() / bytes_per_second * 1e12;
  const double expected = static_cast<double>(settings.duration.ps) / gap_ps;
  if (auto error = check_count("poisson", expected)) return *error;

  Random random(settings.seed);
  Flows flows;
  flows.reserve(static_cast<std::size_t>(expected * 1.01) + 1);
  double elapsed_ps = 0;  // keeps its fraction, for gaps of a few picoseconds
  for (;;) {
    elapsed_ps += random.exponential() * gap_ps;
    if (elapsed_ps >= static_cast<double>(settings.duration.ps)) return flows;
    const auto source = static_cast<std::uint32_t>(random.below(settings.hosts));
    const std::uint64_t further = 1 + random.below(settings.hosts - 1);
    const auto destination = static_cast<std::uint32_t>((source + further) % settings.hosts);
    const Time arrival = Time::picoseconds(static_cast<std::int64_t>(elapsed_ps));
    flows.push_back({source, destination, settings.sizes.sample(random), settings.start + arrival});
  }
}

Result<Flows> ring_all_reduce(const RingAllReduceSettings& settings) {
  const std::vector<std::uint32_t>& ring = settings.ring;
  constexpr std::size_t hosts_max = std::numeric_limits<std::uint32_t>::max();
  const auto hosts = static_cast<std::uint32_t>(std::min(ring.size(), hosts_max));
  if (auto error = check("ring_all_reduce", hosts, settings.bytes, settings.start)) return *error;
  if (settings.rings < 1) return Error{"ring_all_reduce: at least 1 ring is needed"};
  if (settings.chunks < 1) return Error{"ring_all_reduce: at least 1 chunk is needed"};
  std::vector<std::uint32_t> sorted = ring;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return Error{"ring_all_reduce: host " + std::to_string(*twice) + " is in the ring twice"};
  }
  const std::uint32_t steps = 2 * (hosts - 1);
  // Each host sends one piece per lane and step. A lane is one chunk of one ring.
  const double pieces = static_cast<double>(settings.rings) * settings.chunks * hosts;
  if (auto error = check_count("ring_all_reduce", pieces * 2 * (hosts - 1.0))) return *error;
  if (settings.bytes < static_cast<std::uint64_t>(pieces)) {
    return Error{"ring_all_reduce: " + std::to_string(settings.bytes) +
                 " bytes cannot be cut into " + std::to_string(static_cast<std::uint64_t>(pieces)) +
                 " pieces; take fewer rings or chunks"};
  }
  const std::uint32_t lanes = settings.rings * settings.chunks;
  Flows flows;
  flows.reserve(static_cast<std::size_t>(steps) * lanes * hosts);
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (std::uint32_t place = 0; place < hosts; ++place) {
        // In step 0 a host sends its own segment, in each later step the one that its neighbour
        // sent in the step before.
        const std::uint32_t segment = (place + 2 * hosts - step) % hosts;
        const std::uint64_t bytes = part_of(settings.bytes, std::uint64_t{segment} * lanes + lane,
                                            std::uint64_t{hosts} * lanes);
        const std::uint32_t before = (place + hosts - 1) % hosts;
        const std::int64_t after = step == 0 ? -1
                                             : (std::int64_t{step} - 1) * lanes * hosts +
                                                   std::int64_t{lane} * hosts + before;
        flows.push_back({ring[place], ring[(place + 1) % hosts], bytes, settings.start,
                         static_cast<std::int32_t>(after)});
      }
    }
  }
  return flows;
}

Result<void> add_jitter(Flows& flows, const JitterSettings& settings) {
  if (settings.jitter < Time::zero()) return Error{"jitter: it must not be negative"};
  if (settings.jitter == Time::zero()) return {};
  for (const Flow& flow : flows) {
    if (settings.jitter > Time::never() - flow.start) {
      return Error{"jitter: a start would be later than a time can be (106 days)"};
    }
  }
  const auto bound = static_cast<std::uint64_t>(settings.jitter.ps);
  const auto draw = [bound](Random& random) {
    return Time::picoseconds(static_cast<std::int64_t>(random.below(bound)));
  };
  Random random(settings.seed);
  for (Flow& flow : flows) {
    if (settings.per == JitterSettings::Per::flow) {
      flow.start += draw(random);
    } else {
      // Each host has its own random stream, so that its delay does not depend on the order of the
      // flows.
      Random of_host(Random(settings.seed).next() ^ flow.source);
      flow.start += draw(of_host);
    }
  }
  return {};
}

Result<std::vector<std::uint32_t>> split(Flows& flows, std::uint32_t parts) {
  if (parts == 0) return refusal("split", "at least 1 part is needed");
  if (auto error = check_count("split", static_cast<double>(flows.size()) * parts)) return *error;
  std::vector<std::uint32_t> first;
  Flows cut;
  for (const Flow& flow : flows) {
    const std::uint64_t count = std::clamp<std::uint64_t>(flow.bytes, 1, parts);
    first.push_back(static_cast<std::uint32_t>(cut.size()));
    for (std::uint32_t i = 0; i < count; ++i) {
      Flow& part = cut.emplace_back(flow);
      part.bytes = part_of(flow.bytes, i, count);
      if (flow.after < 0) continue;
      const auto before = static_cast<std::size_t>(flow.after);
      part.after =
          static_cast<std::int32_t>(first[before] + i % (first[before + 1] - first[before]));
    }
  }
  first.push_back(static_cast<std::uint32_t>(cut.size()));
  flows = std::move(cut);
  return first;
}

Result<std::vector<std::uint32_t>> deal_over_planes(Flows& flows, std::uint32_t planes,
                                                    bool sprays) {
  if (planes == 0) return refusal("planes", "at least 1 plane is needed");
  const double most = static_cast<double>(flows.size()) * (sprays ? planes : 1);
  if (auto error = check_count("planes", most)) return *error;
  std::vector<std::uint32_t> first, plane_of;
  std::map<std::uint32_t, std::uint32_t> turn;  // by source
  Flows cut;
  const auto add = [&](const Flow& flow, std::uint32_t plane, std::uint64_t bytes) -> Flow& {
    Flow& part = cut.emplace_back(flow);
    part.source = flow.source * planes + plane;
    part.destination = flow.destination * planes + plane;
    part.bytes = bytes;
    return part;
  };
  for (const Flow& flow : flows) {
    const bool waits = flow.after >= 0;
    const auto before = static_cast<std::size_t>(waits ? flow.after : 0);
    first.push_back(static_cast<std::uint32_t>(cut.size()));
    if (!sprays) {
      plane_of.push_back(waits ? plane_of[before] : turn[flow.source]++ % planes);
      Flow& part = add(flow, plane_of.back(), flow.bytes);
      if (waits) part.after = static_cast<std::int32_t>(first[before]);
      continue;
    }
    std::uint64_t count = (flow.bytes + spray_bytes_min - 1) / spray_bytes_min;
    count = std::clamp<std::uint64_t>(count, 1, planes);
    if (waits) count = std::min<std::uint64_t>(count, first[before + 1] - first[before]);
    for (std::uint32_t plane = 0; plane < count; ++plane) {
      Flow& part = add(flow, plane, part_of(flow.bytes, plane, count));
      if (waits) part.after = static_cast<std::int32_t>(first[before] + plane);
    }
  }
  first.push_back(static_cast<std::uint32_t>(cut.size()));
  flows = std::move(cut);
  return first;
}

Result<void> append(Flows& flows, const Flows& more) {
  if (more.size() > flows_max - std::min(flows_max, flows.size())) {
    return Error{"append: together these are more than " + std::to_string(flows_max) + " flows"};
  }
  const auto offset = static_cast<std::int32_t>(flows.size());
  const std::size_t count = more.size();  // `more` may be `flows` itself
  flows.reserve(flows.size() + count);
  for (std::size_t i = 0; i < count; ++i) {
    Flow flow = more[i];
    if (flow.after >= 0) flow.after += offset;
    flows.push_back(flow);
  }
  return {};
}

}  // namespace tulle::workload
