#include <gtest/gtest.h>

#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

std::string goal(std::string_view text, std::uint32_t ranks = 4) {
  return read("s.goal", text, ranks);
}

TEST(Goal, BecomesAGraph) {
  EXPECT_EQ(goal("// a comment\nnum_ranks 2\n\nrank 0 {\n  l1: calc 100 cpu 1\n"
                 "  l2: send 10b to 1 tag 3 cpu 0 nic 0\n  l2 requires l1\n}\n"
                 "/* rank 1\n   receives */\nrank 1 {\nl1: recv 10b from 0 tag 3\n"
                 "l2: calc 50\nl2 requires l1\n}\n"),
            "0: 0 computes 100 ns on 1\n1: 0->1 10 after 0\n2: 1 computes 50 ns after 1\n");
}

TEST(Goal, StatementsMayShareALineAndLabelsComeLater) {
  EXPECT_EQ(goal("num_ranks 2 rank 0 { a requires b; a: send 1 b to 1; b: calc 7 }\n"
                 "rank 1 { recv 1b from 0 }"),
            "0: 0 computes 7 ns\n1: 0->1 1 after 0\n");
}

TEST(Goal, IrequiresWaitsForABeginning) {
  EXPECT_EQ(goal("num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\nc: calc 3 cpu 2\nb requires a\n"
                 "c irequires b\n}\n"),
            "0: 0 computes 1 ns\n1: 0 computes 2 ns after 0\n2: 0 computes 3 ns on 2 after 0\n");
}

TEST(Goal, AnErrorNamesTheLine) {
  EXPECT_EQ(goal("num_ranks 5\n"),
            "s.goal:1: the trace has 5 ranks, and there are 4 GPUs; take as many GPUs");
  EXPECT_EQ(goal("num_ranks 0\n"), "s.goal:1: 0 ranks; there may be 1 to 65536");
  EXPECT_EQ(goal("num_ranks 2\nrank 2 {\n}\n"),
            "s.goal:2: there is no rank \"2\"; ranks are 0 to 1");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\nsend 8b to 2\n}\n"),
            "s.goal:3: there is no rank 2; ranks are 0 to 1");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\n"),
            "s.goal:3: rank 0 sends to rank 1 with tag 0, and rank 1 has no receive for it; give "
            "each message both");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\na: calc 8\na requires b\n}\n"),
            "s.goal:4: rank 0 has no \"b\"; name it with b: before its action");
  const std::string label(30, 'b');
  EXPECT_EQ(
      goal("num_ranks 2\nrank 0 {\na: calc 8\na requires " + label + "\n}\n"),
      "s.goal:4: rank 0 has no \"" + label + "\"; name it with " + label + ": before its action");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\na: calc 8\nb: calc 8\na requires b\nb requires a\n}\n"),
            "s.goal:3: waits for itself: it waits for s.goal:4, which waits for s.goal:3; remove "
            "one of 2 dependencies");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\na: calc 8\na: calc 8\n}\n"),
            "s.goal:4: \"a\" is there twice; labels of a rank differ");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\nrecv 8b from -1\n}\n"),
            "s.goal:3: \"-1\" is no rank; a receive from any rank (-1) is not read, name one");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\ncalc x\n}\n"),
            "s.goal:3: \"x\" is no amount; expected nanoseconds");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\ncalc 9999999999999999\n}\n"),
            "s.goal:3: calc 9999999999999999 lasts more than 50 days; it is in nanoseconds");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\ncalc 8 cpu 256\n}\n"),
            "s.goal:3: cpu 256 is too much; 0 to 255");
  EXPECT_EQ(
      goal("num_ranks 2\nrank 0 {\nsend 8b to 1 prio 3\n}\n"),
      "s.goal:3: \"prio\" is not understood; tag, cpu and nic may follow, each with a number");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\ncalc 8\n"),
            "s.goal:3: rank 0 does not end; the file may be cut");
  EXPECT_EQ(goal("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}\n"), "s.goal:4: rank 0 is there twice");
  EXPECT_EQ(goal("rank 0 {\n}\n"), "s.goal:1: num_ranks comes before the first rank");
  EXPECT_EQ(goal("num_ranks 1\ncalc 8\n"), "s.goal:2: expected rank N {, and not \"calc\"");
  EXPECT_EQ(goal("num_ranks 1\n}\n"), "s.goal:2: } ends nothing");
  EXPECT_EQ(goal(""), "s.goal:1: there is no num_ranks");
  EXPECT_EQ(goal("num_ranks 1\n"), "s.goal: does nothing");
}

}  // namespace
}  // namespace tulle::traces
