#include "study/config/reader.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

namespace tulle::config {
namespace {

using namespace std::string_view_literals;

// Returns the error that is found when `read` reads a text.
std::string found(std::string_view text, const std::function<void(TableReader&)>& read) {
  const toml::table root = toml::parse(text, std::string_view("f.toml"));
  Findings findings("f.toml");
  TableReader reader({&root}, "", 0, findings);
  read(reader);
  reader.finish();
  EXPECT_EQ(findings.first().find('\n'), std::string::npos);
  return findings.first();
}

TEST(Reader, GivesWhatIsThereAndElseTheDefault) {
  const std::string nothing = found(
      "a = 3\nb = 2.5\nc = true\nd = \"x\"\ne = \"2us\"\nf = \"5Gbps\"\ng = \"7KB\"\nh = [1, 2]\n"
      "[t]\ni = 9\n",
      [](TableReader& r) {
        EXPECT_EQ(r.integer("a", 1, 0, 9), 3);
        EXPECT_EQ(r.number("b", 1, 0, 9), 2.5);
        EXPECT_EQ(r.boolean("c", false), true);
        EXPECT_EQ(r.text("d", "-"), "x");
        EXPECT_EQ(r.time("e", Time::zero()), Time::microseconds(2));
        EXPECT_EQ(r.rate("f", 1), 5'000'000'000);
        EXPECT_EQ(r.bytes("g", 1), 7'000u);
        EXPECT_EQ(r.integers("h", {}), (std::vector<std::int64_t>{1, 2}));
        TableReader t = r.table("t");
        EXPECT_EQ(t.integer("i", 1, 0, 9), 9);
        t.finish();
        EXPECT_FALSE(r.has("z"));
        EXPECT_EQ(r.integer("z", 4, 0, 9), 4);
        EXPECT_EQ(r.number("z", 0.5, 0, 9), 0.5);
        EXPECT_EQ(r.boolean("z", true), true);
        EXPECT_EQ(r.text("z", "-"), "-");
        EXPECT_EQ(r.time("z", Time{5}), Time{5});
        EXPECT_EQ(r.integers("z", {3}), (std::vector<std::int64_t>{3}));
        TableReader absent = r.table("y");
        EXPECT_FALSE(absent.is_given());
        EXPECT_EQ(absent.integer("i", 2, 0, 9), 2);
        absent.finish();
      });
  EXPECT_EQ(nothing, "");
}

TEST(Reader, AWholeNumberIsANumber) {
  EXPECT_EQ(found("a = 1", [](TableReader& r) { EXPECT_EQ(r.number("a", 0, 0, 9), 1.0); }), "");
}

TEST(Reader, ARateMayBeAPartOfALinks) {
  constexpr std::int64_t link = 200'000'000'000;
  const auto with_link = [](TableReader& r) { EXPECT_EQ(r.rate("a", 1, link), 40'000'000); };
  EXPECT_EQ(found("a = \"link/5000\"", with_link), "");
  EXPECT_EQ(found("a = \"40Mbps\"", with_link), "");
  EXPECT_EQ(found("a = \"link/900000000000\"",
                  [](TableReader& r) { EXPECT_EQ(r.rate("a", 5, link), 1); }),
            "")
      << "never nothing";
  for (const char* text : {"link/0", "link/", "link/-2", "link/2.5", "link", "link/2x"}) {
    const auto otherwise = [](TableReader& r) { EXPECT_EQ(r.rate("a", 5, link), 5); };
    EXPECT_EQ(
        found("a = \"" + std::string(text) + "\"", otherwise).find("f.toml:1: a: must be a rate"),
        0u)
        << text;
  }
  EXPECT_NE(found("a = \"link/5000\"", [](TableReader& r) { EXPECT_EQ(r.rate("a", 5), 5); }), "")
      << "where there is no link";
}

TEST(Reader, NamesFileLineKeyAndWhatIsWrong) {
  const auto integer = [](TableReader& r) { EXPECT_EQ(r.integer("a", 7, 1, 9), 7); };
  EXPECT_EQ(found("\n\na = 0", integer),
            "f.toml:3: a: 0 is out of range, must be a whole number from 1 to 9");
  EXPECT_EQ(found("a = 2.5", integer), "f.toml:1: a: must be a whole number from 1 to 9");
  EXPECT_EQ(found("a = \"2\"", integer), "f.toml:1: a: must be a whole number from 1 to 9");
  const auto number = [](TableReader& r) { EXPECT_EQ(r.number("a", 0.5, 0, 1), 0.5); };
  for (const char* text : {"a = 1.5", "a = -1", "a = nan", "a = inf", "a = true", "a = \"1\""}) {
    EXPECT_EQ(found(text, number), "f.toml:1: a: must be a number from 0 to 1") << text;
  }
  EXPECT_EQ(found("a = 1", [](TableReader& r) { r.boolean("a", false); }),
            "f.toml:1: a: must be true or false");
  EXPECT_EQ(found("a = 1", [](TableReader& r) { r.text("a", ""); }),
            "f.toml:1: a: must be text in quotes");
  for (const char* text : {"a = 1", "a = \"1\"", "a = \"1KB\"", "a = 10:00:00"}) {
    EXPECT_EQ(found(text, [](TableReader& r) { EXPECT_EQ(r.time("a", Time{5}), Time{5}); }),
              "f.toml:1: a: must be a time such as \"1.5us\", in ps, ns, us, ms or s");
  }
  EXPECT_EQ(found("a = \"1us\"", [](TableReader& r) { EXPECT_EQ(r.rate("a", 5), 5); }),
            "f.toml:1: a: must be a rate such as \"400Gbps\", in bps, Kbps, Mbps, Gbps or Tbps");
  EXPECT_NE(found("a = 64000", [](TableReader& r) { EXPECT_EQ(r.bytes("a", 5), 5u); })
                .find("f.toml:1: a: must be an amount such as \"64KB\""),
            std::string::npos);
  for (const char* text : {"a = []", "a = [1, 2.5]", "a = [\"1\"]", "a = 3"}) {
    EXPECT_EQ(found(text, [](TableReader& r) { r.integers("a", {}); }),
              "f.toml:1: a: must be a list of whole numbers such as [4, 4]");
  }
}

TEST(Reader, AChoiceNamesWhatIsAllowed) {
  enum class Pick { one, two, three };
  constexpr std::array<std::string_view, 3> names = {"one", "two", "three"};
  EXPECT_EQ(found("a = \"two\"",
                  [&](TableReader& r) { EXPECT_EQ(r.choice("a", names, Pick::one), Pick::two); }),
            "");
  EXPECT_EQ(found("a = \"Two\"",
                  [&](TableReader& r) { EXPECT_EQ(r.choice("a", names, Pick::one), Pick::one); }),
            "f.toml:1: a: must be \"one\", \"two\" or \"three\"");
  EXPECT_EQ(found("a = 2", [&](TableReader& r) { r.choice("a", names, Pick::one); }),
            "f.toml:1: a: must be \"one\", \"two\" or \"three\"");
}

TEST(Reader, AKeyThatNobodyAskedForIsWrong) {
  EXPECT_EQ(found("b = 1\na = 2\nc = 3", [](TableReader& r) { r.integer("a", 1, 0, 9); }),
            "f.toml:1: b: is not a known key; there are a");
  EXPECT_EQ(found("[t]\nx = 1\n[t.u]\ny = 2",
                  [](TableReader& r) {
                    TableReader t = r.table("t");
                    t.integer("x", 1, 0, 9);
                    TableReader u = t.table("u");
                    u.integer("z", 1, 0, 9);
                    u.finish();
                    t.finish();
                  }),
            "f.toml:4: t.u.y: is not a known key; there are z");
  EXPECT_EQ(found("t = 5", [](TableReader& r) { r.table("t"); }),
            "f.toml:1: t: must be a table: [t]");
}

TEST(Reader, TheFirstFindingStays) {
  EXPECT_EQ(found("a = 10\nb = true\nc = 1",
                  [](TableReader& r) {
                    r.integer("a", 1, 0, 9);
                    r.integer("b", 1, 0, 9);
                  }),
            "f.toml:1: a: 10 is out of range, must be a whole number from 0 to 9");
}

TEST(Reader, WhatIsWrongWithAnAbsentKeyIsToldOfItsTable) {
  EXPECT_EQ(found("\n[t]\n", [](TableReader& r) { r.table("t").wrong("size", "is needed"); }),
            "f.toml:2: t.size: is needed");
}

// The tables of a file, of a variant and of the command line, as they lie over one another.
struct Layered {
  toml::table file = toml::parse(
      "a = 1\nb = 1\nc = 1\n[t]\nx = 1\ny = 1\n[t.u]\nz = 1\n[gone]\nx = 1\n"sv, "f.toml"sv);
  toml::table variant = toml::parse("b = 2\ngone = 2\nt.y = 2\nc = { x = 2 }\n"sv, "v.toml"sv);
  toml::table set = toml::parse("t.u.z = 3\ngone.y = 3\n"sv, "--set"sv);
  Findings findings{"f.toml"};
  TableReader root{{&file, &variant, &set}, "", 0, findings};
};

TEST(Layers, TheUppermostValueCounts) {
  Layered layered;
  TableReader& root = layered.root;
  EXPECT_EQ(root.integer("a", 0, 0, 9), 1);
  EXPECT_EQ(root.integer("b", 0, 0, 9), 2);
  TableReader t = root.table("t");
  EXPECT_EQ(t.integer("x", 0, 0, 9), 1);
  EXPECT_EQ(t.integer("y", 0, 0, 9), 2);
  TableReader u = t.table("u");
  EXPECT_EQ(u.integer("z", 0, 0, 9), 3);
  u.finish();
  t.finish();
  EXPECT_FALSE(layered.findings.any()) << layered.findings.first();
}

TEST(Layers, WhatIsNoTableHidesTheTablesBelow) {
  Layered layered;
  TableReader gone = layered.root.table("gone");
  EXPECT_FALSE(gone.has("x"));
  EXPECT_EQ(gone.integer("y", 0, 0, 9), 3);
  EXPECT_EQ(layered.root.table("c").integer("x", 0, 0, 9), 2) << "a table over a number";
  EXPECT_FALSE(layered.findings.any()) << layered.findings.first();
}

TEST(Layers, ErrorsNameTheFileAndLineOfTheValue) {
  Layered layered;
  TableReader t = layered.root.table("t");
  t.text("y", "");
  EXPECT_EQ(layered.findings.first(), "v.toml:3: t.y: must be text in quotes");
  Layered other;
  other.root.table("t").table("u").text("z", "");
  EXPECT_EQ(other.findings.first(), "--set: t.u.z: must be text in quotes");
  Layered third;
  third.root.integer("t", 0, 0, 9);
  EXPECT_EQ(third.findings.first().find("f.toml:4: t: must be"), 0u) << third.findings.first();
}

TEST(Layers, KeysOfAllAreKnownOrNot) {
  Layered layered;
  for (const char* key : {"a", "b", "c", "gone"}) layered.root.has(key);
  TableReader t = layered.root.table("t");
  t.integer("y", 0, 0, 9);
  t.table("u");
  t.finish();
  EXPECT_EQ(layered.findings.first(), "f.toml:5: t.x: is not a known key; there are u, y");
}

}  // namespace
}  // namespace tulle::config
