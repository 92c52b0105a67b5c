#include "terminal/command_line.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "terminal/complete.h"

namespace tulle::terminal {
namespace {

// A program `ship` with a command `sail`, which has a file, a speed and a flag.
class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    prepare(app, "1.2");
    sail = app.add_subcommand("sail", "Go to sea");
    sail->add_option("chart", chart, "The chart to follow")->type_name("FILE");
    sail->add_option("--speed,-s", speed, "Knots (5)")->type_name("N")->check(from_to(1, 20));
    sail->add_option("--rig", rig, "The rig")->type_name("sloop|ketch");
    sail->add_flag("--fast", fast, "Set all sails");
    add_older_name(*sail, "--knots", "--speed", older);
    sail->callback([this] { status = 7; });
  }
  Result<int> run(const std::vector<std::string>& words) {
    return run_command(app, CommandLine(words), status);
  }
  std::string error_of(const std::vector<std::string>& words) {
    auto ran = run(words);
    return ran ? "" : ran.error().message;
  }

  CLI::App app{"Ships", "ship"};
  CLI::App* sail = nullptr;
  std::string chart, rig, older;
  bool fast = false;
  int speed = 5;
  int status = 0;
};

TEST_F(CommandLineTest, WordsAfterDashesAreAnotherPrograms) {
  const CommandLine line({"run", "-v", "--", "cat", "--", "x"});
  EXPECT_EQ(line.words, (std::vector<std::string>{"run", "-v"}));
  EXPECT_EQ(line.after_dashes, (std::vector<std::string>{"cat", "--", "x"}));
  EXPECT_EQ(line.first(), "run");
  EXPECT_EQ(CommandLine({}).first(), "");
}

TEST_F(CommandLineTest, ACommandSetsTheStatus) {
  auto ran = run({"sail", "--speed", "9"});
  ASSERT_TRUE(ran);
  EXPECT_EQ(*ran, 7);
  EXPECT_EQ(speed, 9);
}

TEST_F(CommandLineTest, MistakesSuggestWhatWasMeant) {
  EXPECT_EQ(error_of({"sial"}),
            "no command \"sial\"; did you mean sail? `ship --help` lists the commands");
  EXPECT_EQ(error_of({"sail", "--sped=3"}),
            "no option \"--sped\"; did you mean --speed? `ship sail --help` lists the options");
  EXPECT_EQ(error_of({"sail", "--speed", "40"}),
            "--speed: 40 is no number from 1 to 20 (see `ship sail --help`)");
  auto ran = run({"sail", "--speed", "40"});
  ASSERT_FALSE(ran);
  EXPECT_TRUE(ran.error().is_misuse);
}

// A variable of a shell may not be set. With --rig "$RIG", that must not mean any rig.
TEST_F(CommandLineTest, NoValueIsEmpty) {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"sail", "--rig", ""},
                             {"sail", "--rig="},
                             {"sail", ""},
                             {"sail", "--knots", ""},
                             {"sail", "-s", ""},
                             {"sail", "--rig=", "sloop"},
                             {"sail", "--fast", "--rig=", "sloop"},
                             {"sail", "x", "--rig=", "sloop"}}) {
    EXPECT_NE(error_of(words), "") << words[1];
  }
  EXPECT_EQ(error_of({"sail", "--rig", ""}),
            "--rig: the value is empty: name one, or leave the option out (see `ship sail "
            "--help`)");
  // Another program's words are its own.
  sail->prefix_command();
  ASSERT_TRUE(run({"sail", "--rig", "ketch", "x", "y", "--rig=", "z"}));
  EXPECT_EQ(sail->remaining(), (Words{"y", "--rig=", "z"}));
}

TEST_F(CommandLineTest, OptionsWithoutEffectAreRefused) {
  sail->callback([this] {
    refuse_others(*sail, "--fast");
    const std::array<std::string, 2> vain = {"chart", "--speed"};
    if (sail->count("--rig") > 0) refuse_given(*sail, vain, "with a rig");
  });
  EXPECT_EQ(error_of({"sail", "--fast", "--speed", "3"}),
            "--speed has no effect with --fast: leave one of them out (see `ship sail --help`)");
  EXPECT_TRUE(error_of({"sail", "--fast", "--knots", "3"}).starts_with("--knots has no effect"));
  EXPECT_EQ(error_of({"sail", "x", "--rig", "ketch"}),
            "FILE has no effect with a rig: leave one of them out (see `ship sail --help`)");
  EXPECT_EQ(error_of({"sail", "x", "--speed", "3"}), "");
  EXPECT_EQ(error_of({"sail", "--fast"}), "");
}

TEST_F(CommandLineTest, ACommandLineIsRepeatedAsAShellTakesIt) {
  ASSERT_TRUE(run({"sail", "my chart", "--speed", "9", "--rig", "it's", "--fast"}));
  constexpr std::array<std::string_view, 1> without = {"--speed"};
  EXPECT_EQ(repeated(*sail, without), "ship sail 'my chart' --rig 'it'\\''s' --fast");
}

TEST_F(CommandLineTest, OnlyOneOfTwoNamesIsGiven) {
  EXPECT_NE(error_of({"sail", "--knots", "3", "--speed", "4"}), "");
  EXPECT_EQ(completions(app, {"sail", "--k"}, {}), std::vector<std::string>());
}

TEST_F(CommandLineTest, ShellsAreToldWhatMayComeNext) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(completions(app, {"s"}, {}), Words{"sail"});
  EXPECT_EQ(completions(app, {"sail", "--f"}, {}), Words{"--fast"});
  EXPECT_EQ(completions(app, {"sail", "--rig", "k"}, {}), Words{"ketch"});
  EXPECT_EQ(completions(app, {"sail", ""}, {}), Words{":files"});
  const ValueLists lists = {{"N", {[] { return Words{"10", "12"}; }, true}}};
  EXPECT_EQ(completions(app, {"sail", "--speed", "10,1"}, lists),
            (Words{"10,10", "10,12", ":nospace"}));
}

TEST_F(CommandLineTest, HelpHasColumns) {
  const std::string help = sail->help();
  EXPECT_NE(help.find("  -s, --speed=N           Knots (5)\n"), std::string::npos) << help;
  EXPECT_NE(help.find("      --rig=sloop|ketch   The rig\n"), std::string::npos) << help;
  EXPECT_EQ(help.find("knots="), std::string::npos) << help;
}

}  // namespace
}  // namespace tulle::terminal
