// `tulle capture` (live/capture/capture.h).

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/commands.h"
#include "live/fabric/fabrics.h"
#include "os/service_process.h"

namespace tulle::cli {
namespace {

// Returns the number of a signal that has come.
int signal_in(const UniqueFd& signals) {
  signalfd_siginfo info{};
  return read(signals.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : SIGTERM;
}

}  // namespace

int capture(live::CaptureOptions options, const std::optional<std::string>& fabric) {
  auto out = live::open_capture_file(options.output);
  if (!out) return fail(out.error());
  const UniqueFd signals = stop_signals();
  if (fabric) {
    auto address = live::fabric_address(*fabric, warn_once);
    if (!address) return fail(address.error());
    options.fabric = *address;
  }
  auto captured = live::capture(options, out->get(), signals.get());
  if (!captured) return fail(captured.error());
  fmt::print(stderr, "Captured {} {} of {} {}.\n", captured->frames, fabric ? "packets" : "frames",
             captured->sources, fabric ? "ports" : "processes");
  if (captured->missing > 0) {
    fmt::print(stderr, "{} frames are missing, because a buffer was full: --buffer enlarges it.\n",
               captured->missing);
  }
  return captured->is_stopped ? signal_status + signal_in(signals) : 0;
}

}  // namespace tulle::cli
