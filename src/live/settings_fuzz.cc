// Sets the environment variables of Tulle to any text. A text without meaning leaves the default.

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "live/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  constexpr std::array names = {
      "TULLE_AGENT",     "TULLE_DEVICE", "TULLE_INTERFACE", "TULLE_FAULTS",  "TULLE_EXECUTABLE",
      "TULLE_AGENT_LOG", "TULLE_PORT",   "TULLE_IDLE_EXIT", "TULLE_OFFLOAD", "TULLE_DIRECT",
      "TULLE_RECOVERY",  "TULLE_FABRIC", "TULLE_HOST"};
  base::Script script(data, size);
  std::vector<std::string> values;
  for (const char* name : names) {
    const auto bytes = script.bytes(script.below(32));
    values.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    values.back().resize(std::strlen(values.back().c_str()));  // the environment holds no zero
    setenv(name, values.back().c_str(), 1);
  }
  const live::Settings settings = live::read_settings();
  const live::Settings defaults;
  const auto or_default = [&](std::size_t i, const std::string& otherwise) {
    return values[i].empty() ? otherwise : values[i];
  };
  TULLE_CHECK(settings.agent == or_default(0, defaults.agent));
  const std::string name = or_default(1, defaults.device.name);
  TULLE_CHECK(settings.device.name == (live::is_device_name(name) ? name : defaults.device.name));
  TULLE_CHECK(settings.device.interfaces == values[2] && settings.faults == values[3]);
  TULLE_CHECK(settings.fabric == values[11] && settings.host == values[12]);
  TULLE_CHECK(settings.port == defaults.port ||
              std::to_string(settings.port).size() <= values[6].size());
  TULLE_CHECK(settings.idle_exit_seconds >= 0);
  TULLE_CHECK(settings.offload == (values[8] != "off"));
  TULLE_CHECK(settings.direct == (values[9] != "off"));
  TULLE_CHECK((settings.recovery == transport::Recovery::selective_repeat) ==
              (values[10] == "selective-repeat"));
  return 0;
}
