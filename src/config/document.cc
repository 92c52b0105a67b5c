#include "config/document.h"

#include <fmt/format.h>

#include <sstream>

#include "base/quoted.h"

namespace tulle::config {

std::string toml_of(const toml::node& node) {
  // The formatter writes 0.1 with 17 digits.
  if (const auto number = node.value_exact<double>()) {
    const std::string digits = fmt::format("{}", *number);
    return digits.find_first_not_of("-0123456789") == std::string::npos ? digits + ".0" : digits;
  }
  std::ostringstream text;
  text << toml::toml_formatter(node);
  return std::move(text).str();
}

Result<toml::table> parse_toml(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    return Error{
        one_line(fmt::format("{}:{}: {}", file, error.source().begin.line, error.description()))};
  }
}

}  // namespace tulle::config
