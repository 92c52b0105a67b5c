#include "cli/group.h"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/fail.h"
#include "cli/layout.h"
#include "ranks/launch.h"

namespace tulle::cli {

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

int fail_by_signal(const Error& error) {
  const int status = fail(error);
  const int signal = ranks::interrupted_by();
  return signal == 0 ? status : signal_status + signal;
}

}  // namespace tulle::cli
