#include "study/workload/flow_file.h"

#include <gtest/gtest.h>

#include <string>

namespace tulle::workload {
namespace {

Flows parsed(std::string_view text, std::uint32_t hosts = 8) {
  auto flows = parse_flows(text, "flows.csv", hosts);
  EXPECT_TRUE(flows) << flows.error().message;
  return flows ? *flows : Flows{};
}

TEST(FlowFile, ReadsEveryColumnInAnyOrder) {
  const Flows expected = {{0, 1, 1'000'000, Time::zero()},
                          {1, 2, 5, Time::picoseconds(1'500), 0},
                          {7, 0, 6, Time::nanoseconds(20)}};
  EXPECT_EQ(parsed("src,dst,bytes,start_ns,after\n0,1,1000000,0,\n1,2,5,1.5,0\n7,0,6,20,-1\n"),
            expected);
  EXPECT_EQ(parsed("after,bytes,start_ns,dst,src\n,1000000,0,1,0\n0,5,1.500,2,1\n,6,20,0,7"),
            expected);
}

TEST(FlowFile, PassesOverCommentsBlanksAndCarriageReturns) {
  EXPECT_EQ(parsed("# made by hand\r\nsrc, dst, bytes, start_ns\r\n\r\n 0 , 1 , 9 , 3 # one\r\n"),
            (Flows{{0, 1, 9, Time::nanoseconds(3)}}));
  EXPECT_TRUE(parsed("src,dst,bytes,start_ns\n").empty());
}

TEST(FlowFile, RoundTrips) {
  const RingAllReduceSettings ring{.ring = {0, 1, 2, 5}, .bytes = 1'000, .chunks = 2};
  const PoissonSettings arrivals{.hosts = 8,
                                 .link_bits_per_second = 100'000'000'000,
                                 .load = 0.5,
                                 .sizes = SizeDistribution::hadoop(),
                                 .duration = Time::milliseconds(1)};
  for (auto flows : {ring_all_reduce(ring), poisson(arrivals), Result<Flows>(Flows{})}) {
    ASSERT_TRUE(flows);
    const std::string text = format_flows(*flows);
    EXPECT_EQ(parsed(text), *flows);
    EXPECT_EQ(format_flows(parsed(text)), text);
  }
}

TEST(FlowFile, WritesWhatAPersonWouldWrite) {
  EXPECT_EQ(format_flows({{0, 1, 10, Time::zero()}, {2, 3, 11, Time::picoseconds(4'030)}}),
            "src,dst,bytes,start_ns\n0,1,10,0\n2,3,11,4.030\n");
  EXPECT_EQ(format_flows({{0, 1, 10}, {1, 0, 11, Time::zero(), 0}}),
            "src,dst,bytes,start_ns,after\n0,1,10,0,\n1,0,11,0,0\n");
}

TEST(FlowFile, SaysInOneLineWhatIsWrongAndWhatToDo) {
  const std::string names = "src,dst,bytes,start_ns\n";
  const std::string with_after = "src,dst,bytes,start_ns,after\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "flows.csv:1: no columns; the first line is src,dst,bytes,start_ns"},
      {"0,1,10,0\n", "flows.csv:1: \"0\" is no column; name them"},
      {"src,dst,bytes\n", "flows.csv:1: there is no column \"start_ns\"; name them"},
      {"src,dst,src,bytes,start_ns\n", "flows.csv:1: column \"src\" is there twice"},
      {names + "0,1,10\n", "flows.csv:2: 3 columns where the first line names 4"},
      {names + "x,1,10,0\n", "flows.csv:2: src is not such a number: \"x\"; give a host's number"},
      {names + "0,-1,10,0\n", "flows.csv:2: dst is negative: \"-1\"; give"},
      {names + "0,1,10,0\n0,1,,0\n", "flows.csv:3: bytes is not such a number: \"\"; give"},
      {names + "0,1,1.5,0\n", "flows.csv:2: bytes is not such a number: \"1.5\"; give"},
      {names + "0,1,-5,0\n", "flows.csv:2: bytes is negative"},
      {names + "0,1,0,0\n", "flows.csv:2: a flow of 0 bytes; give at least 1"},
      {names + "0,1,99999999999999999999,0\n", "flows.csv:2: bytes is not such a number"},
      {names + "0,1,1,-3\n", "flows.csv:2: start_ns is negative: \"-3\"; give nanoseconds"},
      {names + "0,1,1,-0.5\n", "flows.csv:2: start_ns is negative"},
      {names + "0,1,1,0.0001\n", "flows.csv:2: start_ns is not such a number: \"0.0001\""},
      {names + "0,1,1,1e3\n", "flows.csv:2: start_ns is not such a number"},
      {names + "0,1,1,1.-5\n", "flows.csv:2: start_ns is not such a number"},
      {names + "0,1,1,9223372036854776\n", "flows.csv:2: start_ns is not such a number"},
      {names + "8,1,1,0\n", "flows.csv:2: there is no host 8; hosts are 0 to 7"},
      {names + "# c\n\n1,9,1,0\n", "flows.csv:4: there is no host 9; hosts are 0 to 7"},
      {names + "3,3,1,0\n", "flows.csv:2: host 3 sends to itself; name another dst"},
      {with_after + "0,1,1,0,x\n", "flows.csv:2: after is not such a number: \"x\"; give"},
      {with_after + "0,1,1,0,-2\n", "flows.csv:2: after is negative"},
      {with_after + "0,1,1,0,0\n", "flows.csv:2: after 0 is no earlier flow (this is flow 0"},
      {with_after + "0,1,1,0,\n2,3,1,0,0\n",
       "flows.csv:3: flow 0 arrives at host 1, but this flow's src is 2; a flow waits"},
  };
  for (const auto& [text, begins] : cases) {
    auto flows = parse_flows(text, "flows.csv", 8);
    ASSERT_FALSE(flows) << text;
    EXPECT_TRUE(flows.error().message.starts_with(begins)) << flows.error().message;
    EXPECT_EQ(flows.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tulle::workload
