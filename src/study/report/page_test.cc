#include "study/report/page.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

TEST(Page, TextIsShownAsItIs) {
  EXPECT_EQ(as_markdown("a *b* <c> `d` a_b _e_ f|g\n"),
            "a \\*b\\* \\<c\\> \\`d\\` a_b \\_e\\_ f\\|g\n");
  EXPECT_EQ(as_markdown("- no list\n+ nor this\n# no heading\n12. no number\n1.5 us\n-x\n"),
            "\\- no list\n\\+ nor this\n\\# no heading\n12\\. no number\n1.5 us\n-x\n");
  EXPECT_EQ(as_markdown("text\n\n    2 * 3 < 7\n"), "text\n\n    2 * 3 < 7\n");
}

TEST(Page, HasTitleTextTableAndPicture) {
  const Results results{"s", "T <1>", "What it shows.\n", {Outcome{}}};
  const std::string with = gallery_page(results, true);
  EXPECT_EQ(with.find("# T \\<1\\>\n\n!["), 0u) << with;
  EXPECT_NE(with.find("\nWhat it shows.\n\n| variant | flows |\n"), std::string::npos) << with;
  EXPECT_EQ(gallery_page(results, false).find("!["), std::string::npos);
}

TEST(Page, TheIndexHasALineForEach) {
  const std::string index = gallery_index({{"a", "First | one", true}, {"b", "Second", false}});
  EXPECT_NE(index.find("| [<img src=\"a.svg\" width=\"280\" alt=\"a\">](a.md) | [**a**](a.md): "
                       "First \\| one |\n"),
            std::string::npos)
      << index;
  EXPECT_NE(index.find("|  | [**b**](b.md): Second |\n"), std::string::npos) << index;
}

}  // namespace
}  // namespace tulle::report
