// Random scenarios in virtual time, each from a seed. See `--help`.

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/scenarios/broken.h"
#include "tests/scenarios/srd_world.h"
#include "tests/scenarios/streams.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {
namespace {

struct Arguments {
  std::uint64_t first = 1;
  std::uint64_t seeds = 1'000;
  bool verbose = false;
  bool trace = false;
  bool selective = false;
  bool srd = false;
  bool iwarp = false;
  bool streams = false;
  bool extended = false;
};

constexpr const char* usage =
    "sim_check [--seeds N] [--first S] [--seed S]\n"
    "          [--selective-repeat | --srd | --iwarp | --streams | --extended] "
    "[--verbose] "
    "[--trace]\n"
    "Plays N random scenarios (1000) from seed S (1) on, or just the one of --seed: adapters in "
    "virtual time under\n"
    "loss, duplication, reordering, damage and delay, held to what the verbs promise. --trace "
    "prints every packet, "
    "--selective-repeat has reliable connections recover so instead of by go-back-N, --srd plays "
    "the scalable reliable datagram's, --iwarp has reliable connections be iWARP's, over TCP, "
    "--streams plays TCP's sockets, --extended has some reliable connections be extended ones "
    "(XRC) and "
    "some WRITEs atomic.\n";

bool read_arguments(int count, char** values, Arguments& out) {
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    if (name == "--verbose" || name == "--trace") {
      out.verbose = true;
      out.trace = out.trace || name == "--trace";
      continue;
    }
    if (name == "--selective-repeat") {
      out.selective = true;
      continue;
    }
    if (name == "--srd") {
      out.srd = true;
      continue;
    }
    if (name == "--iwarp") {
      out.iwarp = true;
      continue;
    }
    if (name == "--extended") {
      out.extended = true;
      continue;
    }
    if (name == "--streams") {
      out.streams = true;
      continue;
    }
    if (i + 1 == count) return false;
    char* end = nullptr;
    const std::uint64_t number = std::strtoull(values[++i], &end, 10);
    if (*end != '\0' || end == values[i]) return false;
    if (name == "--seeds") {
      out.seeds = number;
    } else if (name == "--first") {
      out.first = number;
    } else if (name == "--seed") {
      out.first = number;
      out.seeds = 1;
    } else {
      return false;
    }
  }
  return true;
}

void add(const Outcome& outcome, Outcome& total, bool verbose) {
  total.events += outcome.events;
  total.completions += outcome.completions;
  total.retransmitted += outcome.retransmitted;
  if (!verbose) return;
  std::printf("  digest %016" PRIx64 ", %" PRIu64 " events, %" PRIu64 " completions, %" PRIu64
              " packets sent again\n",
              outcome.digest, outcome.events, outcome.completions, outcome.retransmitted);
}

bool play_stream(std::uint64_t seed, const Arguments& arguments, Outcome& total) {
  try {
    add(play_streams(seed), total, arguments.verbose);
    return true;
  } catch (const Broken& broken) {
    std::printf("seed %" PRIu64 ": %s\n  again with: ./dev sim-check --seed %" PRIu64
                " --streams --verbose\n",
                seed, broken.what(), seed);
    return false;
  }
}

bool play(std::uint64_t seed, const Arguments& arguments, Outcome& total) {
  const bool verbose = arguments.verbose;
  Plan plan = draw_plan(seed);
  if (arguments.selective) repeat_selectively(plan);
  if (arguments.iwarp) go_over_iwarp(plan);
  if (arguments.extended) extend(plan);
  if (verbose) std::fputs(describe(plan).c_str(), stdout);
  try {
    World world(plan);
    if (arguments.trace) world.trace();
    const Outcome outcome = world.run();
    add(outcome, total, verbose);
    return true;
  } catch (const Broken& broken) {
    std::printf("seed %" PRIu64 ": %s\n%s  again with: ./dev sim-check --seed %" PRIu64
                "%s --verbose\n",
                seed, broken.what(), describe(plan).c_str(), seed,
                arguments.selective  ? " --selective-repeat"
                : arguments.iwarp    ? " --iwarp"
                : arguments.extended ? " --extended"
                                     : "");
    return false;
  }
}

bool play_srd(std::uint64_t seed, const Arguments& arguments, Outcome& total) {
  SrdWorld world(seed);
  if (arguments.verbose) world.describe();
  if (arguments.trace) world.trace();
  try {
    const SrdWorld::Outcome outcome = world.run();
    total.events += outcome.events;
    total.completions += outcome.completions;
    total.retransmitted += outcome.retransmitted;
    if (arguments.verbose) {
      std::printf("  digest %016" PRIx64 ", %" PRIu64 " events, %" PRIu64 " completions, %" PRIu64
                  " failures, %" PRIu64 " packets sent again\n",
                  outcome.digest, outcome.events, outcome.completions, outcome.failures,
                  outcome.retransmitted);
    }
    return true;
  } catch (const Broken& broken) {
    std::printf("seed %" PRIu64 ": %s\n", seed, broken.what());
    world.describe();
    std::printf("  again with: ./dev sim-check --srd --seed %" PRIu64 " --verbose\n", seed);
    return false;
  }
}

}  // namespace
}  // namespace tulle::scenarios

int main(int count, char** values) {
  using namespace tulle::scenarios;
  Arguments arguments;
  if (!read_arguments(count, values, arguments)) {
    std::fputs(usage, stderr);
    return 2;
  }
  std::uint64_t failed = 0;
  Outcome total;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i) {
    const std::uint64_t seed = arguments.first + i;
    const auto one = arguments.srd ? play_srd : arguments.streams ? play_stream : play;
    failed += one(seed, arguments, total) ? 0 : 1;
    std::fflush(stdout);
  }
  std::printf("%" PRIu64 " events, %" PRIu64 " completions, %" PRIu64 " packets sent again\n",
              total.events, total.completions, total.retransmitted);
  std::printf("%" PRIu64 " passed, %" PRIu64 " failed\n", arguments.seeds - failed, failed);
  return failed == 0 ? 0 : 1;
}
