// `tulle bench` and `tulle calibrate`, which run ranks live (ranks/launch.h).

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/layout.h"
#include "cli/simulations.h"
#include "ranks/calibration.h"
#include "ranks/launch.h"
#include "ranks/profile.h"

namespace tulle::cli {
namespace {

// Prepares this process for starting ranks, whose libibverbs is the one next to this program.
Result<ranks::Group> make_group(double timeout_seconds) {
  const std::filesystem::path library = library_folder() / "libibverbs.so.1";
  std::error_code error;
  if (!std::filesystem::exists(library, error)) {
    return Error{
        fmt::format("cannot find Tulle's libibverbs.so.1 from {}; is the installation "
                    "complete?",
                    executable().string())};
  }
  // The first rank that opens the device may start the host agent, which is a command of `tulle`.
  setenv("TULLE_EXECUTABLE", live_program().string().c_str(), 1);
  ranks::Group group;
  group.library = library.string();
  group.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1'000));
  return group;
}

// Does what fail() does. If a signal has ended the ranks, the exit status says so.
int fail_by_signal(const Error& error) {
  const int status = fail(error);
  const int signal = ranks::interrupted_by();
  return signal == 0 ? status : signal_status + signal;
}

}  // namespace

int bench(const BenchOptions& options) {
  auto made = ranks::make_bench(options, as_option);
  if (!made) return fail(as_misuse(made.error()));
  auto group = make_group(options.timeout_seconds);
  if (!group) return fail(group.error());
  ranks::Meeting meeting{options.meet, "", made->number};
  if (const char* token = std::getenv("TULLE_BENCH_TOKEN"); token != nullptr) meeting.token = token;
  auto times = options.rank ? ranks::run_rank(made->plan, *group, *options.rank, meeting)
                            : ranks::run_here(made->plan, *group);
  if (!times) return fail_by_signal(times.error());
  if (times->seconds.empty()) return 0;  // another rank leads
  fmt::print("{}",
             options.json ? ranks::bench_json(*made, *times) : ranks::bench_text(*made, *times));
  if (times->wrong > 0) return fail(fmt::format("{} values are wrong", times->wrong));
  return 0;
}

int calibrate(const CalibrateOptions& options) {
  // A file that cannot be written is noticed before the measurement, and an interrupted one leaves
  // none behind.
  const std::string part = options.output + ".part";
  std::ofstream out;
  if (!options.output.empty()) {
    out.open(part, std::ios::trunc);
    if (!out) return fail(fmt::format("cannot write {}", options.output));
    out.close();
    std::remove(part.c_str());
  }
  auto group = make_group(options.timeout_seconds);
  if (!group) return fail(group.error());
  auto calibration = ranks::calibrate(*group, options.ranks);
  if (!calibration) return fail_by_signal(calibration.error());
  const std::string text = ranks::profile_of(*calibration);
  if (options.output.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  out.open(part, std::ios::trunc);
  out << text;
  out.close();
  if (!out || std::rename(part.c_str(), options.output.c_str()) != 0) {
    std::remove(part.c_str());
    return fail(fmt::format("cannot write {}", options.output));
  }
  fmt::print(stderr, "tulle: wrote {}\n", options.output);
  return 0;
}

}  // namespace tulle::cli
