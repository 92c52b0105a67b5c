#include "rdma/transport/rc/credits.h"

#include <gtest/gtest.h>

namespace tulle::transport::rc {
namespace {

TEST(Credits, AreNotUsedUpUntilTheyAreKnown) {
  Credits credits;
  for (int i = 0; i < 100; ++i) credits.message_started();
  EXPECT_FALSE(credits.are_used_up());
  credits.update(no_credits_code);
  EXPECT_FALSE(credits.are_used_up());
  credits.update(credit_code(64));
  EXPECT_TRUE(credits.are_used_up());
}

TEST(Credits, CountFromTheMessagesThatAreDone) {
  Credits credits;
  for (int i = 0; i < 3; ++i) credits.message_started();
  for (int i = 0; i < 2; ++i) credits.message_done();
  credits.update(credit_code(2));
  EXPECT_FALSE(credits.are_used_up());
  credits.message_started();
  EXPECT_TRUE(credits.are_used_up());
  credits.message_done();
  EXPECT_TRUE(credits.are_used_up());
  credits.update(credit_code(2));
  EXPECT_FALSE(credits.are_used_up());
}

}  // namespace
}  // namespace tulle::transport::rc
