#include <gtest/gtest.h>

#include "study/traces/trace_test.h"

namespace tulle::traces {
namespace {

std::string matrix(std::string_view text, std::uint32_t ranks = 4) {
  return read("c.cm", text, ranks);
}

TEST(ConnectionMatrix, BecomesAGraph) {
  EXPECT_EQ(matrix("# one after the other\nNodes 3\nConnections 3\nTriggers 1\n"
                   "0->1 id 1 start 0 size 2000000 send_done_trigger 1\n"
                   "1->0 start 0.000000 size 5 prio 2\n"
                   "1->2 id 2 trigger 1 size 3000\n"
                   "trigger id 1 oneshot\n"),
            "0: 0->1 2000000\n1: 1->0 5\n2: 1->2 3000 after 0\n");
}

TEST(ConnectionMatrix, StartsAreInPicoseconds) {
  EXPECT_EQ(matrix("Nodes 2\nConnections 4\n0->1 start 5000 size 1\n0->1 start 2000 size 2\n"
                   "0->1 start 5000 size 3\n1->0 start 9000 size 4\n"),
            "0: 0 pauses 2 ns\n1: 1 pauses 9 ns\n2: 0->1 2 after 0\n3: 0 pauses 3 ns after 0\n"
            "4: 1->0 4 after 1\n5: 0->1 1 after 3\n6: 0->1 3 after 3\n");
}

// A size may have more than 32 bits, and a number of a connection may not.
TEST(ConnectionMatrix, SizesMayBeLong) {
  const std::string head = "Nodes 2\nConnections 1\n0->1 start 0 ";
  EXPECT_EQ(matrix(head + "size 4294967301 id 4294967295\n"),
            "0: 0->1 1073741824\n1: 0->1 1073741824\n2: 0->1 1073741824\n3: 0->1 1073741824\n"
            "4: 0->1 5\n");
  EXPECT_EQ(matrix(head + "size 1 id 4294967296\n"),
            "c.cm:3: \"id\" needs a number from 0 to 4294967295");
  EXPECT_EQ(matrix(head + "size 4503599626321921\n"),
            "c.cm:3: \"size\" needs a number from 0 to 4503599626321920");
}

TEST(ConnectionMatrix, TriggersStartAllOrTheNextOrWaitForSome) {
  // The first connection that ends starts the first one that waits, and so on.
  EXPECT_EQ(matrix("Nodes 3\nConnections 4\nTriggers 1\n0->1 start 0 size 1 send_done_trigger 9\n"
                   "0->2 start 0 size 2 recv_done_trigger 9\n0->1 trigger 9 size 3\n"
                   "0->2 trigger 9 size 4\ntrigger id 9 multishot\n"),
            "0: 0->1 1\n1: 0->2 2\n2: 0->1 3 after 0\n3: 0->2 4 after 1\n");
  EXPECT_EQ(matrix("Nodes 3\nConnections 3\nTriggers 1\n1->0 start 0 size 1 recv_done_trigger 9\n"
                   "2->0 start 0 size 2 recv_done_trigger 9\n0->1 trigger 9 size 3\n"
                   "trigger id 9 barrier count 2\n"),
            "0: 1->0 1\n1: 2->0 2\n2: 0->1 3 after 0 1\n");
}

TEST(ConnectionMatrix, AnErrorNamesTheLine) {
  const std::string head = "Nodes 3\nConnections 1\n";
  EXPECT_EQ(matrix(head),
            "c.cm:2: there are 0 connections, and 1 were announced; the file may be "
            "cut");
  EXPECT_EQ(matrix("Nodes 5\n"),
            "c.cm:1: the trace has 5 ranks, and there are 4 GPUs; take as many GPUs");
  EXPECT_EQ(matrix(head + "0->3 start 0 size 1\n"), "c.cm:3: there is no rank 3; ranks are 0 to 2");
  EXPECT_EQ(matrix(head + "0->0 start 0 size 1\n"),
            "c.cm:3: rank 0 sends to itself; leave the message out");
  EXPECT_EQ(matrix(head + "0->x start 0 size 1\n"),
            "c.cm:3: \"0->x\" is no connection; expected SOURCE->DESTINATION");
  EXPECT_EQ(matrix(head + "0->1 start 0 size 0\n"),
            "c.cm:3: the connection sends without end; give it a size in bytes, at least 1");
  EXPECT_EQ(matrix(head + "0->1 start -1 size 1\n"), "c.cm:3: start is in picoseconds, from 0");
  EXPECT_EQ(matrix(head + "0->1 size 1\n"), "c.cm:3: a connection has either a start or a trigger");
  EXPECT_EQ(matrix(head + "0->1 start 0 size 1 addon 1\n"),
            "c.cm:3: \"addon\" is not read; a connection has start, id, size, trigger, "
            "send_done_trigger, recv_done_trigger, prio");
  EXPECT_EQ(matrix(head + "0->1 start 0 size\n"),
            "c.cm:3: \"size\" needs a number from 0 to 4503599626321920");
  EXPECT_EQ(matrix("Nodes 3\nFailures 1\n"),
            "c.cm:2: \"Failures\" is not read; failures are [[fault]] of a scenario");
  EXPECT_EQ(matrix("0->1 start 0 size 1\n"), "c.cm:1: Nodes comes before the first connection");
  EXPECT_EQ(matrix(head + "0->1 trigger 2 size 1\n"),
            "c.cm:3: there is no trigger 2; add a line: trigger id 2 oneshot");
}

TEST(ConnectionMatrix, ATriggerThatCannotBeIsNamed) {
  const std::string head = "Nodes 3\nConnections 2\nTriggers 1\n0->1 start 0 size 1 ";
  EXPECT_EQ(matrix(head + "send_done_trigger 1\n2->1 trigger 1 size 1\ntrigger id 1 oneshot\n"),
            "c.cm:5: host 2 cannot know when 0->1 of line 4 is done, whose trigger starts it; only "
            "these two hosts do");
  EXPECT_EQ(matrix(head + "send_done_trigger 1\n0->1 trigger 1 size 1\n"
                          "trigger id 1 barrier count 2\n"),
            "c.cm:6: trigger 1 is fired 1 times, and needs 2");
  EXPECT_EQ(matrix(head + "send_done_trigger 1\n0->1 trigger 1 size 1\ntrigger id 1\n"),
            "c.cm:6: a trigger has an id from 1, and is oneshot, multishot or barrier");
  EXPECT_EQ(
      matrix("Nodes 2\nConnections 2\nTriggers 2\n"
             "0->1 id 1 trigger 2 size 1 send_done_trigger 1\n"
             "0->1 id 2 trigger 1 size 1 send_done_trigger 2\n"
             "trigger id 1 oneshot\ntrigger id 2 oneshot\n"),
      "c.cm:4: waits for itself: it waits for c.cm:5, which waits for c.cm:4; remove one of 2 "
      "dependencies");
}

}  // namespace
}  // namespace tulle::traces
