#include "study/report/gnuplot.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

TEST(GnuplotTest, DrawsOrSaysWhyNot) {
  if (!has_gnuplot()) GTEST_SKIP() << "no gnuplot";
  auto svg = run_gnuplot("set terminal svg\nplot x\n");
  ASSERT_TRUE(svg) << svg.error().message;
  EXPECT_NE(svg->find("</svg>"), std::string::npos);
  auto none = run_gnuplot("no such command\n");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message.find("gnuplot drew no picture: "), 0u);
}

}  // namespace
}  // namespace tulle::report
