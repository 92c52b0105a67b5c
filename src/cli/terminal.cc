#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/ranks.h"
#include "study/report/quantity.h"

namespace tulle::cli {
namespace {

// A signal's handler sets it, and the threads of all simulations look at it.
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);
void handle_interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

constexpr std::chrono::milliseconds interval(200);
constexpr std::size_t names_max = 3;  // so that the line fits on a terminal

std::string time_left(double seconds) {
  return seconds < 0 ? "time left unknown" : fmt::format("about {:.0f} s left", seconds);
}

}  // namespace

void catch_interrupts() { std::signal(SIGINT, handle_interrupt); }
bool is_interrupted() { return interrupted.load(std::memory_order_relaxed); }

// A full disk is noticed when the text is written out, not when it is printed.
Result<void> print(const std::string& text) {
  fmt::print("{}", text);
  if (std::fflush(stdout) == 0) return {};
  return Error{fmt::format("cannot write to standard output: {}", std::strerror(errno))};
}

// A run, as long as it continues.
class Terminal::Entry final : public Run {
 public:
  Entry(Terminal& terminal, std::string name) : terminal_(terminal), name_(std::move(name)) {
    const std::lock_guard lock(terminal_.mutex_);
    terminal_.entries_.push_back(this);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() override {
    const std::lock_guard lock(terminal_.mutex_);
    std::erase(terminal_.entries_, this);
  }

  void show(const experiment::Progress& progress) override;
  double elapsed() const;
  // Returns a negative number if that is not known yet.
  double seconds_left() const;
  const std::string& name() const { return name_; }
  const experiment::Progress& progress() const { return progress_; }

 private:
  using Clock = std::chrono::steady_clock;

  Terminal& terminal_;
  std::string name_;
  Clock::time_point start_ = Clock::now();
  experiment::Progress progress_;
};

Terminal::Terminal(std::string heading, std::string prefix)
    : heading_(std::move(heading)),
      prefix_(std::move(prefix)),
      next_(std::chrono::steady_clock::now() + interval),
      is_terminal_(is_first_rank() && isatty(STDERR_FILENO) != 0) {}

Terminal::~Terminal() { show(""); }

void Terminal::ready() {
  if (!heading_.empty()) {
    fmt::print("{}\n", heading_);
    std::fflush(stdout);
  }
  catch_interrupts();
}

std::unique_ptr<Terminal::Run> Terminal::begin(const std::string& name) {
  catch_interrupts();
  return std::make_unique<Entry>(*this, name);
}

void Terminal::note(const std::string& text) {
  if (!is_first_rank()) return;
  const std::lock_guard lock(mutex_);
  fmt::print(stderr, "{}tulle: {}\n", shown_ ? "\r\033[K" : "", text);
  shown_ = false;
}

void Terminal::show(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!is_terminal_ || (text.empty() && !shown_)) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = !text.empty();
}

void Terminal::say_when_ended(const std::string& line) { cli::say_when_ended(line); }

void Terminal::Entry::show(const experiment::Progress& progress) {
  const std::lock_guard lock(terminal_.mutex_);
  progress_ = progress;
  if (!terminal_.is_terminal_ || Clock::now() < terminal_.next_) return;
  terminal_.next_ = Clock::now() + interval;
  fmt::print(stderr, "\r\033[K{}", terminal_.text());
  std::fflush(stderr);
  terminal_.shown_ = true;
}

double Terminal::Entry::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

double Terminal::Entry::seconds_left() const {
  const double done = progress_.share_done;
  return done > 0.001 ? elapsed() * (1 - done) / done : -1;
}

std::string Terminal::text() const {
  if (entries_.size() == 1) {
    const Entry& run = *entries_.front();
    return fmt::format("{}{}simulated {}, {} of {} flows finished, {:.2f} million events/s, {}",
                       prefix_, run.name().empty() ? "" : run.name() + ": ",
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
  return fmt::format("{}{}, {} for these", prefix_, runs, time_left(is_known ? longest : -1));
}

}  // namespace tulle::cli
