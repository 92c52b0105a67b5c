#include "cli/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/layout.h"
#include "experiment/alone.h"
#include "experiment/capture.h"
#include "experiment/run.h"
#include "report/html_page.h"
#include "report/perfetto.h"
#include "report/quantity.h"
#include "report/results.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using report::Outcome;
using scenario::Scenario;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;
void handle_interrupt(int) { interrupted = 1; }

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class ProgressLine {
 public:
  explicit ProgressLine(std::string name) : name_(std::move(name)), start_(Clock::now()) {}

  bool show(const experiment::Progress& progress) {
    const double elapsed = seconds_since(start_);
    if (isatty(STDERR_FILENO) != 0 && elapsed >= next_) {
      next_ = elapsed + 0.2;
      const double left = progress.share_done > 0.001
                              ? elapsed * (1 - progress.share_done) / progress.share_done
                              : -1;
      fmt::print(stderr,
                 "\r\033[K{}simulated {}, {} of {} flows finished, {:.2f} million events/s, {}",
                 name_, report::time_text(progress.now), progress.flows_done, progress.flows,
                 static_cast<double>(progress.events) / elapsed * 1e-6,
                 left < 0 ? "time left unknown" : fmt::format("about {:.0f} s left", left));
      std::fflush(stderr);
      shown_ = true;
    }
    return interrupted == 0;
  }
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::string name_;
  Clock::time_point start_;
  double next_ = 0.2;
  bool shown_ = false;
};

Result<std::unique_ptr<experiment::Capture>> open_capture(const SimulateOptions& options,
                                                          const scenario::Setup& setup) {
  if (options.capture.empty()) return std::unique_ptr<experiment::Capture>();
  return experiment::Capture::open(options.capture, options.capture_at, setup.topology,
                                   setup.network);
}

}  // namespace

std::vector<std::string> shipped_scenarios() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(scenario_folder(), error)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string scenarios_missing() {
  return fmt::format("cannot find Tulle's scenarios from {}; is the installation complete?",
                     executable().string());
}

std::string find_scenario(const std::string& name) {
  // A folder of that name, such as the last run's results, does not hide a scenario.
  const bool is_file = fs::exists(name) && !fs::is_directory(name);
  if (is_file || name.find('/') != std::string::npos) return name;
  const fs::path known = scenario_folder() / (name + ".toml");
  return fs::exists(known) ? known.string() : name;
}

void catch_interrupts() { std::signal(SIGINT, handle_interrupt); }
bool is_interrupted() { return interrupted != 0; }

void take_large_pages() {
  constexpr char variable[] = "GLIBC_TUNABLES";
  if (getenv(variable) != nullptr) return;
  setenv(variable, "glibc.malloc.hugetlb=1", 1);
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(in, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  // If the program cannot start again, it goes on as it is.
}

Result<Outcome> simulate(const SimulateOptions& options, const Scenario& scenario,
                         std::size_t variant, Timings& timings) {
  const Clock::time_point start = Clock::now();
  auto setup = scenario.build(variant);
  if (!setup) return setup.error();
  setup->timeline = options.timeline;
  if (setup->wants_alone) {
    catch_interrupts();
    ProgressLine line("each job alone: ");
    auto alone = experiment::play_alone(
        *setup, [&](const experiment::Progress& progress) { return line.show(progress); });
    if (!alone) return alone.error();
  }
  auto capture = open_capture(options, *setup);
  if (!capture) return capture.error();
  auto run = experiment::Run::prepare(std::move(*setup));
  if (!run) return run.error();
  if (*capture) (*run)->show_to(**capture);
  timings.setup_s += seconds_since(start);
  catch_interrupts();  // until now, Ctrl-C ended the program
  const Clock::time_point begin = Clock::now();
  {
    const std::string& name = scenario.variants()[variant].name;
    ProgressLine line(options.progress + (name.empty() ? "" : name + ": "));
    (*run)->run([&](const experiment::Progress& progress) { return line.show(progress); });
  }
  timings.run_s += seconds_since(begin);
  if (*capture) {
    if (auto written = (*capture)->finish(); !written) return written.error();
  }
  if (auto intact = (*run)->check_payloads(); !intact) return intact.error();
  return (*run)->outcome();
}

Result<report::Results> simulate(const SimulateOptions& options, const Scenario& scenario,
                                 std::span<const std::size_t> variants, Timings& timings) {
  // The first variant is checked when it is built to be run.
  for (const std::size_t variant : variants.subspan(1)) {
    if (auto setup = scenario.build(variant); !setup) return setup.error();
  }
  report::Results results{scenario.name(), scenario.title(), scenario.description(), {}};
  for (const std::size_t variant : variants) {
    if (is_interrupted()) break;
    auto outcome = simulate(options, scenario, variant, timings);
    if (!outcome) return outcome.error();
    results.outcomes.push_back(std::move(*outcome));
  }
  return results;
}

Result<void> prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error.assign(errno, std::generic_category());
  }
  if (error)
    return Error{fmt::format("cannot write to the folder {}: {}", folder, error.message())};
  return {};
}

Result<void> write_results(const std::string& folder, const Scenario& scenario,
                           std::span<const std::size_t> variants, const report::Results& results,
                           const std::string& what, const std::string& again) {
  if (auto written = report::write_results(folder, results); !written) return written;
  report::PageText text{again, what, {}};
  for (const std::size_t variant : variants) {
    text.variants.push_back({scenario.variants()[variant].title, scenario.settings(variant)});
  }
  for (const report::Outcome& outcome : results.outcomes) {
    const std::string name = (outcome.variant.empty() ? "run" : outcome.variant) + ".pftrace";
    auto written =
        report::write_file((fs::path(folder) / name).string(), report::perfetto_trace(outcome));
    if (!written) return written;
  }
  return report::write_file((fs::path(folder) / "report.html").string(),
                            report::html_page(results, text));
}

// A full disk is noticed when the text is written out, not when it is printed.
Result<void> print(const std::string& text) {
  fmt::print("{}", text);
  if (std::fflush(stdout) == 0) return {};
  return Error{fmt::format("cannot write to standard output: {}", std::strerror(errno))};
}

}  // namespace tulle::cli
