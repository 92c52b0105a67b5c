#include "study/tune_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tulle::study {
namespace {

TuneRequest request() {
  TuneRequest request;
  request.knobs = {"fabric.ecn.kmin=10KB..4MB", "fabric.path=flow,flowlet"};
  request.minimize = "fct_us.p99";
  return request;
}

std::string refused(const TuneRequest& request) {
  auto settings = tune_settings(request, scenario::as_member);
  return settings ? "" : settings.error().message;
}

TEST(TuneRequestTest, IsUnderstood) {
  TuneRequest wanted = request();
  wanted.limits = {"pauses<=0"};
  wanted.knobs.emplace_back("fabric.path=spray,flow");  // replaces the one before
  auto settings = tune_settings(wanted, scenario::as_member);
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_FALSE(settings->maximizes);
  EXPECT_EQ(settings->figure, "fct_us.p99");
  ASSERT_EQ(settings->knobs.size(), 2u);
  EXPECT_EQ(settings->knobs[1].values.size(), 2u);
  EXPECT_EQ(settings->seeds, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(settings->validation_seeds.size(), 5u);
  EXPECT_EQ(settings->limits.size(), 1u);
}

TEST(TuneRequestTest, WhatIsWrongNamesItsMember) {
  TuneRequest wanted = request();
  wanted.maximize = "busbw_gbytes";
  EXPECT_EQ(refused(wanted), "name the objective: minimize fct_us.p99, or maximize busbw_gbytes");
  wanted = request();
  wanted.budget = 1;
  EXPECT_EQ(refused(wanted), "budget 1: must be 2 to 10000");
  wanted = request();
  wanted.validation_seeds = "2,3";
  EXPECT_EQ(refused(wanted), "seed 2 is searched on: name others with validation_seeds");
  wanted = request();
  wanted.seeds = "x";
  EXPECT_EQ(refused(wanted).find("seeds \"x\": write whole numbers"), 0u);
  wanted = request();
  wanted.knobs = {"seed=1..4"};
  EXPECT_EQ(refused(wanted), "knob seed: seeds are drawn, not tuned: choose them with seeds");
  wanted = request();
  wanted.knobs.clear();
  EXPECT_NE(refused(wanted), "");
  wanted = request();
  wanted.seeds = "1000..1999";
  wanted.budget = 200;
  EXPECT_NE(refused(wanted).find("are too many"), std::string::npos);
}

}  // namespace
}  // namespace tulle::study
