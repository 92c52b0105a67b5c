#include "study/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/quoted.h"
#include "study/report/quantity.h"

namespace tulle::study {
namespace {

constexpr std::chrono::milliseconds interval(200);
constexpr std::string_view erased = "\r\033[K";  // the line of progress that is shown
constexpr std::size_t names_max = 3;             // so that the line fits on a terminal

std::string time_left(double seconds) {
  return seconds < 0 ? "time left unknown" : fmt::format("about {:.0f} s left", seconds);
}

}  // namespace

// A run, as long as it continues.
class ProgressLine::Entry final : public Run {
 public:
  Entry(ProgressLine& line, std::string name) : line_(line), name_(std::move(name)) {
    const std::lock_guard lock(line_.mutex_);
    line_.entries_.push_back(this);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() override {
    const std::lock_guard lock(line_.mutex_);
    std::erase(line_.entries_, this);
  }

  void show(const experiment::Progress& progress) override;
  double elapsed() const;
  // Returns a negative number if that is not known yet.
  double seconds_left() const;
  const std::string& name() const { return name_; }
  const experiment::Progress& progress() const { return progress_; }

 private:
  using Clock = std::chrono::steady_clock;

  ProgressLine& line_;
  std::string name_;
  Clock::time_point start_ = Clock::now();
  experiment::Progress progress_;
};

ProgressLine::ProgressLine(ProgressOptions options)
    : options_(std::move(options)),
      next_(std::chrono::steady_clock::now() + interval),
      is_terminal_(options_.is_shown && isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() { show(""); }

void ProgressLine::ready() {
  if (options_.heading.empty()) return;
  fmt::print("{}\n", one_line(options_.heading));
  std::fflush(stdout);
}

std::unique_ptr<ProgressLine::Run> ProgressLine::begin(const std::string& name) {
  return std::make_unique<Entry>(*this, name);
}

void ProgressLine::note(const std::string& text) {
  if (!options_.is_shown) return;
  const std::lock_guard lock(mutex_);
  fmt::print(stderr, "{}tulle: {}\n", shown_ ? erased : "", one_line(text));
  shown_ = false;
}

void ProgressLine::show(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!is_terminal_ || (text.empty() && !shown_)) return;
  fmt::print(stderr, "{}{}", erased, one_line(text));
  std::fflush(stderr);
  shown_ = !text.empty();
}

void ProgressLine::Entry::show(const experiment::Progress& progress) {
  const std::lock_guard lock(line_.mutex_);
  progress_ = progress;
  if (!line_.is_terminal_ || Clock::now() < line_.next_) return;
  line_.next_ = Clock::now() + interval;
  fmt::print(stderr, "{}{}", erased, one_line(line_.text()));
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
                       options_.prefix, run.name().empty() ? "" : run.name() + ": ",
                       report::time_text(run.progress().now), run.progress().flows_done,
                       run.progress().flows,
                       static_cast<double>(run.progress().events) / run.elapsed() * 1e-6,
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
    runs += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", run.name(),
                        100 * run.progress().share_done);
  }
  if (entries_.size() > names_max) {
    runs += fmt::format(" and {} more", entries_.size() - names_max);
  }
  return fmt::format("{}{}, {} for these", options_.prefix, runs,
                     time_left(is_known ? longest : -1));
}

}  // namespace tulle::study
