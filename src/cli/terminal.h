#pragma once

// The simulator's one user: the ranks that mpirun may have started, Ctrl-C, and standard output.

#include <memory>
#include <string>

#include "base/quoted.h"
#include "base/result.h"
#include "study/joined_ranks.h"
#include "study/progress_line.h"

namespace tulle::cli {

// Returns the ranks of this process, of which there is one group.
study::JoinedRanks& ranks();
// Finds out whether there are several. Ranks other than 0 print nothing from now on. Called before
// the command line is read, for the commands that simulate.
Result<void> look_for_ranks();

// After catch_interrupts(), Ctrl-C ends the run that is under way, and no more begin.
// is_interrupted() returns true once Ctrl-C was pressed.
void catch_interrupts();
bool is_interrupted();
inline constexpr char interrupted_results[] =
    "interrupted: the results cover only what was simulated by then";

// Print the text without what would control a terminal, since files that others wrote name variants
// and traffic. They fail if the disk is full.
Result<void> print(const std::string& text);
Result<void> print_json(const std::string& json);

// Of several ranks, the first one speaks. Until ready() or the first run, Ctrl-C ends the program;
// later, it ends the work.
class Terminal final : public study::ProgressLine {
 public:
  explicit Terminal(const std::string& heading = "", const std::string& prefix = "")
      : ProgressLine({heading, prefix, ranks().is_first()}) {}

  bool goes_on() const override { return !is_interrupted(); }
  void ready() override;
  std::unique_ptr<Run> begin(const std::string& name) override;
  void say_when_ended(const std::string& line) override {
    ranks().print_when_ended(one_line(line));
  }
};

}  // namespace tulle::cli
