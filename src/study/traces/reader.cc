#include "study/traces/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/quoted.h"
#include "study/traces/formats.h"
#include "study/traces/words.h"

namespace tulle::traces {
namespace {

constexpr std::array<std::pair<std::string_view, Format>, 4> suffixes = {{
    {".et", Format::chakra},
    {".json", Format::chakra_json},
    {".goal", Format::goal},
    {".cm", Format::connection_matrix},
}};

// Returns the format of a text by the first word that is no comment.
std::optional<Format> format_by_word(std::string_view text) {
  constexpr std::size_t beginning = 4'096;
  LineReader lines(text.substr(0, beginning));
  while (lines.next()) {
    const std::string_view word = lines.words()[0];
    if (word.starts_with("//") || word.starts_with("/*")) return Format::goal;
    if (word == "num_ranks") return Format::goal;
    if (word == "Nodes" || word == "Connections") return Format::connection_matrix;
    if (word.starts_with("HYBRID_")) return Format::simai;
    if (word.starts_with('{')) return Format::chakra_json;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Format> format_of(std::string_view name, std::string_view text) {
  for (const auto& [suffix, format] : suffixes) {
    if (name.ends_with(suffix)) return format;
  }
  return format_by_word(text);
}

Result<void> check_ranks(const std::string& place, std::uint64_t ranks, const Settings& settings) {
  if (ranks == 0 || ranks > settings.limits.ranks) {
    return Error{
        fmt::format("{}: {} ranks; there may be 1 to {}", place, ranks, settings.limits.ranks)};
  }
  if (ranks > settings.servers.ranks()) {
    return Error{fmt::format("{}: the trace has {} ranks, and there are {} GPUs; take as many GPUs",
                             place, ranks, settings.servers.ranks())};
  }
  return {};
}

Result<workload::TaskGraph> read_trace(std::span<const File> files, const Settings& settings) {
  if (files.empty()) return Error{"there is no file of a trace"};
  const std::string name = one_line(files[0].name);
  const auto format = format_of(files[0].name, files[0].text);
  if (!format) {
    return Error{
        fmt::format("{}: is no trace that is known: Chakra's .et or .json, GOAL, SimAI's "
                    "workloads and htsim's .cm are",
                    name)};
  }
  const bool is_chakra = format == Format::chakra || format == Format::chakra_json;
  if (!is_chakra && files.size() > 1) {
    return Error{fmt::format("{}: such a trace is one file, and not {}", name, files.size())};
  }
  auto trace = is_chakra                 ? read_chakra(files, settings)
               : format == Format::goal  ? read_goal(files[0], settings)
               : format == Format::simai ? read_simai(files[0], settings)
                                         : read_connection_matrix(files[0], settings);
  if (!trace) return trace.error();
  auto graph = trace->build(settings.servers);
  if (graph && graph->size() == 0) return Error{fmt::format("{}: does nothing", name)};
  return graph;
}

Result<Groups> parse_groups(std::string_view text, std::string_view file, std::uint32_t ranks) {
  const auto wrong = [&](std::string_view fault) {
    return Error{
        fmt::format("{}: {}; expected a JSON object of lists of ranks, as in {{\"1\": "
                    "[0, 1]}}",
                    one_line(file), fault)};
  };
  constexpr std::size_t bytes_max = 64u << 20;
  if (text.size() > bytes_max) return wrong("the file has more than 64 MiB");
  const auto object = parse_json<nlohmann::json>(text);
  if (!object.is_object()) return wrong("it is no JSON object");
  Groups groups;
  for (const auto& [name, list] : object.items()) {
    if (!list.is_array() || list.empty()) {
      return wrong(fmt::format("{} is no list of ranks", tulle::quoted(name)));
    }
    std::vector<std::uint32_t>& members = groups[name];
    for (const auto& rank : list) {
      const std::uint64_t number =
          rank.is_number_unsigned() ? rank.get_ref<const std::uint64_t&>() : ranks;
      if (number >= ranks) {
        return wrong(fmt::format("{} has a rank that does not exist", tulle::quoted(name)));
      }
      members.push_back(static_cast<std::uint32_t>(number));
    }
  }
  return groups;
}

}  // namespace tulle::traces
