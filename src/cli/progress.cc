#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/ranks.h"
#include "report/quantity.h"

namespace tulle::cli {
namespace {

constexpr std::chrono::milliseconds interval(200);
constexpr std::size_t names_max = 3;  // so that the line fits on a terminal

std::string time_left(double seconds) {
  return seconds < 0 ? "time left unknown" : fmt::format("about {:.0f} s left", seconds);
}

}  // namespace

ProgressLine::ProgressLine(std::string prefix)
    : prefix_(std::move(prefix)),
      next_(std::chrono::steady_clock::now() + interval),
      is_terminal_(is_first_rank() && isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressLine::note(const std::string& text) {
  if (!is_first_rank()) return;
  const std::lock_guard lock(mutex_);
  fmt::print(stderr, "{}tulle: {}\n", shown_ ? "\r\033[K" : "", text);
  shown_ = false;
}

ProgressLine::Entry::Entry(ProgressLine& line, std::string name)
    : line_(line), name_(std::move(name)) {
  const std::lock_guard lock(line_.mutex_);
  line_.entries_.push_back(this);
}

ProgressLine::Entry::~Entry() {
  const std::lock_guard lock(line_.mutex_);
  std::erase(line_.entries_, this);
}

void ProgressLine::Entry::show(const experiment::Progress& progress) {
  const std::lock_guard lock(line_.mutex_);
  progress_ = progress;
  if (!line_.is_terminal_ || Clock::now() < line_.next_) return;
  line_.next_ = Clock::now() + interval;
  fmt::print(stderr, "\r\033[K{}", line_.text());
  std::fflush(stderr);
  line_.shown_ = true;
}

double ProgressLine::Entry::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

double ProgressLine::Entry::seconds_left() const {
  const double done = progress_.share_done;
  return done > 0.001 ? elapsed() * (1 - done) / done : -1;
}

std::string ProgressLine::text() const {
  if (entries_.size() == 1) {
    const Entry& run = *entries_.front();
    return fmt::format("{}{}simulated {}, {} of {} flows finished, {:.2f} million events/s, {}",
                       prefix_, run.name_.empty() ? "" : run.name_ + ": ",
                       report::time_text(run.progress_.now), run.progress_.flows_done,
                       run.progress_.flows,
                       static_cast<double>(run.progress_.events) / run.elapsed() * 1e-6,
                       time_left(run.seconds_left()));
  }
  std::string runs;
  double longest = 0;
  bool is_known = true;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& run = *entries_[i];
    const double left = run.seconds_left();
    is_known = is_known && left >= 0;
    longest = std::max(longest, left);
    if (i >= names_max) continue;
    runs +=
        fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", run.name_, 100 * run.progress_.share_done);
  }
  if (entries_.size() > names_max) {
    runs += fmt::format(" and {} more", entries_.size() - names_max);
  }
  return fmt::format("{}{}, {} for these", prefix_, runs, time_left(is_known ? longest : -1));
}

}  // namespace tulle::cli
