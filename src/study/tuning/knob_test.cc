#include "study/tuning/knob.h"

#include <gtest/gtest.h>

#include "base/folder_test.h"

namespace tulle::tuning {
namespace {

std::string said(std::string_view text) {
  auto knob = parse_range(text);
  return knob ? "" : knob.error().message;
}

std::string at(const Knob& knob, double place) {
  return values_at(std::span(&knob, 1), std::span(&place, 1)).front();
}

TEST(Knobs, RangesHaveUnits) {
  EXPECT_EQ(parse_range("a.b=10KB..4MB")->kind, Knob::Kind::bytes);
  EXPECT_EQ(parse_range("a=1us..100us")->kind, Knob::Kind::time);
  EXPECT_EQ(parse_range("a=5Mbps..1Gbps")->kind, Knob::Kind::rate);
  EXPECT_EQ(parse_range("a=1..16")->kind, Knob::Kind::whole);
  EXPECT_EQ(parse_range("a=0.01..1")->kind, Knob::Kind::number);
  EXPECT_EQ(parse_range("a=flow,packet")->kind, Knob::Kind::choice);
}

TEST(Knobs, EndsOfARangeAreReached) {
  const Knob bytes = *parse_range("a=10KB..4MB");
  EXPECT_EQ(at(bytes, 0), "\"10KB\"");
  EXPECT_EQ(at(bytes, 1), "\"4MB\"");
  EXPECT_EQ(at(bytes, 7), "\"4MB\"");
  EXPECT_EQ(at(bytes, 0.5), "\"200KB\"") << "the geometric middle";
  EXPECT_EQ(at(*parse_range("a=10KB..20KB"), 0.5), "\"15KB\"") << "a narrow range is linear";
  EXPECT_EQ(at(*parse_range("a=1..4"), 0.5), "3");
  EXPECT_EQ(at(*parse_range("a=0.5..2.5"), 0.25), "1.0") << "it stays a number with a point";
  EXPECT_EQ(at(*parse_range("a=1us..3us"), 0.111), "\"1.22us\"");
}

TEST(Knobs, ChoicesShareTheRange) {
  const Knob knob = *parse_range("a=flow,packet,true");
  EXPECT_EQ(at(knob, 0), "\"flow\"");
  EXPECT_EQ(at(knob, 0.5), "\"packet\"");
  EXPECT_EQ(at(knob, 1), "true");
}

TEST(Knobs, MistakesAreSaid) {
  EXPECT_EQ(said("a=1..1KB"), "--knob a: \"1\" and \"1KB\" have different units");
  EXPECT_EQ(said("a=4MB..1KB"), "--knob a: \"1KB\" is not more than \"4MB\"");
  EXPECT_EQ(said("a=..4MB"),
            "--knob a: \"\" is neither a number nor an amount such as 64KB, 10us or 40Mbps");
  EXPECT_EQ(said("a=nan..inf").find("--knob a: \"nan\" is neither"), 0u);
  EXPECT_EQ(said("a=5"),
            "--knob a: a range such as 10KB..4MB is needed, or several values to choose from");
  EXPECT_NE(said("a=1..99999999999999999999").find("is too wide"), std::string::npos);
  EXPECT_NE(said("a=1e-300..1e300").find("is too wide"), std::string::npos);
  EXPECT_EQ(said("a b=1..2"), "--knob: \"a b\" is no key of a scenario");
  EXPECT_NE(said("1..2"), "");
}

// Whole numbers are exact up to 2^53. A range that begins at its reciprocal is searched, too.
TEST(Knobs, ARangeIsAsWideAsNumbersAreExact) {
  EXPECT_EQ(said("a=1..9007199254740992"), "");
  EXPECT_NE(said("a=1..9007199254740994").find("is too wide"), std::string::npos);
  EXPECT_EQ(said("a=1.2e-16..1"), "");
  EXPECT_NE(said("a=1.1e-16..1").find("is too wide"), std::string::npos);
  EXPECT_EQ(said("a=-9007199254740992..0"), "") << "what is not logarithmic may be 0 or less";
  EXPECT_NE(said("a=-9007199254740994..0").find("is too wide"), std::string::npos);
}

TEST(Knobs, AFileHasKnobsThatHangTogether) {
  Folder folder;
  folder.write("k.toml", R"(title = "Two"
[[knob]]
key = "low"
least = "5KB"
most = "50KB"
[[knob]]
key = "high"
times = "low"
least = 1
most = 16
[[knob]]
key = "way"
values = [true, "other"]
)");
  auto knobs = read_knobs(folder.path("k.toml"));
  ASSERT_TRUE(knobs) << knobs.error().message;
  ASSERT_TRUE(check(*knobs));
  const std::vector<double> first = {0, 0, 0}, last = {1, 1, 1};
  EXPECT_EQ(values_at(*knobs, first), (std::vector<std::string>{"\"5KB\"", "\"5KB\"", "true"}));
  EXPECT_EQ(values_at(*knobs, last), (std::vector<std::string>{"\"50KB\"", "\"800KB\"", "'other'"}))
      << "a factor may lead out of the other knob's range";
}

TEST(Knobs, AFileThatIsWrongIsRefused) {
  Folder folder;
  const auto refused = [&](const std::string& text) {
    folder.write("k.toml", text);
    auto knobs = read_knobs(folder.path("k.toml"));
    const std::string path = folder.path("k.toml");
    const std::string message = knobs ? "" : knobs.error().message;
    return message.starts_with(path) ? message.substr(path.size()) : message;
  };
  EXPECT_EQ(refused("title = \"none\""), ": needs a list of 1 to 64 knobs: [[knob]]");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\nleast = 1\nmost = 2\nmore = 3\n"),
            ":5: knob.more: is no key of a knob");
  EXPECT_EQ(refused("[[knob]]\nleast = 1\nmost = 2\n"),
            ":1: knob.key: is needed: a key of a scenario");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\nleast = 2\nmost = 1\n"),
            ":1: a: least and most: \"1\" is not more than \"2\"");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\nvalues = [1]\n"),
            ":3: knob.values: must be a list of two values or more");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a b\"\nleast = 1\nmost = 2\n"),
            ":2: knob.key: \"a b\" is no key of a scenario");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\ntimes = \"b\"\nvalues = [1, 2]\n"),
            ":3: knob.times: goes with least and most, and not with values");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\ntimes = \"\"\nleast = 1\nmost = 2\n"),
            ":3: knob.times: must be the key of a knob");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\ntimes = 5\nleast = 1\nmost = 2\n"),
            ":3: knob.times: must be the key of a knob");
  EXPECT_EQ(refused("[[knob]]\nkey = \"a\"\ntimes = \"b\"\nleast = \"1us\"\nmost = \"2us\"\n"),
            ":1: a: least and most are factors of another knob, and have no unit");
  EXPECT_EQ(refused("other = 1\n[[knob]]\nkey = \"a\"\nleast = 1\nmost = 2\n"),
            ":1: other: is no key of a file of knobs");
}

TEST(Knobs, AFileHasUpToAMebibyte) {
  Folder folder;
  const std::string knob = "[[knob]]\nkey = \"a\"\nleast = 1\nmost = 2\n";
  const auto read = [&](std::size_t bytes) {
    folder.write("k.toml", knob + "#" + std::string(bytes - knob.size() - 1, '-'));
    return read_knobs(folder.path("k.toml"));
  };
  auto whole = read(1u << 20);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->size(), 1u);
  auto longer = read((1u << 20) + 1);
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message.find("k.toml: is longer than 1048576 bytes"), std::string::npos)
      << longer.error().message;
}

TEST(Knobs, AFileThatIsNotThereIsNamed) {
  Folder folder;
  auto knobs = read_knobs(folder.path("none.toml"));
  ASSERT_FALSE(knobs);
  EXPECT_TRUE(knobs.error().message.ends_with("none.toml: No such file or directory"))
      << knobs.error().message;
}

TEST(Knobs, TogetherTheyAreChecked) {
  const auto message = [](const std::vector<Knob>& knobs) {
    auto checked = check(knobs);
    return checked ? "" : checked.error().message;
  };
  const Knob a = *parse_range("a=1..2");
  EXPECT_EQ(message({a, a}), "knob a is there twice");
  Knob b = *parse_range("b=1..2");
  b.times = "c";
  EXPECT_EQ(message({a, b}), "knob b: \"c\" is no earlier knob with a range");
  b.times = "a";
  EXPECT_EQ(message({a, b}), "");
  EXPECT_EQ(message({b, a}), "knob b: \"a\" is no earlier knob with a range");
  EXPECT_NE(message(std::vector<Knob>(knobs_max + 1, a)), "");
}

}  // namespace
}  // namespace tulle::tuning
