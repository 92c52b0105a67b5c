#include "os/large_pages.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tulle {
namespace {

// Otherwise this program would begin again.
TEST(LargePages, WhatTheUserHasTunedStays) {
  ASSERT_EQ(setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0", 1), 0);
  take_large_pages();
  EXPECT_STREQ(getenv("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=0");
  unsetenv("GLIBC_TUNABLES");
}

}  // namespace
}  // namespace tulle
