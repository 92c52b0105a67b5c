// `tulle run` and `tulle fabric rsh` (shim/launch/launch.h).

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <string>
#include <variant>

#include "cli/commands.h"
#include "cli/layout.h"
#include "fabric/faults.h"

namespace tulle::cli {

int run(const shim::LaunchOptions& options) {
  const auto faults = fabric::parse_faults(options.faults);
  if (const auto* wrong = std::get_if<std::string>(&faults)) return refuse(*wrong);
  if (auto checked = shim::check_launch(options); !checked) return fail(checked.error());
  auto prepared = shim::prepare_launch(options, {executable(), library_folder()}, warn_once);
  if (!prepared) return fail(prepared.error());
  const Error error = shim::become(options.command);
  fail(error);
  return error.error_number == ENOENT ? not_found_status : not_executable_status;
}

int fabric_shell(const shim::LaunchOptions& options) {
  // A remote shell gets the words of its command line joined by spaces, and takes them apart again.
  shim::LaunchOptions shell = options;
  shell.command = {"/bin/sh", "-c", fmt::format("{}", fmt::join(options.command, " "))};
  return run(shell);
}

}  // namespace tulle::cli
