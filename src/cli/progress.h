#pragma once

// The line of progress of simulations, for a person at a terminal. Several runs may go on at the
// same time, each in a thread of its own.

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "experiment/run.h"

namespace tulle::cli {

class ProgressLine {
 public:
  // `prefix` stands at the beginning of the line.
  explicit ProgressLine(std::string prefix);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();

  // Says something beside the line, on standard error.
  void note(const std::string& text);

  // A run that goes on as long as this object lives.
  class Entry {
   public:
    Entry(ProgressLine& line, std::string name);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();
    void show(const experiment::Progress& progress);

   private:
    friend class ProgressLine;
    using Clock = std::chrono::steady_clock;
    double elapsed() const;
    // Returns a negative number if that is not known yet.
    double seconds_left() const;

    ProgressLine& line_;
    std::string name_;
    Clock::time_point start_ = Clock::now();
    experiment::Progress progress_;
  };

 private:
  std::string text() const;

  std::mutex mutex_;
  const std::string prefix_;
  std::vector<const Entry*> entries_;  // of the runs that go on, in the order of their beginnings
  std::chrono::steady_clock::time_point next_;
  bool is_terminal_;
  bool shown_ = false;
};

}  // namespace tulle::cli
