// The program `tulle-simulator`. `tulle` becomes it for the commands that simulate, and for those
// that run a collective live as it is simulated. It is a separate program, with libraries that
// nothing live needs.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/quoted.h"
#include "cli/bench_commands.h"
#include "cli/fail.h"
#include "cli/layout.h"
#include "cli/sim_commands.h"
#include "cli/terminal.h"
#include "cli/value_lists.h"
#include "study/config/files.h"
#include "terminal/command_line.h"
#include "terminal/complete.h"

namespace tulle::cli {
namespace {

constexpr char about[] = "Tulle's simulator. Start it as `tulle`, such as `tulle sim`";

int simulator_main(const std::vector<std::string>& arguments) {
  const terminal::CommandLine line(arguments);
  CLI::App app(about, "tulle");
  terminal::prepare(app, TULLE_VERSION);
  int status = 0;
  const std::string first = line.first();
  if (first == "sim" || first == "compare" || first == "sweep" || first == "tune") {
    if (auto looked = look_for_ranks(); !looked) return fail(as_misuse(looked.error()));
  }
  config::set_shipped_folder(scenario_folder().string());
  add_sim(app, status);
  add_sweep(app, status);
  add_tune(app, status);
  add_compare(app, status);
  add_bench(app, status);
  add_calibrate(app, status);
  terminal::add_complete(app, status, line.after_dashes, value_lists());
  auto ran = terminal::run_command(app, line, status);
  return ran ? *ran : fail(ran.error());
}

// Ends all ranks at once, because this one cannot continue.
int fail_together(const std::string& message) {
  ranks().abort(message);
  return fail(message);
}

}  // namespace

int fail(const Error& error) {
  if (ranks().is_first()) std::fprintf(stderr, "tulle: %s\n", one_line(error.message).c_str());
  if (is_interrupted()) return signal_status + SIGINT;
  return error.is_misuse ? usage_status : 1;
}

}  // namespace tulle::cli

int main(int argc, char** argv) try {
  return tulle::cli::ranks().leave(tulle::cli::simulator_main({argv + 1, argv + argc}));
} catch (const std::bad_alloc&) {
  return tulle::cli::fail_together(
      "there is not enough memory for this: try fewer hosts, GPUs or messages");
} catch (const std::exception& error) {
  return tulle::cli::fail_together(error.what());
}
