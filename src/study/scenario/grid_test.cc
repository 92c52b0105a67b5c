#include "study/scenario/grid.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace tulle::scenario {
namespace {

using Texts = std::vector<std::string>;

Texts values(const std::string& text) {
  auto knob = parse_knob(text);
  if (!knob) {
    ADD_FAILURE() << knob.error().message;
    return {};
  }
  return knob->values;
}

TEST(Grid, ValuesAreThoseOfToml) {
  EXPECT_EQ(values("seed=1,2,30"), (Texts{"1", "2", "30"}));
  EXPECT_EQ(values("seed=1..4"), (Texts{"1", "2", "3", "4"}));
  EXPECT_EQ(values("seed=9223372036854775806..9223372036854775807"),
            (Texts{"9223372036854775806", "9223372036854775807"}));
  EXPECT_EQ(values("a.b=1MB,none,0.5,true"), (Texts{"\"1MB\"", "\"none\"", "0.5", "true"}));
  EXPECT_EQ(values("a.b=0.1,1.0,-2.0,1e-9,1e30,inf"),
            (Texts{"0.1", "1.0", "-2.0", "1e-09", "1e+30", "inf"}))
      << "as few digits as tell them apart, and no whole number";
  EXPECT_EQ(values("a=[\"x, y\", 3]"), (Texts{"'x, y'", "3"}));
  EXPECT_EQ(values("a=\"1MB\""), (Texts{"'1MB'"}));
  EXPECT_EQ(values("a=1 # 2"), (Texts{"1"}));
}

std::string setting(const std::string& text) {
  auto line = parse_setting(text, "--set");
  return line ? *line : line.error().message;
}

TEST(Grid, ASettingIsTomlOrAValueWithoutQuotes) {
  EXPECT_EQ(setting("a.b=4MB"), "a.b = \"4MB\"");
  EXPECT_EQ(setting("a.b = 1.5us "), "a.b = \"1.5us\"");
  EXPECT_EQ(setting("a=link/500"), "a = \"link/500\"");
  EXPECT_EQ(setting("a=host 0"), "a = \"host 0\"");
  for (const char* toml : {"a=3", "a = true", "a='x'", "a.b = { c = 1 }", "a = [1, 2]",
                           "a = 1\nb = 2", "\"quoted\".b = 1"}) {
    EXPECT_EQ(setting(toml), toml) << "it is left as it is";
  }
}

TEST(Grid, ASettingThatIsNone) {
  EXPECT_EQ(setting("a"), "--set \"a\": write KEY=VALUE, such as traffic.bytes=4MB");
  EXPECT_EQ(setting("=4MB"), "--set \"=4MB\": write KEY=VALUE, such as traffic.bytes=4MB");
  EXPECT_EQ(setting(""), "--set \"\": write KEY=VALUE, such as traffic.bytes=4MB");
  EXPECT_EQ(setting("a="), "--set a: \"\" is no value of TOML");
  EXPECT_EQ(setting("a=[1,2"), "--set a: \"[1,2\" is no value of TOML");
  EXPECT_EQ(setting("a=\"x"), "--set a: \"\"x\" is no value of TOML");
  EXPECT_EQ(setting("a=x\ny"), "--set a: \"x?y\" is no value of TOML");
  EXPECT_TRUE(setting("a..b=4MB").starts_with("--set:1: ")) << setting("a..b=4MB");
}

TEST(Grid, MistakesAreNamed) {
  for (const auto& [text, part] :
       {std::pair("seed", "write KEY=VALUE"), std::pair("=1", "write KEY=VALUE"),
        std::pair("seed=", "write KEY=VALUE"), std::pair("seed=1,,2", "a value is empty"),
        std::pair("a b=1", "is no key of a scenario"), std::pair("a=[1", "is no list of TOML"),
        std::pair("seed=5..1", "ends before it begins"), std::pair("seed=[]", "there is no value"),
        std::pair("seed=1..1000000000", "at most 100000 points"),
        std::pair("seed=-9223372036854775807..9223372036854775807", "at most 100000 points")}) {
    auto knob = parse_knob(text);
    ASSERT_FALSE(knob) << text;
    EXPECT_NE(knob.error().message.find(part), std::string::npos) << knob.error().message;
  }
  EXPECT_FALSE(grid_of({{"a", {"1"}}, {"a", {"2"}}}));
  const Texts many(1'000, "1");
  EXPECT_FALSE(grid_of({{"a", many}, {"b", many}}));
}

TEST(Grid, TheLastKnobChangesFastest) {
  auto grid = grid_of({{"traffic.bytes", {"'1MB'", "'2MB'"}}, {"seed", {"1", "2", "3"}}});
  ASSERT_TRUE(grid);
  ASSERT_EQ(grid->points.size(), 6u);
  EXPECT_EQ(grid->lines(1), (Texts{"traffic.bytes = '1MB'", "seed = 2"}));
  EXPECT_EQ(grid->name(4), "traffic.bytes=2MB, seed=2");
}

TEST(Grid, PointsMayBeAList) {
  const std::string path = testing::TempDir() + "tulle_points.toml";
  std::ofstream(path) << "[[point]]\nseed = 3\n[[point]]\ntraffic.bytes = \"1MB\"\nseed = 4\n"
                         "[[point]]\n[point.traffic]\nbytes = \"2MB\"\n";
  auto grid = read_points(path);
  ASSERT_TRUE(grid) << grid.error().message;
  ASSERT_EQ(grid->points.size(), 3u);
  EXPECT_EQ(grid->name(0), "seed=3");
  EXPECT_EQ(grid->name(1), "seed=4, traffic.bytes=1MB");
  EXPECT_EQ(grid->lines(2), Texts{"traffic.bytes = '2MB'"});
  std::ofstream(path) << "[point]\nseed = 3\n";
  EXPECT_FALSE(read_points(path));
  EXPECT_FALSE(read_points("/nowhere"));
}

}  // namespace
}  // namespace tulle::scenario
