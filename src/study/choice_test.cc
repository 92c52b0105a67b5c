#include "study/choice.h"

#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"

namespace tulle::study {
namespace {

constexpr char two_variants[] = R"(title = "Two"
[topology]
kind = "single-switch"
hosts = 4
link_rate = "100Gbps"
[traffic]
pattern = "incast"
senders = 3
bytes = "16KB"
[[variant]]
name = "one"
[[variant]]
name = "other"
)";

class ChoiceTest : public testing::Test {
 protected:
  ChoiceTest() {
    folder.write("two.toml", two_variants);
    choice.scenarios = {folder.path("two.toml")};
  }
  std::string refused(bool has_ranks = false) const {
    auto chosen = choose(choice, has_ranks, scenario::as_member);
    if (chosen) return "";
    EXPECT_TRUE(chosen.error().is_misuse);
    return chosen.error().message;
  }

  Folder folder;
  Choice choice;
};

TEST_F(ChoiceTest, AllVariantsOrOne) {
  auto all = choose(choice, false, scenario::as_member);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->variants, (std::vector<std::size_t>{0, 1}));
  choice.variant = "other";
  EXPECT_EQ(choose(choice, false, scenario::as_member)->variants, std::vector<std::size_t>{1});
  choice.variant = "neither";
  EXPECT_NE(refused(), "");
}

TEST_F(ChoiceTest, ACaptureHasOneVariantOfPackets) {
  choice.capture = "packets.pcapng";
  EXPECT_EQ(refused(),
            "capture writes one file, but scenario two has 2 variants: choose one with variant");
  choice.variant = "one";
  choice.level = flow_level;
  EXPECT_EQ(refused(), "capture writes packets, and the flow level has none: take level packet");
}

TEST_F(ChoiceTest, LevelsHaveConditions) {
  choice.unvalidated = true;
  EXPECT_EQ(refused(), "unvalidated is for level flow");
  choice.level = flow_level;
  EXPECT_EQ(refused(), "");
  EXPECT_NE(refused(true), "");
}

TEST_F(ChoiceTest, OneScenarioOrTwoTables) {
  choice.scenarios.emplace_back("incast");
  EXPECT_EQ(refused(), "several scenarios are named: name one, or add gallery to run them all");
  choice.scenarios.clear();
  EXPECT_NE(refused().find("give both topology and flows"), std::string::npos);
  choice.topology = choice.flows = "none.csv";
  choice.fabric = "infiniband";
  choice.congestion_control = "dcqcn-hpcc";
  EXPECT_EQ(refused(), "congestion_control dcqcn-hpcc works only on RoCE: choose fabric roce");
}

}  // namespace
}  // namespace tulle::study
