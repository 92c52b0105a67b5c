#include "study/workload/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tulle::workload {
namespace {

double sample_mean(const SizeDistribution& sizes, std::uint64_t seed, int count) {
  Random random(seed);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(sizes.sample(random));
  return sum / count;
}

// Returns the share of samples of at most this many bytes.
double share_up_to(const SizeDistribution& sizes, double bytes, std::uint64_t seed, int count) {
  Random random(seed);
  int below = 0;
  for (int i = 0; i < count; ++i) below += static_cast<double>(sizes.sample(random)) <= bytes;
  return static_cast<double>(below) / count;
}

TEST(SizeDistribution, MeansAreThoseOfThePoints) {
  EXPECT_NEAR(SizeDistribution::web_search().mean_bytes(), 1'711'250, 1);
  EXPECT_NEAR(SizeDistribution::hadoop().mean_bytes(), 120'421, 1);
}

TEST(SizeDistribution, SamplesHaveTheMean) {
  // The standard deviation of Hadoop's sizes is 5.6 times their mean, which is 0.28 % of the mean
  // for this many samples.
  constexpr std::uint64_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const auto& sizes : {SizeDistribution::web_search(), SizeDistribution::hadoop()}) {
    EXPECT_NEAR(sample_mean(sizes, seed, 4'000'000) / sizes.mean_bytes(), 1, 0.01);
  }
}

TEST(SizeDistribution, SamplesFollowEveryPoint) {
  constexpr std::uint64_t seed = 12;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  for (const auto& sizes : {SizeDistribution::web_search(), SizeDistribution::hadoop()}) {
    for (const auto& point : sizes.points()) {
      EXPECT_NEAR(share_up_to(sizes, point.bytes, seed, 50'000), point.cumulative_percent / 100,
                  0.01);
    }
  }
}

TEST(SizeDistribution, SameSeedSameSizes) {
  Random one(5);
  Random two(5);
  const auto sizes = SizeDistribution::hadoop();
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(sizes.sample(one), sizes.sample(two));
}

TEST(SizeDistribution, FixedIsAlwaysTheSame) {
  auto sizes = SizeDistribution::fixed(4'097);
  ASSERT_TRUE(sizes);
  EXPECT_EQ(sizes->mean_bytes(), 4'097);
  Random random(6);
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(sizes->sample(random), 4'097u);
  EXPECT_FALSE(SizeDistribution::fixed(0));
}

TEST(SizeDistribution, StepsAreFlowsOfExactlyOneSize) {
  auto sizes = SizeDistribution::from_points({{100, 25}, {100, 50}, {300, 50}, {300, 100}});
  ASSERT_TRUE(sizes);
  EXPECT_DOUBLE_EQ(sizes->mean_bytes(), 200);
  EXPECT_NEAR(share_up_to(*sizes, 100, 7, 20'000), 0.5, 0.02);
  Random random(7);
  for (int i = 0; i < 1'000; ++i) {
    const std::uint64_t bytes = sizes->sample(random);
    ASSERT_TRUE(bytes == 100 || bytes == 300) << bytes;
  }
}

TEST(SizeDistribution, ReadsCsv) {
  for (const char* text :
       {"0,0\n1000, 50\n2000,100\n", "bytes,percent\r\n0,0\r\n1e3,50\r\n2000,100",
        "# mine\n\n0,0\n1000,50 # half\n2000,100.0\n"}) {
    auto sizes = SizeDistribution::from_csv(text, "sizes.csv");
    ASSERT_TRUE(sizes) << sizes.error().message;
    EXPECT_EQ(sizes->points(),
              (std::vector<SizeDistribution::Point>{{0, 0}, {1000, 50}, {2000, 100}}));
    EXPECT_DOUBLE_EQ(sizes->mean_bytes(), 1'000);
  }
}

TEST(SizeDistribution, SaysInOneLineWhatIsWrong) {
  const struct {
    const char* text;
    const char* begins;
  } cases[] = {
      {"", "f.csv:1: there are no points"},
      {"bytes,percent\n", "f.csv:1: there are no points"},
      {"0,0\n10\n", "f.csv:2: two columns"},
      {"0,0\n10,5,1\n", "f.csv:2: two columns"},
      {"0,0\nx,5\n", "f.csv:2: \"x\" is not a number"},
      {"0,0\n\n10,nan\n", "f.csv:3: \"nan\" is not a number"},
      {"0,0\n-1,5\n", "f.csv:2: a size must"},
      {"0,0\n10,101\n", "f.csv:2: a cumulative percentage must"},
      {"10,0\n5,100\n", "f.csv:2: the size falls"},
      {"0,10\n5,5\n", "f.csv:2: the percentage falls"},
      {"0,0\n5,99\n", "f.csv:2: the last point"},
      {"0,0\n0,100\n", "f.csv:2: the largest size"},
  };
  for (const auto& [text, begins] : cases) {
    auto sizes = SizeDistribution::from_csv(text, "f.csv");
    ASSERT_FALSE(sizes) << text;
    EXPECT_TRUE(sizes.error().message.starts_with(begins)) << sizes.error().message;
    EXPECT_EQ(sizes.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tulle::workload
