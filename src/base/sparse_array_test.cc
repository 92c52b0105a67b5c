#include "base/sparse_array.h"

#include <gtest/gtest.h>

#include <string>

namespace tulle {
namespace {

TEST(SparseArray, HasTheElementsThatWereMade) {
  SparseArray<std::string> array(4);
  EXPECT_EQ(array.size(), 4u);
  std::string& third = array.emplace(2, "third");
  array.emplace(0, 40, 'x');
  EXPECT_EQ(&third, &array[2]);
  EXPECT_EQ(&third, &array.places()[2]);
  EXPECT_TRUE(array.has(0));
  EXPECT_FALSE(array.has(1));
  EXPECT_TRUE(array.has(2));
  EXPECT_FALSE(array.has(4));
  array[2] += "!";
  std::string all;
  std::as_const(array).for_each([&](const std::string& each) { all += each.back(); });
  EXPECT_EQ(all, "x!");
}

TEST(SparseArray, EndsItsElementsAlone) {
  auto element = std::make_shared<int>(7);
  {
    SparseArray<std::shared_ptr<int>> array(1'000'000);
    array.emplace(999'999, element);
    EXPECT_EQ(element.use_count(), 2);
  }
  EXPECT_EQ(element.use_count(), 1);
}

TEST(SparseArrayDeathTest, AMissingElementIsABug) {
  SparseArray<int> array(3);
  array.emplace(1, 5);
  EXPECT_DEATH(static_cast<void>(array[0]), "internal error");
  EXPECT_DEATH(static_cast<void>(array[3]), "internal error");
  EXPECT_DEATH(array.emplace(1, 6), "internal error");
}

}  // namespace
}  // namespace tulle
