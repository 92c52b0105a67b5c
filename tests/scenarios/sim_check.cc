// Plays random scenarios in virtual time, each from a seed. See `--help`.

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

#include "tests/scenarios/broken.h"
#include "tests/scenarios/srd_world.h"
#include "tests/scenarios/streams.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {
namespace {

// Transports that can be played. All but srd and streams play the same plans.
enum class Transport { rc, selective_repeat, iwarp, extended, srd, streams };

const std::map<std::string, Transport> transports = {
    {"rc", Transport::rc},       {"selective-repeat", Transport::selective_repeat},
    {"iwarp", Transport::iwarp}, {"xrc", Transport::extended},
    {"srd", Transport::srd},     {"streams", Transport::streams},
};

struct Arguments {
  std::uint64_t first = 1;
  std::uint64_t seeds = 1'000;
  bool verbose = false;
  bool trace = false;
  Transport transport = Transport::rc;
};

const std::string& name_of(Transport wanted) {
  for (const auto& [name, transport] : transports) {
    if (transport == wanted) return name;
  }
  std::abort();
}

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("--seeds", arguments.seeds, "how many scenarios (1000)")
      ->check(CLI::PositiveNumber);
  app.add_option("--first", arguments.first, "the first one's seed (1)");
  app.add_option_function<std::uint64_t>(
      "--seed",
      [&arguments](std::uint64_t seed) {
        arguments.first = seed;
        arguments.seeds = 1;
      },
      "play this one alone");
  app.add_option("--transport", arguments.transport,
                 "rc: reliable, unreliable connections and datagrams; selective-repeat: reliable "
                 "connections recover so and not by go-back-N; iwarp: they are iWARP's, over TCP; "
                 "xrc: some are extended ones, and some WRITEs atomic; srd: scalable reliable "
                 "datagrams alone; streams: TCP's sockets alone")
      ->transform(CLI::CheckedTransformer(transports))
      ->option_text("NAME [rc]");
  app.add_flag("--verbose", arguments.verbose, "print every plan and its outcome");
  app.add_flag("--trace", arguments.trace, "print every packet too");
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
    std::printf("seed %" PRIu64 ": %s\n", seed, broken.what());
    return false;
  }
}

bool play(std::uint64_t seed, const Arguments& arguments, Outcome& total) {
  const bool verbose = arguments.verbose;
  Plan plan = draw_plan(seed);
  if (arguments.transport == Transport::selective_repeat) repeat_selectively(plan);
  if (arguments.transport == Transport::iwarp) go_over_iwarp(plan);
  if (arguments.transport == Transport::extended) extend(plan);
  if (verbose) std::fputs(describe(plan).c_str(), stdout);
  try {
    World world(plan);
    if (arguments.trace) world.trace();
    const Outcome outcome = world.run();
    add(outcome, total, verbose);
    return true;
  } catch (const Broken& broken) {
    std::printf("seed %" PRIu64 ": %s\n%s", seed, broken.what(), describe(plan).c_str());
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
    return false;
  }
}

bool play_one(std::uint64_t seed, const Arguments& arguments, Outcome& total) {
  const auto one = arguments.transport == Transport::srd       ? play_srd
                   : arguments.transport == Transport::streams ? play_stream
                                                               : play;
  if (one(seed, arguments, total)) return true;
  std::printf("  again with: ./dev sim-check --transport %s --seed %" PRIu64 " --verbose\n",
              name_of(arguments.transport).c_str(), seed);
  return false;
}

}  // namespace
}  // namespace tulle::scenarios

int main(int count, char** values) try {
  using namespace tulle::scenarios;
  Arguments arguments;
  CLI::App app(
      "Plays random scenarios in virtual time, each from a seed: adapters under loss, duplication, "
      "reordering, damage and delay, held to what the verbs promise.",
      "sim_check");
  declare(app, arguments);
  CLI11_PARSE(app, count, values);
  arguments.verbose = arguments.verbose || arguments.trace;
  std::uint64_t failed = 0;
  Outcome total;
  for (std::uint64_t i = 0; i < arguments.seeds; ++i) {
    const std::uint64_t seed = arguments.first + i;
    failed += play_one(seed, arguments, total) ? 0 : 1;
    std::fflush(stdout);
  }
  std::printf("%" PRIu64 " events, %" PRIu64 " completions, %" PRIu64 " packets sent again\n",
              total.events, total.completions, total.retransmitted);
  std::printf("%" PRIu64 " passed, %" PRIu64 " failed\n", arguments.seeds - failed, failed);
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "sim_check: %s\n", error.what());
  return 1;
}
