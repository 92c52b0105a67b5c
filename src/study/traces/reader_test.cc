#include "study/traces/reader.h"

#include <gtest/gtest.h>

#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

TEST(Reader, KnowsFormatsBySuffixOrContent) {
  EXPECT_EQ(format_of("a.et", "Nodes 2"), Format::chakra);
  EXPECT_EQ(format_of("a.json", ""), Format::chakra_json);
  EXPECT_EQ(format_of("a.goal", ""), Format::goal);
  EXPECT_EQ(format_of("a.cm", ""), Format::connection_matrix);
  EXPECT_EQ(format_of("a.txt", "\n// a schedule\nnum_ranks 2"), Format::goal);
  EXPECT_EQ(format_of("a.txt", "num_ranks 2"), Format::goal);
  EXPECT_EQ(format_of("a", "# a comment\nNodes 16\n"), Format::connection_matrix);
  EXPECT_EQ(format_of("a", "HYBRID_TRANSFORMER_FWD_IN_BCKWD ep: 1"), Format::simai);
  EXPECT_EQ(format_of("a", "  {\"workload_graph\": []}"), Format::chakra_json);
  EXPECT_EQ(format_of("a", "src,dst,bytes,start_ns"), std::nullopt);
  EXPECT_EQ(format_of("a", ""), std::nullopt);
  EXPECT_EQ(read("a", "hello", 2),
            "a: is no trace that is known: Chakra's .et or .json, GOAL, SimAI's workloads and "
            "htsim's .cm are");
}

TEST(Reader, OnlyChakraHasSeveralFiles) {
  const std::vector<File> files = {{"a.goal", "num_ranks 1\n", std::nullopt},
                                   {"b.goal", "num_ranks 1\n", std::nullopt}};
  Settings settings;
  settings.servers = servers_of(2);
  EXPECT_EQ(read(files, settings), "a.goal: such a trace is one file, and not 2");
}

TEST(Reader, GroupsAreListsOfRanks) {
  auto groups = parse_groups(R"({"1": [0, 2], "dp": [1]})", "g.json", 3);
  ASSERT_TRUE(groups);
  EXPECT_EQ(*groups, (Groups{{"1", {0, 2}}, {"dp", {1}}}));
  const auto error_of = [](std::string_view text) {
    return parse_groups(text, "g.json", 3).error().message;
  };
  const std::string expected = "; expected a JSON object of lists of ranks, as in {\"1\": [0, 1]}";
  EXPECT_EQ(error_of("[]"), "g.json: it is no JSON object" + expected);
  EXPECT_EQ(error_of("{\"1\": []}"), "g.json: \"1\" is no list of ranks" + expected);
  EXPECT_EQ(error_of("{\"1\": [3]}"), "g.json: \"1\" has a rank that does not exist" + expected);
  EXPECT_EQ(error_of("{\"1\": [\"0\"]}"),
            "g.json: \"1\" has a rank that does not exist" + expected);
}

TEST(Reader, AFileOfGroupsHasUpTo64MiB) {
  std::string text = R"({"1": [0]})";
  text.resize(64u << 20, ' ');
  EXPECT_TRUE(parse_groups(text, "g.json", 3));
  text += ' ';
  EXPECT_EQ(
      parse_groups(text, "g.json", 3).error().message,
      "g.json: the file has more than 64 MiB; expected a JSON object of lists of ranks, as in "
      "{\"1\": [0, 1]}");
}

}  // namespace
}  // namespace tulle::traces
