#include "study/tuning/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace tulle::tuning {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

bool always() { return true; }

// Scores each place by itself, and counts.
class Counted {
 public:
  explicit Counted(std::function<double(const Place&)> score) : score_(std::move(score)) {}
  std::vector<double> operator()(std::span<const Place> places) {
    std::vector<double> scores;
    for (const Place& place : places) {
      places_.push_back(place);
      scores.push_back(score_(place));
    }
    return scores;
  }
  std::size_t count() const { return places_.size(); }
  const std::vector<Place>& places() const { return places_; }

 private:
  std::function<double(const Place&)> score_;
  std::vector<Place> places_;
};

double bowl(const Place& place) {
  double sum = 0;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const double off = place[i] - 0.2 - 0.1 * static_cast<double>(i);
    sum += off * off;
  }
  return sum;
}

TEST(Search, FindsTheBottomOfABowl) {
  Counted scores(bowl);
  const Found found = search({4, 200, 1}, std::ref(scores), always);
  EXPECT_LT(found.score, 1e-3);
  EXPECT_EQ(found.score, bowl(found.place));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found.place[i], 0.2 + 0.1 * static_cast<double>(i), 0.05);
  }
}

TEST(Search, KeepsToItsBudgetAndCube) {
  for (const std::size_t budget : {1u, 2u, 3u, 50u}) {
    Counted scores(bowl);
    const Found found = search({3, budget, 1}, std::ref(scores), always);
    EXPECT_EQ(scores.count(), budget);
    EXPECT_EQ(std::set(scores.places().begin(), scores.places().end()).size(), budget)
        << "no place is scored twice";
    EXPECT_EQ(found.scored, scores.count());
    for (const Place& place : scores.places()) {
      EXPECT_TRUE(std::ranges::all_of(place, [](double x) { return x >= 0 && x <= 1; }));
    }
  }
}

TEST(Search, TheFirstHalfCoversEachKnobsRange) {
  Counted scores([](const Place&) { return infinity; });
  const Found found = search({5, 40, 7}, std::ref(scores), always);
  ASSERT_EQ(scores.count(), 20u) << "nothing leads downhill";
  EXPECT_TRUE(found.place.empty());
  for (std::size_t knob = 0; knob < 5; ++knob) {
    std::set<int> parts;
    for (const Place& place : scores.places()) parts.insert(static_cast<int>(place[knob] * 20));
    EXPECT_EQ(parts.size(), 20u) << "each twentieth of knob " << knob << " has one place";
  }
}

TEST(Search, AHoleWithoutScoresIsAvoided) {
  Counted scores([](const Place& place) { return place[0] < 0.5 ? infinity : place[0]; });
  const Found found = search({1, 60, 1}, std::ref(scores), always);
  EXPECT_GE(found.place[0], 0.5);
  EXPECT_LT(found.score, 0.51);
}

TEST(Search, TheSameSearchGoesTheSameWay) {
  Counted one(bowl), other(bowl), seeded(bowl);
  search({3, 60, 5}, std::ref(one), always);
  search({3, 60, 5}, std::ref(other), always);
  search({3, 60, 6}, std::ref(seeded), always);
  EXPECT_EQ(one.places(), other.places());
  EXPECT_NE(one.places(), seeded.places());
}

TEST(Search, EndsWhenItIsToldTo) {
  Counted scores(bowl);
  const Found found = search({2, 100, 1}, std::ref(scores), [&] { return scores.count() < 60; });
  EXPECT_EQ(scores.count(), 60u);
  EXPECT_FALSE(found.place.empty());
}

TEST(Search, AnExceptionComesThrough) {
  std::size_t left = 55;
  const auto scores = [&](std::span<const Place> places) -> std::vector<double> {
    if (places.size() > left) throw std::runtime_error("enough");
    left -= places.size();
    std::vector<double> all;
    for (const Place& place : places) all.push_back(bowl(place));
    return all;
  };
  EXPECT_THROW(search({2, 100, 1}, scores, always), std::runtime_error);
}

}  // namespace
}  // namespace tulle::tuning
