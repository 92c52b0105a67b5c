#include "study/report/page.h"

#include <gtest/gtest.h>

#include "study/report/markdown.h"

namespace tulle::report {
namespace {

TEST(Page, TextIsShownAsItIs) {
  EXPECT_EQ(as_markdown("a *b* <c> `d` a_b _e_ f|g\n"),
            "a \\*b\\* \\<c\\> \\`d\\` a_b \\_e\\_ f\\|g\n");
  EXPECT_EQ(as_markdown("- no list\n+ nor this\n# no heading\n12. no number\n1.5 us\n-x\n"),
            "\\- no list\n\\+ nor this\n\\# no heading\n12\\. no number\n1.5 us\n-x\n");
  EXPECT_EQ(as_markdown("text\n\n    2 * 3 < 7\n"), "text\n\n    2 * 3 < 7\n");
  EXPECT_EQ(as_markdown("[a](b) ![c](d) &lt; (e)!\n"), "\\[a\\](b) !\\[c\\](d) \\&lt; (e)!\n");
}

// Four blanks begin code only where no paragraph or list continues.
TEST(Page, TextIsNoMarkupWhereverItStands) {
  EXPECT_EQ(as_markdown("text\n    <img>\n"), "text\n    \\<img\\>\n");
  EXPECT_EQ(as_markdown("    a<b\n    c<d\n\n    e<f\n"), "    a<b\n    c<d\n\n    e<f\n");
  EXPECT_EQ(as_markdown("  - a\n\n    <img>\n"), "  \\- a\n\n    <img>\n");
  EXPECT_EQ(as_markdown("2008) a\n2008) b\n01) c\n"), "2008\\) a\n2008) b\n01\\) c\n");
  EXPECT_EQ(as_markdown("1) a\n---\n===\n-\n"), "1\\) a\n\\---\n\\===\n\\-\n");
  EXPECT_EQ(as_markdown("    a\r<img>\r\n"), "    a?<img>\n") << "a line, not two";
}

TEST(Page, NamesOfFilesAreNotMarkup) {
  const std::string name = "z\"><img src=x>|`[1](2)";
  const Results results{name, "T\n- l", "", {Outcome{}}};
  const std::string url = "z%22%3E%3Cimg%20src%3Dx%3E%7C%60%5B1%5D%282%29";
  const std::string page = gallery_page(results, true);
  EXPECT_TRUE(page.starts_with("# T?- l\n\n![z\"\\>\\<img src=x\\>\\|\\`\\[1\\](2) by variant](" +
                               url + ".svg)\n"))
      << page;
  EXPECT_NE(page.find("``build/bin/tulle sim " + name + "``"), std::string::npos) << page;
  const std::string index = gallery_index({{name, "T", true}});
  EXPECT_NE(index.find("| [<img src=\"" + url +
                       ".svg\" width=\"280\" "
                       "alt=\"z&#34;&#62;&#60;img src=x&#62;&#124;`[1](2)\">](" +
                       url + ".md) |"),
            std::string::npos)
      << index;
}

TEST(Page, CellsAreNotMarkup) {
  Outcome outcome;
  outcome.variant = "<img>[a](b)|c\nd";
  const std::string page = gallery_page({"s", "T", "", {outcome}}, false);
  EXPECT_NE(page.find("\n| \\<img\\>\\[a\\](b)\\|c?d | "), std::string::npos) << page;
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
