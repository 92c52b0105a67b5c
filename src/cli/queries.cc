// `tulle devices` and `tulle status` (live/views).

#include <fmt/format.h>

#include "cli/commands.h"
#include "live/views/devices.h"
#include "live/views/status.h"

namespace tulle::cli {

int devices(const live::Settings& settings, bool json) {
  auto found = live::ask_devices(settings, "tulle devices");
  if (!found) return fail(found.error());
  fmt::print("{}", json ? live::devices_json(*found) : live::devices_text(*found));
  return 0;
}

int status(const live::Settings& settings, bool json) {
  auto found = live::ask_status(settings, "tulle status");
  if (!found) return fail(found.error());
  fmt::print("{}", json ? live::status_json(*found) : live::status_text(*found, settings.agent));
  return 0;
}

}  // namespace tulle::cli
