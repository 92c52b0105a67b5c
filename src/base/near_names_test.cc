#include "base/near_names.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tulle {
namespace {

constexpr std::array<std::string_view, 6> names = {"incast",   "iwarp",    "infiniband",
                                                   "dgx-h100", "hgx-h800", "roce-pfc-dcqcn"};

std::string meant(std::string_view typed) { return did_you_mean(typed, names); }

TEST(NearNames, SlipsOfTheFingers) {
  EXPECT_EQ(meant("incats"), "; did you mean incast?") << "neighbours that are exchanged";
  EXPECT_EQ(meant("incst"), "; did you mean incast?") << "one left out";
  EXPECT_EQ(meant("inncast"), "; did you mean incast?") << "one twice";
  EXPECT_EQ(meant("imcast"), "; did you mean incast?") << "another one";
  EXPECT_EQ(meant("InCast"), "; did you mean incast?") << "of another case";
  EXPECT_EQ(meant("infinband"), "; did you mean infiniband?");
}

TEST(NearNames, SeveralThatAreAsNear) {
  EXPECT_EQ(meant("hgx-h100"), "; did you mean dgx-h100 or hgx-h800?");
}

TEST(NearNames, AbbreviationsWhereNothingIsNearer) {
  EXPECT_EQ(meant("dgx"), "; did you mean dgx-h100?");
  EXPECT_EQ(meant("dcqcn"), "; did you mean roce-pfc-dcqcn?");
}

TEST(NearNames, NothingIsNear) {
  EXPECT_EQ(meant("whatever"), "");
  EXPECT_EQ(meant(""), "");
  EXPECT_EQ(meant("x"), "");
  EXPECT_EQ(meant(std::string(10'000, 'i')), "") << "no time is spent on what nobody typed";
}

TEST(NearNames, ASentenceThatFollows) {
  EXPECT_EQ(did_you_mean("incats", names, "the others are short"),
            "; did you mean incast? The others are short");
  EXPECT_EQ(did_you_mean("whatever", names, "the others are short"), "; the others are short");
  EXPECT_EQ(did_you_mean("incats", std::vector<std::string>{"incast"}), "; did you mean incast?");
}

}  // namespace
}  // namespace tulle
