#include "study/workload/batches.h"

#include <gtest/gtest.h>

namespace tulle::workload {
namespace {

TEST(Batches, TasksJoinBeforeARoundAndLeaveAfterTheirLast) {
  Batches batches(BatchSettings{Time::microseconds(10), Time::zero(), 2}, 1);
  EXPECT_FALSE(batches.begin(0)) << "nobody waits";
  batches.add(0, {7, Time::microseconds(1), 1});
  EXPECT_EQ(batches.begin(0), Time::microseconds(11));
  batches.add(0, {8, Time::microseconds(2), 2});
  batches.add(0, {9, Time::microseconds(4), 1});
  batches.add(0, {10, Time::microseconds(8), 1});
  EXPECT_FALSE(batches.begin(0)) << "a round is under way";
  auto members = batches.end(0);
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].task, 7u);
  EXPECT_TRUE(members[0].is_new);
  EXPECT_EQ(members[0].rounds_left, 0u);
  EXPECT_EQ(batches.begin(0), Time::microseconds(16)) << "two of the three that wait";
  EXPECT_EQ(batches.first(0), 8u);
  EXPECT_EQ(batches.end(0).size(), 2u);
  EXPECT_EQ(batches.begin(0), Time::microseconds(20));
  members = batches.end(0);
  ASSERT_EQ(members.size(), 2u);
  EXPECT_FALSE(members[0].is_new);
  EXPECT_EQ(members[1].task, 10u);
  EXPECT_FALSE(batches.begin(0)) << "all have left";
}

TEST(Batches, ComputingMayTakeLongerThanReading) {
  Batches batches(BatchSettings{Time::microseconds(10), Time::microseconds(6), 8}, 1);
  batches.add(0, {1, Time::microseconds(1), 1});
  batches.add(0, {2, Time::microseconds(1), 1});
  EXPECT_EQ(batches.begin(0), Time::microseconds(12));
  batches.end(0);
  batches.add(0, {1, Time::microseconds(1), 1});
  batches.add(0, {2, Time::microseconds(1), 1});
  batches.add(0, {3, Time::microseconds(1), 1});
  EXPECT_EQ(batches.begin(0), Time::microseconds(18));
}

}  // namespace
}  // namespace tulle::workload
