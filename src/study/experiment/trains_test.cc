// Frames that stand for several packets take the time of these.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

std::string text_of(const std::string& fabric, std::uint32_t train, const std::string& traffic) {
  return fmt::format(
      "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n"
      "link_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n"
      "[fabric]\nkind = \"{}\"\ncut_through = true\nswitch_latency = \"200ns\"\n"
      "[host]\ntrain = {}\n[traffic]\n{}",
      fabric, train, traffic);
}

constexpr char long_messages[] = "pattern = \"shift\"\ndistance = 2\nbytes = \"16MB\"\n";

// One message goes alone, since otherwise acknowledgements of the other direction share its links:
// 30 bytes for each packet on InfiniBand, and 84 on Ethernet, of which trains have fewer.
TEST(Trains, ALongMessageTakesItsPacketsTime) {
  const std::string alone = "pattern = \"incast\"\nreceiver = 0\nsenders = 1\nbytes = \"16MB\"\n";
  for (const std::string fabric : {"roce", "infiniband"}) {
    const auto packets = outcome_of(text_of(fabric, 1, alone));
    for (const std::uint32_t train : {2u, 7u, 15u}) {
      const auto trains = outcome_of(text_of(fabric, train, alone));
      EXPECT_NEAR(number(trains, "fct_us.min") / number(packets, "fct_us.min"), 1, 0.005)
          << fabric << ", " << train;
      EXPECT_NEAR(number(trains, "slowdown.min"), 1, 0.005) << "the ideal time has trains too";
      EXPECT_LT(number(trains, "packet_hops"), 1.01 * number(packets, "packet_hops") / train + 8);
      EXPECT_EQ(number(trains, "train"), train);
    }
  }
}

// A frame of trains has the headers of all its packets, in links.csv and on the link.
TEST(Trains, BytesOnLinksAreThoseOfThePackets) {
  const auto packets = outcome_of(text_of("infiniband", 1, long_messages));
  const auto trains = outcome_of(text_of("infiniband", 15, long_messages));
  const auto bytes = [](const report::Outcome& outcome) {
    double sum = 0;
    for (const auto& row : outcome.links.rows) {
      sum += report::exact(*report::find(outcome.links, row, "bytes"));
    }
    return sum;
  };
  // Acknowledgements are fewer: each has 30 bytes beside a packet's 4,126.
  EXPECT_NEAR(bytes(trains) / bytes(packets), 1 - 30.0 / (4'126 + 30), 0.002);
}

TEST(Trains, TwoSendersShareALinkAsWithPackets) {
  const std::string incast = "pattern = \"incast\"\nreceiver = 0\nsenders = 3\nbytes = \"16MB\"\n";
  const auto packets = outcome_of(text_of("roce", 1, incast));
  const auto trains = outcome_of(text_of("roce", 15, incast));
  EXPECT_NEAR(number(trains, "end_us") / number(packets, "end_us"), 1, 0.01);
}

TEST(Trains, TcpTakesTrainsOfItsSegments) {
  const std::string tcp = std::string(long_messages) +
                          "[[variant]]\nname = \"tcp\"\nhost.transport = \"tcp\"\n"
                          "fabric.flow_control = \"none\"\n";
  const auto packets = outcome_of(text_of("roce", 1, tcp));
  const auto trains = outcome_of(text_of("roce", 15, tcp));
  EXPECT_EQ(number(trains, "train"), 7) << "segments of 8,960 bytes, in frames of 62,720";
  EXPECT_NEAR(number(trains, "end_us") / number(packets, "end_us"), 1, 0.05);
}

}  // namespace
}  // namespace tulle::experiment
