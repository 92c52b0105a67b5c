#include "study/scenario/tables.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quoted.h"

namespace tulle::scenario {

// TOML's basic strings are JSON's.
std::string toml_text(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_utf8(std::string_view text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
  return true;
}

Result<std::string> scenario_of_tables(const TableFile& topology, const TableFile& flows) {
  for (const TableFile* file : {&flows, &topology}) {
    if (is_utf8(file->path)) continue;
    return Error{fmt::format("{}: the name {} is not UTF-8; rename the file, or link to it",
                             file->option, tulle::quoted(file->path))};
  }
  return fmt::format(
      "title = \"Flows from a table\"\n[topology]\nkind = \"file\"\nfile = {}\n"
      "[traffic]\npattern = \"file\"\nfile = {}\n",
      toml_text(topology.path), toml_text(flows.path));
}

}  // namespace tulle::scenario
