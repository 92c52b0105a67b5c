#include "live/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/quoted.h"
#include "live/likeness.h"

namespace tulle::live {
namespace {

// A program that has more rights than its starter takes nothing from the environment: the starter
// would decide which agent it trusts, and which program it runs.
const char* variable(const char* name) { return secure_getenv(name); }

void read(const char* name, std::string& value) {
  const char* text = variable(name);
  if (text != nullptr && *text != '\0') value = text;
}

template <typename Number>
void read(const char* name, Number& value) {
  const char* text = variable(name);
  if (text == nullptr) return;
  Number number{};
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, number);
  if (error == std::errc() && rest == end && number >= Number{}) value = number;
}

// The key file as the program began. A program that clears its environment later still seals.
// It stays to the end of the process, when other threads may still ask.
const std::string& began_with_key_file = []() -> const std::string& {
  auto* file = new std::string;
  read("TULLE_SECURE", *file);
  return *file;
}();

bool is(const char* name, std::string_view value) {
  const char* text = variable(name);
  return text != nullptr && text == value;
}

}  // namespace

bool is_device_name(std::string_view text) {
  constexpr std::size_t longest = 63;
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  return !text.empty() && text.size() <= longest && text != "." && text != ".." &&
         text.find_first_not_of(letters) == std::string_view::npos;
}

bool is_plausible(const DeviceChoice& choice) {
  return (choice.name.empty() || is_device_name(choice.name)) &&
         choice.interfaces.size() <= interfaces_bytes_max;
}

std::string wrong_setting() {
  struct Words {
    const char* name;
    std::vector<std::string_view> words;
  };
  const std::vector<Words> all = {{"TULLE_ROCE", {"v2", "v1", "both"}},
                                  {"TULLE_RECOVERY", {"go-back-n", "selective-repeat"}},
                                  {"TULLE_OFFLOAD", {"on", "off"}},
                                  {"TULLE_DIRECT", {"on", "off"}},
                                  {"TULLE_EXPLAIN", {"0", "1"}},
                                  {"TULLE_STRICT", {"0", "1"}},
                                  {"TULLE_GID_ORDER", {"ip", "link-local"}},
                                  {"TULLE_LIKE", likeness_names()},
                                  {"TULLE_SHARE_MEMORY", {"on", "off"}}};
  for (const auto& [name, words] : all) {
    const char* text = variable(name);
    const bool is_set = text != nullptr && *text != '\0';
    if (is_set && std::ranges::find(words, text) == words.end()) {
      return fmt::format("{}={} is none of {}", name, one_line(text), fmt::join(words, ", "));
    }
  }
  const char* device = variable("TULLE_DEVICE");
  if (device != nullptr && *device != '\0' && !is_device_name(device)) {
    return fmt::format("TULLE_DEVICE={} names no device: {}", one_line(device), device_name_rule);
  }
  if (is("TULLE_STRICT", "1") && is("TULLE_SHARE_MEMORY", "on")) {
    return "TULLE_STRICT=1 keeps memory apart, and TULLE_SHARE_MEMORY=on shares it";
  }
  const char* host = variable("TULLE_HOST");
  const char* fabric = variable("TULLE_FABRIC");
  if (host != nullptr && *host != '\0' && (fabric == nullptr || *fabric == '\0')) {
    return fmt::format("TULLE_HOST={} needs TULLE_FABRIC: `tulle run --host` sets both",
                       one_line(host));
  }
  constexpr std::int64_t most_seconds = 1'000'000;
  struct Range {
    const char* name;
    std::int64_t least, most;
  };
  for (const Range& range :
       {Range{"TULLE_PORT", 1, 65'535}, Range{"TULLE_IDLE_EXIT", 0, most_seconds},
        Range{"TULLE_BUSY_POLL", 0, busy_poll_max}}) {
    const char* text = variable(range.name);
    if (text == nullptr || *text == '\0') continue;
    std::int64_t number = range.least - 1;
    const char* end = text + std::strlen(text);
    const auto [rest, error] = std::from_chars(text, end, number);
    if (error != std::errc() || rest != end || number < range.least || number > range.most) {
      return fmt::format("{}={} is no number from {} to {}", range.name, one_line(text),
                         range.least, range.most);
    }
  }
  return {};
}

RoceVersions roce_versions(std::string_view text) {
  if (text == "v1") return RoceVersions::v1;
  return text == "both" ? RoceVersions::both : RoceVersions::v2;
}

Settings read_settings() {
  Settings settings;
  read("TULLE_AGENT", settings.agent);
  read("TULLE_LIKE", settings.like);
  if (const Likeness* like = find_likeness(settings.like); like != nullptr) {
    settings.device.name = like->device_name;
    settings.device.order = GidOrder::link_local_first;
  }
  std::string name;
  read("TULLE_DEVICE", name);
  if (is_device_name(name)) settings.device.name = name;
  read("TULLE_INTERFACE", settings.device.interfaces);
  std::string roce;
  read("TULLE_ROCE", roce);
  settings.device.roce = roce_versions(roce);
  if (is("TULLE_GID_ORDER", "link-local")) settings.device.order = GidOrder::link_local_first;
  if (is("TULLE_GID_ORDER", "ip")) settings.device.order = GidOrder::ip_first;
  read("TULLE_FAULTS", settings.faults);
  settings.secure = began_with_key_file;
  read("TULLE_SECURE", settings.secure);
  read("TULLE_EXECUTABLE", settings.executable);
  read("TULLE_AGENT_LOG", settings.agent_log);
  read("TULLE_FABRIC", settings.fabric);
  read("TULLE_HOST", settings.host);
  read("TULLE_PORT", settings.port);
  read("TULLE_IDLE_EXIT", settings.idle_exit_seconds);
  read("TULLE_BUSY_POLL", settings.busy_poll_microseconds);
  settings.busy_poll_microseconds = std::min(settings.busy_poll_microseconds, busy_poll_max);
  settings.offload = !is("TULLE_OFFLOAD", "off");
  settings.direct = !is("TULLE_DIRECT", "off");
  settings.explain = is("TULLE_EXPLAIN", "1");
  settings.strict = is("TULLE_STRICT", "1");
  settings.share_memory = is("TULLE_SHARE_MEMORY", "on");
  std::string recovery;
  read("TULLE_RECOVERY", recovery);
  if (recovery == "selective-repeat") settings.recovery = transport::Recovery::selective_repeat;
  return settings;
}

}  // namespace tulle::live
