// An all-reduce on a fat tree is as fast as the paths of its messages differ (docs/fidelity.md,
// "More paths for an all-reduce").

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

constexpr int seeds = 3;

// Returns the mean time over seeds, in microseconds, of rings on a fat tree of 54 hosts that could
// carry all of them at full rate.
double mean_time(std::uint32_t rings, const std::string& path) {
  double sum = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto outcome = outcome_of(fmt::format(
        "seed = {}\n[topology]\nkind = \"fat-tree\"\nk = 6\nlink_rate = \"400Gbps\"\n"
        "link_delay = \"100ns\"\n[traffic]\npattern = \"collective\"\nalgorithm = \"ring\"\n"
        "bytes = \"12MiB\"\nchannels = {}\nservers = {{ gpus = 2, adapters = 2 }}\n"
        "[fabric]\nkind = \"roce\"\nflow_control = \"pfc\"\npath = \"{}\"\n[host]\n"
        "recovery = \"selective-repeat\"\nreordering = 64\nin_flight = 256\n",
        seed, rings, path));
    EXPECT_EQ(report::unfinished(outcome), "");
    sum += number(outcome, "job_us");
  }
  return sum / seeds;
}

// A ring is as slow as the worst of the links that its messages share, and a hash puts two flows of
// full rate on one link almost for certain. More rings on an adapter have more queue pairs, and
// paths of their own. Packets that take a path each leave the links evenly filled.
TEST(AllReducePaths, MorePathsTakeLessTime) {
  const double hashed = mean_time(2, "flow");
  const double more_rings = mean_time(16, "flow");
  const double sprayed = mean_time(2, "packet");
  EXPECT_LT(more_rings, 0.9 * hashed);
  EXPECT_LT(sprayed, 0.9 * more_rings);
  EXPECT_LT(sprayed, 0.6 * hashed);
}

}  // namespace
}  // namespace tulle::experiment
