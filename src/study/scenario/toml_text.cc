#include "study/scenario/toml_text.h"

#include <nlohmann/json.hpp>

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

}  // namespace tulle::scenario
