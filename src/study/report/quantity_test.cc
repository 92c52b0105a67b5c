#include "study/report/quantity.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

TEST(Quantity, Times) {
  EXPECT_EQ(parse_time("1.5us"), Time{1'500'000});
  EXPECT_EQ(parse_time("1.5 us"), Time{1'500'000});
  EXPECT_EQ(parse_time("0s"), Time::zero());
  EXPECT_EQ(parse_time("1ps"), Time{1});
  EXPECT_EQ(parse_time("0.001ns"), Time{1});
  EXPECT_EQ(parse_time("0.1ns"), Time{100}) << "though 0.1 is no binary fraction";
  EXPECT_EQ(parse_time("1e3ms"), Time::seconds(1));
  EXPECT_EQ(parse_time("9000000s"), Time::seconds(9'000'000));
}

TEST(Quantity, TimesThatAreNone) {
  for (const char* text :
       {"",       "us",     "1",     "1 ",    "1.5",      "us1",      "1us ",  "1 u s",  "1US",
        "1min",   "-1us",   "- 1us", "+1us",  "nanus",    "infs",     "inf",   "1e400s", "1,5us",
        "0x10us", "1..5us", " 1us",  "0.5ps", "1.0001ps", "9300000s", "1e30s", "1us2us"}) {
    EXPECT_FALSE(parse_time(text)) << "'" << text << "'";
  }
}

TEST(Quantity, Rates) {
  EXPECT_EQ(parse_rate("400Gbps"), 400'000'000'000);
  EXPECT_EQ(parse_rate("54.54Gbps"), 54'540'000'000);
  EXPECT_EQ(parse_rate("1.6Tbps"), 1'600'000'000'000);
  EXPECT_EQ(parse_rate("1bps"), 1);
  for (const char* text : {"0bps", "0.5bps", "400", "400G", "400gbps", "400Gb/s", "400GBps",
                           "-1Gbps", "10000000Tbps"}) {
    EXPECT_FALSE(parse_rate(text)) << "'" << text << "'";
  }
}

TEST(Quantity, Bytes) {
  EXPECT_EQ(parse_bytes("64KB"), 64'000u);
  EXPECT_EQ(parse_bytes("64KiB"), 65'536u);
  EXPECT_EQ(parse_bytes("1.5MiB"), 1'572'864u);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(parse_bytes("1TiB"), 1ull << 40);
  EXPECT_EQ(parse_bytes("0B"), 0u);
  for (const char* text :
       {"64", "64K", "64kb", "64kB", "0.5B", "1.0005KB", "64 K B", "-1B", "1e19B"}) {
    EXPECT_FALSE(parse_bytes(text)) << "'" << text << "'";
  }
}

TEST(Quantity, ForPeople) {
  EXPECT_EQ(time_text(Time::zero()), "0 ps");
  EXPECT_EQ(time_text(Time{999}), "999 ps");
  EXPECT_EQ(time_text(Time{1'500'000}), "1.50 us");
  EXPECT_EQ(time_text(Time::seconds(120)), "120 s");
  EXPECT_EQ(rate_text(83.2e9), "83.2 Gbps");
  EXPECT_EQ(rate_text(400e9), "400 Gbps");
  EXPECT_EQ(bytes_text(131'008), "131 KB");
  EXPECT_EQ(bytes_text(0), "0 B");
}

}  // namespace
}  // namespace tulle::report
