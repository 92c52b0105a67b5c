// Reads anything as a trace of any format, among few ranks. It is refused in one line that begins
// with a file's name, or becomes a graph of no more tasks than allowed, which TaskGraph::check()
// finds right and whose computations end within the bound. The first byte chooses the format and
// whether there are two files.
//
// libFuzzer: -max_len=8192

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "study/traces/reader.h"
#include "study/traces/trace.h"
#include "study/workload/task_graph.h"

namespace tulle::traces {
namespace {

void check_error(const Error& error) {
  TULLE_CHECK(error.message.starts_with("fuzz."));
  for (const char c : error.message) TULLE_CHECK(c < 0 || c >= ' ');
}

Settings settings_of(std::uint8_t choice) {
  Settings settings;
  settings.servers.servers = 3;
  settings.servers.gpus = 2;
  settings.servers.adapters = choice / 16 % 2 == 0 ? 1 : 2;
  settings.servers.scale_up_bits_per_second = 3'600'000'000'000;
  settings.operations_per_second = 1e12;
  settings.control_dependencies = static_cast<ControlDependencies>(choice / 32 % 3);
  settings.groups = {{"1", {0, 2, 3}}};
  settings.limits = {6, 4'096, 1u << 14, 1u << 12, 1u << 15};
  return settings;
}

void check_trace(std::uint8_t choice, std::string_view text) {
  constexpr std::array<std::string_view, 5> suffixes = {"et", "json", "goal", "txt", "cm"};
  const std::string_view suffix = suffixes[choice % suffixes.size()];
  std::vector<File> files;
  if (choice / suffixes.size() % 2 == 0) {
    files.push_back({fmt::format("fuzz.{}", suffix), text, std::nullopt});
  } else {
    const std::size_t half = text.size() / 2;
    files.push_back({fmt::format("fuzz.0.{}", suffix), text.substr(0, half), 0});
    files.push_back({fmt::format("fuzz.1.{}", suffix), text.substr(half), 1});
  }
  const Settings settings = settings_of(choice);
  auto graph = read_trace(files, settings);
  if (!graph) return check_error(graph.error());
  TULLE_CHECK(graph->check());
  TULLE_CHECK(graph->size() > 0 && graph->size() <= settings.limits.tasks);
  const Time time = workload::time_without_communication(*graph);
  TULLE_CHECK(time >= Time::zero() && time <= Trace::computation_max);
}

}  // namespace
}  // namespace tulle::traces

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  tulle::traces::check_trace(data[0], text);
  return 0;
}
