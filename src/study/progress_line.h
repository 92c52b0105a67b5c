#pragma once

// What a person at a terminal sees of a study: a line of progress, and notes, on standard error.

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "study/monitor.h"

namespace tulle::study {

struct ProgressOptions {
  std::string heading;   // printed on standard output once the first run can begin; empty: none
  std::string prefix;    // at the beginning of the line of progress
  bool is_shown = true;  // false: another process speaks
};

// Shows the line only if standard error is a terminal. It never ends the work: a class that derives
// from this one may.
class ProgressLine : public Monitor {
 public:
  explicit ProgressLine(ProgressOptions options = {});
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() override;

  void ready() override;
  std::unique_ptr<Run> begin(const std::string& name) override;
  void note(const std::string& text) override;
  void show(const std::string& text) override;

 private:
  class Entry;
  std::string text() const;

  std::mutex mutex_;
  const ProgressOptions options_;
  std::vector<const Entry*> entries_;  // of the runs under way, in the order of their beginnings
  std::chrono::steady_clock::time_point next_;
  bool is_terminal_;
  bool shown_ = false;
};

}  // namespace tulle::study
