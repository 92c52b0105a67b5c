// `tulle sim`: runs scenarios, with a line of progress.

#include <fmt/format.h>
#include <sys/resource.h>
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
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "cli/commands.h"
#include "scenario/build.h"
#include "scenario/quantity.h"
#include "scenario/results.h"
#include "scenario/run.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using scenario::Outcome;
using scenario::Scenario;
using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t interrupted = 0;
void handle_interrupt(int) { interrupted = 1; }

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Where the scenarios that come along are: beside the build, or where they were installed.
fs::path scenario_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path prefix = self.parent_path().parent_path();
  for (const fs::path& folder :
       {prefix / "share" / "tulle" / "scenarios", prefix.parent_path() / "scenarios"}) {
    if (fs::is_directory(folder, error)) return folder;
  }
  return {};
}

// A path, or the name of a scenario that comes along.
std::string find_scenario(const std::string& name) {
  if (fs::exists(name) || name.find('/') != std::string::npos) return name;
  const fs::path known = scenario_folder() / (name + ".toml");
  return fs::exists(known) ? known.string() : name;
}

int list_scenarios() {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(scenario_folder(), error)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  if (files.empty()) return fail("no scenarios were found beside this program");
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    auto scenario = Scenario::read(file.string(), {});
    if (!scenario) return fail(scenario.error().message);
    fmt::print("{:<28} {}\n", scenario->name(), scenario->title());
  }
  return 0;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();  // TOML's basic strings are JSON's
}

// HPCC's simulator calls this set "dcqcn" (its rates are for 25 Gb/s, and scaled by the link's).
// Its one round of fast recovery, counted from 0, is two here, where the paper's counting is
// followed: the second increase is the additive one.
constexpr char dcqcn_of_hpcc[] =
    "[congestion]\ncontrol = \"dcqcn\"\nalpha_interval = \"1us\"\ndecrease_interval = \"4us\"\n"
    "increase_interval = \"300us\"\nincrease_bytes = \"0B\"\nfast_recovery_rounds = 2\n"
    "clamp_target = false\nleast = \"1Gbps\"\nnotification_interval = \"1us\"\n";

// The scenario that --topology, --flows and --fabric stand for.
Result<Scenario> from_tables(const SimOptions& options) {
  if (options.topology.empty() || options.flows.empty()) {
    return Error{"name a scenario, or both --topology and --flows (see tulle sim --list)"};
  }
  std::string text = fmt::format(
      "title = \"Flows from a table\"\n[topology]\nkind = \"file\"\nfile = {}\n"
      "[traffic]\npattern = \"file\"\nfile = {}\n",
      quoted(options.topology), quoted(options.flows));
  const bool dcqcn = options.congestion_control == "dcqcn-hpcc";
  if (options.fabric == "infiniband") {
    if (dcqcn) return Error{"--congestion-control dcqcn-hpcc is RoCE's: take --fabric roce"};
    text += "[fabric]\nkind = \"infiniband\"\n";
  } else {
    text += "[fabric]\nkind = \"roce\"\n";
    if (dcqcn) {
      text += "[fabric.ecn]\n";
      text += dcqcn_of_hpcc;
      auto table = scenario::read_file(options.topology);
      if (!table) return table.error();
      auto topology = fabric::from_csv(*table, options.topology);
      if (!topology) return topology.error();
      const std::int64_t mbps = scenario::host_bits_per_second(*topology) / 1'000'000;
      text += fmt::format("additive = \"{}Kbps\"\nhyper = \"{}Kbps\"\n", mbps * 1'000 / 5'000,
                          mbps * 1'000 / 500);
    }
  }
  return Scenario::parse(std::move(text), "tulle sim", "", options.set);
}

class ProgressLine {
 public:
  explicit ProgressLine(std::string name) : name_(std::move(name)), start_(Clock::now()) {}

  bool show(const scenario::Progress& progress) {
    const double elapsed = seconds_since(start_);
    if (isatty(STDERR_FILENO) != 0 && elapsed >= next_) {
      next_ = elapsed + 0.2;
      const double left = progress.share_done > 0.001
                              ? elapsed * (1 - progress.share_done) / progress.share_done
                              : -1;
      fmt::print(stderr, "\r\033[K{}{} of virtual time, {:.2f} M events/s, {} of {} flows done, {}",
                 name_, scenario::time_text(progress.now),
                 static_cast<double>(progress.events) / elapsed * 1e-6, progress.flows_done,
                 progress.flows,
                 left < 0 ? "time left unknown" : fmt::format("{:.0f} s left", left));
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

struct Timings {
  double setup_s = 0;
  double run_s = 0;
};

Result<std::unique_ptr<scenario::Capture>> open_capture(const SimOptions& options,
                                                        const scenario::Setup& setup) {
  if (options.capture.empty()) return std::unique_ptr<scenario::Capture>();
  return scenario::Capture::open(options.capture, options.capture_at, setup.topology,
                                 setup.network);
}

Result<Outcome> run_variant(const SimOptions& options, const Scenario& scenario,
                            std::size_t variant, Timings& timings) {
  const Clock::time_point start = Clock::now();
  auto setup = scenario.build(variant);
  if (!setup) return setup.error();
  auto capture = open_capture(options, *setup);
  if (!capture) return capture.error();
  auto run = scenario::Run::prepare(std::move(*setup));
  if (!run) return run.error();
  if (*capture) (*run)->show_to(**capture);
  timings.setup_s += seconds_since(start);
  const Clock::time_point begin = Clock::now();
  {
    const std::string& name = scenario.variants()[variant].name;
    ProgressLine line(name.empty() ? "" : name + ": ");
    (*run)->run([&](const scenario::Progress& progress) { return line.show(progress); });
  }
  timings.run_s += seconds_since(begin);
  if (*capture) {
    if (auto written = (*capture)->finish(); !written) return written.error();
  }
  if (auto intact = (*run)->check_payloads(); !intact) return intact.error();
  return (*run)->outcome();
}

Result<void> write_timings(const std::string& path, const Timings& timings) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json json;
  json["setup_s"] = timings.setup_s;
  json["run_s"] = timings.run_s;
  json["user_s"] = static_cast<double>(usage.ru_utime.tv_sec) +
                   static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
  json["peak_bytes"] = usage.ru_maxrss * 1'024;
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  out.close();
  if (!out) return Error{fmt::format("{}: cannot be written", path)};
  return {};
}

std::vector<std::size_t> wanted_variants(const SimOptions& options, const Scenario& scenario) {
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < scenario.variants().size(); ++i) {
    if (options.variant.empty() || scenario.variants()[i].name == options.variant) {
      wanted.push_back(i);
    }
  }
  return wanted;
}

// What is wrong with a later variant, or with where results shall be, is said before the first one
// runs, which can take hours. The first one is checked as it is built to be run.
Result<void> check(const SimOptions& options, const Scenario& scenario,
                   std::span<const std::size_t> wanted) {
  for (const std::size_t i : wanted.subspan(1)) {
    if (auto setup = scenario.build(i); !setup) return setup.error();
  }
  if (options.output.empty()) return {};
  std::error_code error;
  fs::create_directories(options.output, error);
  if (!error && access(options.output.c_str(), W_OK | X_OK) != 0) {
    error.assign(errno, std::generic_category());
  }
  if (error) return Error{fmt::format("{}: {}", options.output, error.message())};
  return {};
}

// Large pages for all memory, where the system has them: a cluster's state is touched all over, and
// a look-up of its page would cost more than the memory itself. The C library reads this when a
// program starts, so this one starts again.
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
  // It goes on as it is.
}

}  // namespace

int sim(const SimOptions& options) {
  if (options.list) return list_scenarios();
  take_large_pages();
  auto scenario = options.scenario.empty()
                      ? from_tables(options)
                      : Scenario::read(find_scenario(options.scenario), options.set);
  if (!scenario) return fail(scenario.error().message);
  if (!options.json && !scenario->title().empty()) fmt::print("{}\n", scenario->title());
  if (!options.capture.empty() && options.variant.empty() && scenario->variants().size() > 1) {
    return fail("--capture writes one file: choose one of the variants with --variant");
  }
  const std::vector<std::size_t> wanted = wanted_variants(options, *scenario);
  if (wanted.empty()) {
    return fail(fmt::format("{}: has no variant {}", options.scenario, options.variant));
  }
  if (auto ready = check(options, *scenario, wanted); !ready) return fail(ready.error().message);
  std::signal(SIGINT, handle_interrupt);
  std::vector<Outcome> outcomes;
  Timings timings;
  for (const std::size_t i : wanted) {
    if (interrupted != 0) break;
    auto outcome = run_variant(options, *scenario, i, timings);
    if (!outcome) return fail(outcome.error().message);
    outcomes.push_back(std::move(*outcome));
  }
  if (options.json) {
    fmt::print("{}", scenario::summary_json(*scenario, outcomes));
  } else {
    fmt::print("{}", scenario::summary_table(outcomes));
  }
  // What the disk had no room for is noticed when it is written out, not when it is printed.
  if (std::fflush(stdout) != 0) {
    return fail(fmt::format("standard output: {}", std::strerror(errno)));
  }
  if (!options.output.empty()) {
    if (auto written = scenario::write_results(options.output, *scenario, outcomes); !written) {
      return fail(written.error().message);
    }
  }
  if (!options.timings.empty()) {
    if (auto written = write_timings(options.timings, timings); !written) {
      return fail(written.error().message);
    }
  }
  if (interrupted != 0) return fail("interrupted; the results are those so far");
  return 0;
}

}  // namespace tulle::cli
