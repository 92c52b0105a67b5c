#pragma once

// What the simulating commands say to a person at a terminal: a line of progress, notes, and the
// results. Ctrl-C ends the runs that are under way.

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/monitor.h"

namespace tulle::cli {

// After catch_interrupts(), Ctrl-C ends the run that is under way, and no more begin.
// is_interrupted() returns true once Ctrl-C was pressed.
void catch_interrupts();
bool is_interrupted();
inline constexpr char interrupted_results[] =
    "interrupted: the results cover only what was simulated by then";

// Prints the text, and fails if the disk is full.
Result<void> print(const std::string& text);

// Shows a line of progress on standard error, if that is a terminal. Of several ranks, the first
// one speaks. Until ready() or the first run, Ctrl-C ends the program.
class Terminal final : public study::Monitor {
 public:
  // The heading is printed on standard output once the first run can begin; empty: none. `prefix`
  // is at the beginning of the line of progress.
  explicit Terminal(std::string heading = "", std::string prefix = "");
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() override;

  bool goes_on() const override { return !is_interrupted(); }
  void ready() override;
  std::unique_ptr<Run> begin(const std::string& name) override;
  void note(const std::string& text) override;
  void show(const std::string& text) override;
  void say_when_ended(const std::string& line) override;

 private:
  class Entry;
  std::string text() const;

  std::mutex mutex_;
  const std::string heading_;
  const std::string prefix_;
  std::vector<const Entry*> entries_;  // of the runs under way, in the order of their beginnings
  std::chrono::steady_clock::time_point next_;
  bool is_terminal_;
  bool shown_ = false;
};

}  // namespace tulle::cli
