#pragma once

#include <cstddef>
#include <string_view>

namespace tulle {

// How deep values may be nested. No file of results, prices or traces needs more, and code that
// visits a value by recursion has a stack for it.
inline constexpr std::size_t json_depth_max = 64;

// Returns how deep arrays and objects are nested, in a text that may be no JSON.
inline std::size_t json_depth(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_string = !is_string;
    } else if (is_string) {
      continue;
    } else if (c == '[' || c == '{') {
      deepest = ++depth > deepest ? depth : deepest;
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

// Parses a text that anybody may have written. Returns a discarded value (is_discarded()) if it is
// no JSON, or is too deep. `Json` is nlohmann::json, or the same in another order.
template <typename Json>
Json parse_json(std::string_view text) {
  if (json_depth(text) > json_depth_max) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace tulle
