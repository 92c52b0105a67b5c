#include "study/traces/chakra_test.h"

#include <gtest/gtest.h>

#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

constexpr std::uint64_t metadata = 1, load = 2, computation = 4, send = 5, receive = 6,
                        collective = 7;
constexpr std::uint64_t all_reduce = 0, reduce = 1, all_gather = 2, all_to_all = 6, barrier = 9;

Settings settings_for(std::uint32_t gpus) {
  Settings settings;
  settings.servers = servers_of(gpus);
  return settings;
}

// Reads a trace with a file for each rank.
std::string chakra(const std::vector<std::vector<WrittenNode>>& ranks,
                   const Settings& settings = settings_for(4)) {
  std::vector<std::string> texts;
  texts.reserve(ranks.size());
  for (const auto& nodes : ranks) texts.push_back(protobuf_of(nodes));
  std::vector<File> files;
  for (std::uint32_t rank = 0; rank < texts.size(); ++rank) {
    files.push_back({fmt::format("t.{}.et", rank), texts[rank], rank});
  }
  return read(files, settings);
}

WrittenNode node(std::uint64_t id, std::uint64_t type, std::vector<std::uint64_t> data = {}) {
  WrittenNode made;
  made.id = id;
  made.type = type;
  made.data = std::move(data);
  return made;
}

WrittenNode compute(std::uint64_t id, std::uint64_t us, std::vector<std::uint64_t> data = {}) {
  WrittenNode made = node(id, computation, std::move(data));
  made.duration_us = us;
  return made;
}

WrittenNode all_to_all_of(std::uint64_t id, std::uint64_t bytes,
                          std::vector<std::uint64_t> data = {}) {
  return node(id, collective, std::move(data))
      .with("comm_type", all_to_all)
      .with("comm_size", bytes);
}

TEST(Chakra, MessagesAndComputationsBecomeAGraph) {
  EXPECT_EQ(
      chakra({{compute(7, 3),
               node(8, send, {7}).with("comm_dst", 1).with("comm_size", 64).with("comm_tag", 2)},
              {compute(2, 5, {1}),
               node(1, receive).with("comm_src", 0).with("comm_size", 64).with("comm_tag", 2)}}),
      "0: 0 computes 3000 ns\n1: 0->1 64 after 0\n2: 1 computes 5000 ns after 1\n");
}

TEST(Chakra, CollectivesBecomeMessages) {
  EXPECT_EQ(chakra({{all_to_all_of(5, 8)}, {all_to_all_of(9, 8), compute(1, 1, {9})}}),
            "0: 0->1 4 by 1\n1: 1->0 4 by 1\n2: 0 joins after 0 1\n3: 1 joins after 0 1\n"
            "4: 1 computes 1000 ns after 3\n");
  // comm_size is what a rank has before: of an all-gather among two, each sends it all.
  const auto gather = node(0, collective).with("comm_type", all_gather).with("comm_size", 6);
  EXPECT_EQ(chakra({{gather}, {gather}}),
            "0: 0->1 6 by 1\n1: 1->0 6 by 1\n2: 0 joins after 0 1\n3: 1 joins after 0 1\n");
  const auto wait = node(0, collective).with("comm_type", barrier);
  EXPECT_TRUE(chakra({{wait}, {wait}}).starts_with("0: 1->0 1 by 1\n")) << "a barrier";
}

// 2^44 bytes of each rank are 2^45 together.
TEST(Chakra, AllRanksBytesOfAnAllGatherHaveABound) {
  const auto gather =
      node(0, collective).with("comm_type", all_gather).with("comm_size", std::uint64_t{1} << 44);
  EXPECT_NE(chakra({{gather}, {gather}}).find("of each of 2 ranks are too many"),
            std::string::npos);
}

TEST(Chakra, ABarrierMayFollowAnotherCollective) {
  const std::vector<WrittenNode> nodes = {all_to_all_of(1, 8),
                                          node(2, collective, {1}).with("comm_type", barrier)};
  // Of two bytes, each goes to one rank, which sends it back.
  EXPECT_EQ(chakra({nodes, nodes}),
            "0: 0->1 4 by 1\n1: 1->0 4 by 1\n2: 0 joins after 0 1\n3: 1 joins after 0 1\n"
            "4: 1->0 1 by 1 after 3\n5: 0->1 1 by 1 after 4 2\n"
            "6: 0->1 1 by 2 after 2\n7: 1->0 1 by 2 after 6 3\n"
            "8: 0 joins after 5 6 7\n9: 1 joins after 4 5 7\n");
}

TEST(Chakra, AFileWithoutARankIsThatOfAllRanks) {
  const std::string text = protobuf_of(
      {node(0, send).with("comm_src", 1).with("comm_dst", 0).with("comm_size", 4),
       node(1, receive).with("comm_src", 1).with("comm_dst", 0), all_to_all_of(2, 6, {0, 1})});
  EXPECT_EQ(read("t.et", text, 2),
            "0: 1->0 4\n1: 0->1 3 by 1 after 0\n2: 1->0 3 by 1 after 0\n"
            "3: 0 joins after 1 2\n4: 1 joins after 1 2\n");
}

TEST(Chakra, TheHostComputesBesideTheGpu) {
  WrittenNode call = all_to_all_of(2, 8, {1});
  call.duration_us = 4;
  EXPECT_EQ(
      chakra({{compute(1, 2).of_host(), call.of_host(), node(3, load, {2}), compute(4, 5, {3})}}),
      "0: 0 computes 2000 ns on 1\n1: 0 computes 4000 ns on 1 after 0\n"
      "2: 0 computes 5000 ns after 1\n");
}

TEST(Chakra, OperationsTakeTheTimeOfTheGpu) {
  Settings settings = settings_for(1);
  const std::vector<WrittenNode> nodes = {node(1, computation).with("num_ops", 6'000'000)};
  EXPECT_EQ(chakra({nodes}, settings),
            "t.0.et: node 1: has num_ops and no duration; give the "
            "GPU's operations_per_second");
  settings.operations_per_second = 1e12;
  EXPECT_EQ(chakra({nodes}, settings), "0: 0 computes 6000 ns\n");
}

TEST(Chakra, ControlDependenciesOrderUnlessTheyNameCallers) {
  WrittenNode second = compute(2, 2);
  second.control = {1};
  const std::vector<WrittenNode> generated = {compute(1, 1), second};
  const std::string ordered = "0: 0 computes 1000 ns\n1: 0 computes 2000 ns after 0\n";
  const std::string free = "0: 0 computes 1000 ns\n1: 0 computes 2000 ns\n";
  EXPECT_EQ(chakra({generated}), ordered);
  std::vector<WrittenNode> collected = generated;
  collected[0].control = {99};
  EXPECT_EQ(chakra({collected}), free);
  Settings settings = settings_for(1);
  settings.control_dependencies = ControlDependencies::ignore;
  EXPECT_EQ(chakra({generated}, settings), free);
  settings.control_dependencies = ControlDependencies::order;
  EXPECT_EQ(chakra({collected}, settings),
            "t.0.et: node 1: waits for node 99, which the file does not have");
}

TEST(Chakra, GroupsComeFromNodesOrAFile) {
  const auto call = [](const char* group) { return all_to_all_of(1, 8).in_group(group); };
  const std::string pair =
      "0: 0->2 4 by 1\n1: 2->0 4 by 1\n2: 0 joins after 0 1\n"
      "3: 2 joins after 0 1\n";
  const auto list = node(0, metadata).with_values("['[{\"pg_name\": \"7\", \"ranks\": [0, 2]}]']");
  EXPECT_EQ(chakra({{list, call("7")}, {}, {list, call("7")}}), pair);
  Settings settings = settings_for(3);
  settings.groups = {{"dp", {2, 0}}};
  EXPECT_EQ(chakra({{call("dp")}, {}, {call("dp")}}, settings), pair);
  EXPECT_EQ(chakra({{call("tp")}}),
            "t.0.et: node 1: nothing describes the group \"tp\"; name a file of groups");
  EXPECT_EQ(chakra({{}, {call("dp")}, {}}, settings),
            "t.1.et: node 1: rank 1 is not in the group \"dp\"");
  EXPECT_EQ(chakra({{all_to_all_of(1, 8).in_dimensions(std::string("\1\0", 2))}, {}}),
            "t.0.et: node 1: involved_dim leaves a dimension out; name the ranks by a pg_name");
  EXPECT_EQ(chakra({{node(0, metadata).with_values("[{]}]")}}),
            "t.0.et: node 0: its list of process groups is not understood");
  EXPECT_EQ(chakra({{node(0, metadata).with_values("[{\"pg_name\": \"7\", \"ranks\": [1]}]")}}),
            "t.0.et: node 0: a process group has a rank that does not exist; ranks are 0 to 0");
}

TEST(Chakra, AnErrorNamesTheFileAndTheNode) {
  EXPECT_EQ(chakra({{node(3, send).with("comm_dst", 1).with("comm_size", 4)}, {}}),
            "t.0.et: node 3: rank 0 sends to rank 1 with tag 0, and rank 1 has no receive for it; "
            "give each message both");
  EXPECT_EQ(chakra({{node(3, receive).with("comm_src", 5)}, {}}),
            "t.0.et: node 3: there is no rank 5; ranks are 0 to 1");
  EXPECT_EQ(chakra({{node(3, send).with("comm_dst", 1)}, {}}), "t.0.et: node 3: has no comm_size");
  EXPECT_EQ(chakra({{node(3, send).with("comm_src", 1).with("comm_dst", 0)}, {}}),
            "t.0.et: node 3: comm_src is 1, and the file is that of rank 0");
  EXPECT_EQ(chakra({{node(3, collective).with("comm_size", 8)}, {}}),
            "t.0.et: node 3: has no comm_type");
  EXPECT_EQ(
      chakra({{node(3, collective).with("comm_type", reduce).with("comm_size", 8)}, {}}),
      "t.0.et: node 3: comm_type 1 is not simulated; there are 0 (all-reduce), 2 "
      "(all-gather), 5 (broadcast), 6 (all-to-all), 7 and 8 (reduce-scatter) and 9 (barrier)");
  EXPECT_EQ(chakra({{node(3, collective).with("comm_type", all_reduce)}, {}}),
            "t.0.et: node 3: has no comm_size");
  EXPECT_EQ(chakra({{all_to_all_of(3, 8)}, {}}),
            "t.0.et: node 3: rank 1 does not take part in this all-to-all; each rank of the group "
            "calls it");
  EXPECT_EQ(chakra({{compute(3, 1), compute(3, 1)}}),
            "t.0.et: node 3: is there twice; numbers of a file differ");
  EXPECT_EQ(chakra({{compute(3, 1, {4})}}),
            "t.0.et: node 3: waits for node 4, which the file does not have");
  EXPECT_EQ(
      chakra({{compute(3, 1, {4}), compute(4, 1, {3})}}),
      "t.0.et: node 3: waits for itself: it waits for t.0.et: node 4, which waits for t.0.et: "
      "node 3; remove one of 2 dependencies");
  EXPECT_EQ(chakra({{compute(3, 5'000'000'000'000)}}),
            "t.0.et: node 3: its duration is no time up to 50 days, in microseconds");
  EXPECT_EQ(chakra({{}, {}, {}}, settings_for(2)),
            "t.0.et: the trace has 3 ranks, and there are 2 GPUs; take as many GPUs");
}

TEST(Chakra, ACutFileIsRefused) {
  const std::string whole = protobuf_of({compute(1, 1), compute(2, 1, {1})});
  std::size_t refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string outcome = read("t.et", std::string_view(whole).substr(0, size), 1);
    EXPECT_EQ(outcome.find('\n') == std::string::npos || outcome == "0: 0 computes 1000 ns\n", true)
        << outcome;
    refused += outcome.starts_with("t.et: ") ? 1 : 0;
  }
  // A file that ends between two nodes has fewer.
  EXPECT_EQ(refused, whole.size() - 1);
  EXPECT_EQ(read("t.et", std::string_view(whole).substr(0, whole.size() - 1), 1),
            "t.et: message 2 at byte 27 is cut; the file is not whole, or none of Chakra's");
  EXPECT_EQ(read("t.et", "\x1F\x8B\x08", 1), "t.et: it is compressed; unpack it with gunzip");
  EXPECT_EQ(read("t.et", "\xFF\xFF\xFF\xFF\xFF\xFF", 1),
            "t.et: message 0 at byte 0 is cut; the file is not whole, or none of Chakra's");
}

TEST(Chakra, RanksWithoutAFileAreNamed) {
  const std::string text = protobuf_of({compute(1, 1)});
  const std::vector<File> files = {{"t.0.et", text, 0}, {"t.2.et", text, 2}};
  EXPECT_EQ(
      read(files, settings_for(4)),
      "t.2.et: it is the trace of rank 2, and with 2 files there are ranks 0 to 1, once each");
}

TEST(ChakraJson, BothFormsBecomeTheSameGraph) {
  const std::string graph =
      "0: 0 computes 318000 ns on 1\n1: 0 computes 2500 ns after 0\n"
      "2: 0->1 4 by 1 after 1\n3: 1->0 4 by 1\n4: 0 joins after 2 3\n5: 1 joins after 2 3\n";
  const std::string feeder =
      R"({"workload_graph": [
        {"Id": 1, "Name": "a", "NodeType": 4, "data_deps": [], "runtime": 318, "is_cpu_op": true},
        {"Id": 2, "Name": "b", "NodeType": 4, "data_deps": [1], "runtime": 2.5, "is_cpu_op": false},
        {"Id": 3, "Name": "c", "NodeType": 7, "data_deps": [2], "comm_type": 6, "comm_size": 8}],
        "ngpus": 2})";
  const std::string other = R"({"workload_graph": [
        {"Id": 3, "Name": "c", "NodeType": 7, "data_deps": [], "comm_type": 6, "comm_size": 8}]})";
  const std::string jsonizer =
      R"({"version": "0.0.4"}{"id": "1", "name": "a", "type": "COMP_NODE", "durationMicros": "318",
        "attr": [{"name": "is_cpu_op", "boolVal": true}]}
      {"id": "2", "type": "COMP_NODE", "dataDeps": ["1"], "durationMicros": 2.5}
      {"id": "3", "type": "COMM_COLL_NODE", "dataDeps": ["2"], "attr": [
        {"name": "comm_type", "int64Val": "6"}, {"name": "comm_size", "int64Val": "8"},
        {"name": "involved_dim", "boolList": {"values": [true, true]}}]})";
  for (const std::string& first : {feeder, jsonizer}) {
    const std::vector<File> files = {{"t.0.json", first, 0}, {"t.1.json", other, 1}};
    EXPECT_EQ(read(files, settings_for(2)), graph);
  }
}

TEST(ChakraJson, GroupsComeFromNodes) {
  const auto trace = [](const std::string& list) {
    return R"({"workload_graph": [{"Id": 1, "Name": "## process_group:init ##", "NodeType": 4)" +
           list + R"(}, {"Id": 2, "Name": "c", "NodeType": 7, "comm_type": 6, "comm_size": 8,
             "pg_name": "7"}]})";
  };
  const auto json = [](const std::string& text) {
    const std::vector<File> files = {
        {"t.0.json", text, 0}, {"t.1.json", R"({"workload_graph": []})", 1}, {"t.2.json", text, 2}};
    return read(files, settings_for(3));
  };
  EXPECT_EQ(json(trace(R"(, "inputs": {"values": "[{\"pg_name\": \"7\", \"ranks\": [0, 2]}]"})")),
            "0: 0->2 4 by 1\n1: 2->0 4 by 1\n2: 0 joins after 0 1\n3: 2 joins after 0 1\n");
  const std::string unknown =
      "t.0.json: node 2: nothing describes the group \"7\"; name a file of groups";
  EXPECT_EQ(json(trace("")), unknown);
  EXPECT_EQ(json(trace(R"(, "inputs": {"shapes": "[]"})")), unknown);
  EXPECT_EQ(json(trace(R"(, "inputs": {"values": [7]})")), unknown);
}

TEST(ChakraJson, AnErrorNamesTheFile) {
  const auto json = [](std::string_view text) { return read("t.json", text, 2); };
  EXPECT_EQ(json(""), "t.json: there is no whole JSON object at byte 0");
  EXPECT_EQ(json("{\"workload_graph\": ["), "t.json: there is no whole JSON object at byte 0");
  EXPECT_EQ(json("{\"a\": }"), "t.json: the object at byte 0 is no JSON");
  EXPECT_EQ(json("{\"workload_graph\": 3}"), "t.json: workload_graph is no list");
  EXPECT_EQ(json("{\"workload_graph\": [3]}"), "t.json: a node is no object with an Id");
  EXPECT_EQ(json("{\"workload_graph\": [{\"Id\": 5, \"NodeType\": 8}]}"),
            "t.json: node 5: its type is not understood");
  EXPECT_EQ(json("{\"workload_graph\": [{\"Id\": 5, \"data_deps\": [\"x\"]}]}"),
            "t.json: node 5: a list of dependencies is not understood");
  EXPECT_EQ(json("{\"schema\": \"1.0.2\", \"nodes\": []}"),
            "t.json: it is PyTorch's own trace; link and convert it with Chakra's tools");
  EXPECT_EQ(json(std::string(100'000, '{')), "t.json: there is no whole JSON object at byte 0");
  EXPECT_EQ(json("{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
            "t.json: does nothing");
}

}  // namespace
}  // namespace tulle::traces
