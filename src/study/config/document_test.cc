#include "study/config/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace tulle::config {
namespace {

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string error_of(const std::string& text) {
  const auto parsed = parse_toml(text, "f.toml");
  return parsed ? "" : parsed.error().message;
}

constexpr char too_deep[] = "keys or values are nested more than 32 deep";

// Each of these would end the process: tables are destroyed by recursion.
TEST(Document, WhatLiesTooDeepIsRefused) {
  constexpr int many = 40'000;
  EXPECT_EQ(error_of("x = 1\n" + repeated("a.", many) + "a = 1\n"),
            std::string("f.toml:2: ") + too_deep);
  EXPECT_EQ(error_of("[" + repeated("a.", many) + "a]\n"), std::string("f.toml:1: ") + too_deep);
  EXPECT_EQ(error_of(repeated("\"=\" . ", many) + "a = 1\n"), std::string("f.toml:1: ") + too_deep);
  EXPECT_EQ(error_of("a = " + repeated("[", many) + repeated("]", many) + "\n"),
            std::string("f.toml:1: ") + too_deep);
  EXPECT_EQ(error_of("a = " + repeated("{b.c=", many) + "1" + repeated("}", many) + "\n"),
            std::string("f.toml:1: ") + too_deep);
}

// A long string may have one or two quotation marks of its own before the last three.
TEST(Document, WhatComesBehindALongStringCounts) {
  const std::string deep = "{" + repeated("a.", 1'000) + "a=1}";
  for (const std::string mark : {"\"", "'"}) {
    for (int more = 0; more <= 2; ++more) {
      const std::string text = fmt::format("{}q{}", repeated(mark, 3), repeated(mark, 3 + more));
      EXPECT_EQ(error_of(fmt::format("x = [{}]\n", text)), "");
      EXPECT_EQ(error_of(fmt::format("x = [{}, {}]\n", text, deep)),
                std::string("f.toml:1: ") + too_deep);
    }
  }
}

// A text of quotation marks alone is many strings, each of which ends within a few characters.
TEST(Document, ManyQuotationMarksTakeNoTime) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(error_of(std::string(1'000'000, '\'')), "");
  EXPECT_NE(error_of(std::string(1'000'000, '"')), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(Document, DotsAndBracketsThatAreNoKeysDoNotCount) {
  const std::string dots = repeated(".", 100) + repeated("[{", 100);
  for (const std::string& text :
       {fmt::format("a = \"{}\"\n", dots), fmt::format("a = '{}'\n", dots),
        fmt::format("a = \"\"\"\n\\\"{}\n\"\"\"\nb = '''{}'''\n", dots, dots),
        fmt::format("# {}\na = 1\n", dots), fmt::format("a = [{}0.2]\n", repeated("0.1, ", 100)),
        std::string("a = \"\"\nb = ''\n[c.b]\n"), std::string("a = [[1.5, 2.5], [3.5]]\n")}) {
    EXPECT_EQ(error_of(text), "") << text;
  }
}

TEST(Document, AsDeepAsIsAllowed) {
  EXPECT_EQ(error_of(repeated("a.", 31) + "a = " + repeated("[", 32) + repeated("]", 32) + "\n"),
            "");
  EXPECT_NE(error_of(repeated("a.", 32) + "a = 1\n"), "");
}

}  // namespace
}  // namespace tulle::config
