#include "study/joined_ranks.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tulle::study {
namespace {

// mpirun's variables of one process.
class JoinedRanksTest : public testing::Test {
 protected:
  ~JoinedRanksTest() override {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) unsetenv(name);
  }
  static void start_as(const char* rank, const char* size) {
    setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    setenv("OMPI_COMM_WORLD_SIZE", size, 1);
  }
};

TEST_F(JoinedRanksTest, AProcessThatIsAloneJoinsNobody) {
  JoinedRanks ranks;
  ASSERT_TRUE(ranks.look());
  EXPECT_FALSE(ranks.are_several());
  EXPECT_TRUE(ranks.is_first());
  EXPECT_TRUE(ranks.join(""));
  EXPECT_EQ(ranks.get(), nullptr);
  EXPECT_EQ(ranks.leave(3), 3);
  ranks.abort("nothing happens");
}

TEST_F(JoinedRanksTest, ARankIsKnownBeforeItJoins) {
  start_as("1", "2");
  JoinedRanks ranks;
  ASSERT_TRUE(ranks.look());
  EXPECT_TRUE(ranks.are_several());
  EXPECT_FALSE(ranks.is_first());
  EXPECT_FALSE(ranks.join("")) << "there are no libraries";
}

TEST_F(JoinedRanksTest, TooManyAreRefused) {
  start_as("0", "1000000");
  JoinedRanks ranks;
  ASSERT_TRUE(ranks.look());
  const auto joined = ranks.join("/nowhere");
  ASSERT_FALSE(joined);
  EXPECT_TRUE(joined.error().is_misuse);
}

TEST_F(JoinedRanksTest, VariablesWithoutMeaningAreRefused) {
  start_as("9", "2");
  JoinedRanks ranks;
  EXPECT_FALSE(ranks.look());
}

}  // namespace
}  // namespace tulle::study
