#include "study/scenario/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/quoted.h"
#include "base/split.h"
#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"
#include "study/scenario/toml_text.h"

namespace tulle::scenario {
namespace {

// Returns a value as TOML has it. What is no TOML is a text, unless it begins like another value.
// An empty text and one of several lines are no values.
std::optional<std::string> value_of(std::string_view text) {
  if (text.empty() || text.find('\n') != std::string_view::npos) return {};
  auto table = parse_toml(fmt::format("value = {}", text), "");
  const toml::node* node = table ? table->get("value") : nullptr;
  if (node != nullptr && table->size() == 1) return toml_of(*node);
  if (std::string_view("\"'[{").find(text.front()) != std::string_view::npos) return {};
  return toml_text(text);
}

constexpr std::string_view key_characters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Reads "1..5".
std::optional<std::pair<std::int64_t, std::int64_t>> range_of(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  std::int64_t first = 0, last = 0;
  const char* const end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), text.data() + dots, first);
  const auto high = std::from_chars(text.data() + dots + 2, end, last);
  const bool is_range = low.ec == std::errc() && low.ptr == text.data() + dots &&
                        high.ec == std::errc() && high.ptr == end;
  if (!is_range) return std::nullopt;
  return std::pair(first, last);
}

Error too_many() { return Error{fmt::format("a sweep has at most {} points", points_max)}; }

Result<void> add_values(std::string_view text, Knob& knob) {
  if (text.starts_with('[')) {
    auto table = parse_toml(fmt::format("values = {}", text), "--knob");
    if (!table)
      return Error{fmt::format("--knob {}: {} is no list of TOML", knob.key, tulle::quoted(text))};
    const toml::array* array = (*table)["values"].as_array();
    if (array == nullptr || table->size() != 1) {
      return Error{fmt::format("--knob {}: {} is no list of TOML", knob.key, tulle::quoted(text))};
    }
    for (const toml::node& node : *array) knob.values.push_back(toml_of(node));
    return {};
  }
  for (const std::string_view part : split(text, ',')) {
    if (const auto range = range_of(part)) {
      const auto [first, last] = *range;
      if (last < first) {
        return Error{
            fmt::format("--knob {}: {} ends before it begins", knob.key, tulle::quoted(part))};
      }
      if (static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) >= points_max) {
        return too_many();
      }
      const std::uint64_t count =
          static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) + 1;
      for (std::uint64_t i = 0; i < count; ++i) {
        knob.values.push_back(fmt::format("{}", first + static_cast<std::int64_t>(i)));
      }
    } else if (part.empty()) {
      return Error{fmt::format("--knob {}: a value is empty", knob.key)};
    } else if (auto value = value_of(part)) {
      knob.values.push_back(std::move(*value));
    } else {
      return Error{fmt::format("--knob {}: {} is no value of TOML", knob.key, tulle::quoted(part))};
    }
  }
  return {};
}

}  // namespace

Result<Knob> parse_knob(std::string_view text) {
  const std::size_t sign = text.find('=');
  if (sign == 0 || sign == std::string_view::npos || sign + 1 == text.size()) {
    return Error{fmt::format("--knob {}: write KEY=VALUE,VALUE, such as traffic.bytes=64KB,1MB",
                             tulle::quoted(text))};
  }
  Knob knob{std::string(text.substr(0, sign)), {}};
  if (knob.key.find_first_not_of(key_characters) != std::string::npos) {
    return Error{fmt::format("--knob: {} is no key of a scenario", tulle::quoted(knob.key))};
  }
  if (auto added = add_values(text.substr(sign + 1), knob); !added) return added.error();
  if (knob.values.size() > points_max) return too_many();
  if (knob.values.empty()) return Error{fmt::format("--knob {}: there is no value", knob.key)};
  return knob;
}

Result<std::string> parse_setting(std::string_view text, std::string_view option) {
  if (auto table = parse_toml(text, std::string(option)); table && !table->empty()) {
    return std::string(text);
  }
  const std::size_t sign = text.find('=');
  const std::string_view key = without_blanks(text.substr(0, sign));
  const bool is_key = !key.empty() && key.find_first_not_of(key_characters) == key.npos;
  if (sign == std::string_view::npos || !is_key) {
    return Error{fmt::format("{} {}: write KEY=VALUE, such as traffic.bytes=4MB", option,
                             tulle::quoted(text))};
  }
  const std::string_view written = without_blanks(text.substr(sign + 1));
  const auto value = value_of(written);
  if (!value) {
    return Error{fmt::format("{} {}: {} is no value of TOML", option, key, tulle::quoted(written))};
  }
  std::string line = fmt::format("{} = {}", key, *value);
  // A key such as "a..b" is none.
  auto table = parse_toml(line, std::string(option));
  if (!table) return table.error();
  return line;
}

std::string_view value_text(std::string_view toml) {
  const bool is_text = toml.size() >= 2 && (toml.front() == '"' || toml.front() == '\'') &&
                       toml.back() == toml.front();
  return is_text ? toml.substr(1, toml.size() - 2) : toml;
}

std::vector<std::string> Grid::lines(std::size_t point) const {
  std::vector<std::string> set;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!points[point][i].empty()) set.push_back(keys[i] + " = " + points[point][i]);
  }
  return set;
}

std::string Grid::name(std::size_t point) const {
  std::string text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (points[point][i].empty()) continue;
    const std::string_view value = value_text(points[point][i]);
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", keys[i], value);
  }
  return text;
}

Result<Grid> grid_of(const std::vector<Knob>& knobs) {
  Grid grid;
  grid.points.emplace_back();
  for (const Knob& knob : knobs) {
    if (std::ranges::find(grid.keys, knob.key) != grid.keys.end()) {
      return Error{fmt::format("--knob {} is given twice", knob.key)};
    }
    grid.keys.push_back(knob.key);
    if (grid.points.size() * knob.values.size() > points_max) return too_many();
    std::vector<std::vector<std::string>> more;
    for (const auto& point : grid.points) {
      for (const std::string& value : knob.values) {
        more.push_back(point);
        more.back().push_back(value);
      }
    }
    grid.points = std::move(more);
  }
  return grid;
}

namespace {

// Adds the keys of a table, "traffic.bytes" for a key of a table in it.
void add_keys(const toml::table& table, const std::string& path, Grid& grid,
              std::vector<std::string>& point) {
  for (const auto& [key, node] : table) {
    const std::string whole = path + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      add_keys(*inner, whole + ".", grid, point);
      continue;
    }
    auto at = std::ranges::find(grid.keys, whole);
    if (at == grid.keys.end()) at = grid.keys.insert(grid.keys.end(), whole);
    point.resize(std::max(point.size(), grid.keys.size()));
    point[static_cast<std::size_t>(at - grid.keys.begin())] = toml_of(node);
  }
}

}  // namespace

Result<Grid> grid_of_texts(const std::vector<std::string>& knobs) {
  std::vector<Knob> read;
  for (const std::string& text : knobs) {
    auto knob = parse_knob(text);
    if (!knob) return knob.error();
    read.push_back(std::move(*knob));
  }
  return grid_of(read);
}

Result<Grid> read_points(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.error();
  auto root = parse_toml(*text, path);
  if (!root) return root.error();
  const toml::array* list = (*root)["point"].as_array();
  if (list == nullptr || !list->is_array_of_tables() || root->size() != 1) {
    return Error{fmt::format("{}: must be a list of points: [[point]], and nothing else", path)};
  }
  if (list->size() > points_max) return too_many();
  Grid grid;
  for (const toml::node& node : *list) {
    std::vector<std::string> point;
    add_keys(*node.as_table(), "", grid, point);
    grid.points.push_back(std::move(point));
  }
  for (auto& point : grid.points) point.resize(grid.keys.size());
  return grid;
}

}  // namespace tulle::scenario
