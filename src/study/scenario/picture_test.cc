// Tests the reading of [picture].

#include <gtest/gtest.h>

#include "study/scenario/scenario.h"

namespace tulle::scenario {
namespace {

constexpr char tables[] = "[topology]\nhosts = 4\n[traffic]\nbytes = \"10KB\"\n";
const std::string over_time = "kind = \"over-time\"\nlink = [\"switch 0\", \"host 1\"]\n";

std::string wrong(const std::string& picture) {
  auto scenario = Scenario::parse("[picture]\n" + picture + "\n" + tables, "s.toml", "", {});
  return scenario ? "" : scenario.error().message;
}

TEST(ReadPicture, EveryKey) {
  const std::string text = std::string(
                               "[picture]\nkind = \"by-size\"\nshow = \"slowdown.max\"\n"
                               "label = \"L\"\nscale = \"linear\"\nvariants = [\"b\"]\n"
                               "flows = \"0, 2-7\"\n") +
                           tables + "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
  auto scenario = Scenario::parse(text, "s.toml", "", {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  const report::PictureSettings& picture = scenario->picture();
  EXPECT_EQ(picture.kind, report::PictureSettings::Kind::by_size);
  EXPECT_EQ(picture.show, "slowdown.max");
  EXPECT_EQ(picture.label, "L");
  EXPECT_EQ(picture.scale, report::PictureSettings::Scale::linear);
  EXPECT_EQ(picture.variants, std::vector<std::string>{"b"});
  EXPECT_EQ(picture.flows, (std::vector<report::PictureSettings::Range>{{0, 0}, {2, 7}}));
  EXPECT_EQ(picture.file, "s.toml");
}

TEST(ReadPicture, MistakesAreToldWithTheirPlace) {
  EXPECT_EQ(wrong("kind = \"pie\""),
            "s.toml:2: picture.kind: must be \"bars\", \"cdf\", \"by-size\", \"progress\" or "
            "\"over-time\"");
  EXPECT_EQ(wrong("colour = 1").find("s.toml:2: picture.colour: is not a known key"), 0u)
      << wrong("colour = 1");
  EXPECT_EQ(wrong("show = \"fct_us\""),
            "s.toml:2: picture.show: needs .min, .median, .p99 or .max after \"fct_us\"");
  EXPECT_EQ(wrong("show = \"fct_us.p50\"").find("s.toml:2: picture.show: needs .min"), 0u);
  EXPECT_EQ(
      wrong("kind = \"cdf\"\nshow = \"dropped\"").find("s.toml:3: picture.show: with \"cdf\""), 0u);
  EXPECT_EQ(wrong("kind = \"by-size\"\nshow = \"dropped\"").find("s.toml:3: picture.show: with"),
            0u);
  EXPECT_EQ(wrong("kind = \"progress\"\nshow = \"dropped\"").find("s.toml:3: picture.show: "), 0u);
  EXPECT_EQ(wrong("show = \"dropped\"\nflows = \"1\"").find("s.toml:3: picture.flows: needs a"),
            0u);
  EXPECT_EQ(wrong("flows = \"3-1\"").find("s.toml:2: picture.flows: must be flows"), 0u);
  EXPECT_EQ(wrong("variants = [\"c\"]"), "s.toml:2: picture.variants: there is no variant \"c\"");
  EXPECT_EQ(wrong("[[variant]]\nname = \"a\"\npicture.kind = \"cdf\"")
                .find("s.toml:4: variant.picture: applies to all"),
            0u);
  EXPECT_EQ(wrong("kind = \"over-time\"").find("s.toml:1: picture.link: is needed, two nodes"), 0u);
  EXPECT_EQ(wrong("link = [\"a\", \"b\"]").find("s.toml:2: picture.link: goes with"), 0u);
  EXPECT_EQ(
      wrong(over_time + "show = \"fct_us\"").find("s.toml:4: picture.show: with \"over-time\""),
      0u);
}

}  // namespace
}  // namespace tulle::scenario
