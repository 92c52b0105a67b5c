#include "study/tuning/knob.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/quoted.h"
#include "study/config/document.h"
#include "study/config/files.h"
#include "study/config/reader.h"
#include "study/report/quantity.h"
#include "study/scenario/grid.h"
#include "study/scenario/scenario.h"

namespace tulle::tuning {
namespace {

struct Amount {
  Knob::Kind kind = Knob::Kind::number;
  double value = 0;
};

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole_text = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!is_whole_text || !std::isfinite(value)) return {};
  return value;
}

// Reads an end of a range. Nothing means that it is no number and has no known unit.
std::optional<Amount> amount_of(std::string_view text) {
  if (const auto number = number_of(text)) {
    const bool is_whole = text.find_first_not_of("-0123456789") == std::string_view::npos;
    return Amount{is_whole ? Knob::Kind::whole : Knob::Kind::number, *number};
  }
  if (const auto time = report::parse_time(text)) {
    return Amount{Knob::Kind::time, static_cast<double>(time->ps)};
  }
  if (const auto rate = report::parse_rate(text)) {
    return Amount{Knob::Kind::rate, static_cast<double>(*rate)};
  }
  if (const auto bytes = report::parse_bytes(text)) {
    return Amount{Knob::Kind::bytes, static_cast<double>(*bytes)};
  }
  return {};
}

// Sets the range. The error has no key.
Result<void> set_range(Knob& knob, std::string_view least, std::string_view most) {
  auto low = amount_of(least);
  auto high = amount_of(most);
  for (const auto& [text, amount] : {std::pair(least, low), std::pair(most, high)}) {
    if (amount) continue;
    return Error{fmt::format("{} is neither a number nor an amount such as 64KB, 10us or 40Mbps",
                             tulle::quoted(text))};
  }
  using enum Knob::Kind;
  if (low->kind == whole && high->kind == number) low->kind = number;
  if (low->kind == number && high->kind == whole) high->kind = number;
  if (low->kind != high->kind) {
    return Error{
        fmt::format("{} and {} have different units", tulle::quoted(least), tulle::quoted(most))};
  }
  if (high->value <= low->value) {
    return Error{fmt::format("{} is not more than {}", tulle::quoted(most), tulle::quoted(least))};
  }
  // Beyond these, whole numbers are no longer exact, and factors no longer finite.
  constexpr double whole_max = 9'007'199'254'740'992;  // 2^53
  const double widest = std::max(std::abs(low->value), std::abs(high->value));
  const double narrowest = low->value > 0 ? low->value : 1;
  if (widest > whole_max || narrowest < 1 / whole_max) {
    return Error{fmt::format("{} to {} is too wide: numbers from 1.2e-16 to 9e15 can be searched",
                             tulle::quoted(least), tulle::quoted(most))};
  }
  knob.kind = low->kind;
  knob.least = low->value;
  knob.most = high->value;
  return {};
}

// Rounds to three significant digits.
double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 2);
  return std::round(value / unit) * unit;
}

double value_between(const Knob& knob, double place) {
  const double at = std::clamp(place, 0.0, 1.0);
  if (knob.is_logarithmic()) return knob.least * std::pow(knob.most / knob.least, at);
  return knob.least + (knob.most - knob.least) * at;
}

// Returns an amount in the largest unit in which it needs no more than three digits before the
// point: 1.23MB, not 1230KB.
std::string in_units(double value, double step, std::span<const std::string_view> units) {
  std::size_t unit = 0;
  while (unit + 1 < units.size() && value >= step) {
    value /= step;
    ++unit;
  }
  return fmt::format("\"{:.6g}{}\"", value, units[unit]);
}

std::string toml_of_value(Knob::Kind kind, double value) {
  static constexpr std::string_view times[] = {"ps", "ns", "us", "ms", "s"};
  static constexpr std::string_view rates[] = {"bps", "Kbps", "Mbps", "Gbps", "Tbps"};
  static constexpr std::string_view amounts[] = {"B", "KB", "MB", "GB", "TB"};
  switch (kind) {
    case Knob::Kind::time:
      return in_units(std::round(value), 1'000, times);
    case Knob::Kind::rate:
      return in_units(std::round(value), 1'000, rates);
    case Knob::Kind::bytes:
      return in_units(std::round(value), 1'000, amounts);
    case Knob::Kind::whole:
      return fmt::format("{:.0f}", value);
    case Knob::Kind::number:
    case Knob::Kind::choice:
      break;
  }
  const std::string text = fmt::format("{:.6g}", value);
  const bool is_float = text.find_first_of(".en") != std::string::npos;
  return is_float ? text : text + ".0";  // an integer would be another type
}

}  // namespace

Result<Knob> parse_range(std::string_view text) {
  const std::size_t sign = text.find('=');
  const std::string_view value = sign == std::string_view::npos ? "" : text.substr(sign + 1);
  const std::size_t dots = value.find("..");
  if (dots == std::string_view::npos) {
    auto list = scenario::parse_knob(text);
    if (!list) return list.error();
    if (list->values.size() < 2) {
      return Error{fmt::format(
          "--knob {}: a range such as 10KB..4MB is needed, or several values to choose from",
          list->key)};
    }
    Knob knob{std::move(list->key), Knob::Kind::choice};
    knob.values = std::move(list->values);
    return knob;
  }
  // The key is checked as that of any other knob is.
  auto plain = scenario::parse_knob(fmt::format("{}=0", text.substr(0, sign)));
  if (!plain) return plain.error();
  Knob knob{std::move(plain->key)};
  if (auto set = set_range(knob, value.substr(0, dots), value.substr(dots + 2)); !set) {
    return Error{fmt::format("--knob {}: {}", knob.key, set.error().message)};
  }
  return knob;
}

namespace {

// Returns an end of a range as its text.
std::string end_of(const toml::node* node) {
  if (node == nullptr) return "";
  if (const auto text = node->value_exact<std::string>()) return *text;
  if (const auto whole = node->value_exact<std::int64_t>()) return fmt::format("{}", *whole);
  if (const auto number = node->value_exact<double>()) {
    const std::string text = fmt::format("{}", *number);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  }
  return "";
}

Knob read_knob(const toml::table& table, config::Findings& findings) {
  Knob knob;
  const toml::node* key = table.get("key");
  knob.key = key == nullptr ? "" : key->value_exact<std::string>().value_or("");
  if (knob.key.empty()) findings.add(table, "knob.key", "is needed: a key of a scenario");
  for (const auto& [name, node] : table) {
    static constexpr std::string_view known[] = {"key", "least", "most", "times", "values"};
    if (std::ranges::find(known, name.str()) == std::end(known)) {
      findings.add(node, fmt::format("knob.{}", name.str()), "is no key of a knob");
    }
  }
  if (!knob.key.empty() && !scenario::parse_knob(knob.key + "=0")) {
    findings.add(*key, "knob.key",
                 fmt::format("{} is no key of a scenario", tulle::quoted(knob.key)));
  }
  const toml::node* values = table.get("values");
  if (values != nullptr) {
    if (const toml::node* times = table.get("times")) {
      findings.add(*times, "knob.times", "goes with least and most, and not with values");
    }
    knob.kind = Knob::Kind::choice;
    const toml::array* list = values->as_array();
    if (list == nullptr || list->size() < 2) {
      findings.add(*values, "knob.values", "must be a list of two values or more");
      return knob;
    }
    for (const toml::node& node : *list) knob.values.push_back(config::toml_of(node));
    return knob;
  }
  if (const toml::node* times = table.get("times")) {
    knob.times = times->value_exact<std::string>().value_or("");
    if (knob.times.empty()) findings.add(*times, "knob.times", "must be the key of a knob");
  }
  const std::string least = end_of(table.get("least")), most = end_of(table.get("most"));
  if (auto set = set_range(knob, least, most); !set) {
    findings.add(table, knob.key, fmt::format("least and most: {}", set.error().message));
  }
  const bool is_factor = knob.kind == Knob::Kind::number || knob.kind == Knob::Kind::whole;
  if (!knob.times.empty() && !is_factor) {
    findings.add(table, knob.key, "least and most are factors of another knob, and have no unit");
  }
  return knob;
}

}  // namespace

Result<std::vector<Knob>> read_knobs(const std::string& path) {
  constexpr std::size_t bytes_max = 1u << 20;
  auto text = config::read_file(path, bytes_max);
  if (!text) return text.error();
  auto root = config::parse_toml(*text, path);
  if (!root) return root.error();
  config::Findings findings(path);
  const toml::array* list = (*root)["knob"].as_array();
  if (list == nullptr || !list->is_array_of_tables() || list->size() > knobs_max) {
    return Error{fmt::format("{}: needs a list of 1 to {} knobs: [[knob]]", path, knobs_max)};
  }
  for (const auto& [name, node] : *root) {
    if (name.str() != "knob" && name.str() != "title") {
      findings.add(node, name.str(), "is no key of a file of knobs");
    }
  }
  std::vector<Knob> knobs;
  for (const toml::node& node : *list) knobs.push_back(read_knob(*node.as_table(), findings));
  if (findings.any()) return Error{findings.first()};
  return knobs;
}

Result<void> check(std::span<const Knob> knobs) {
  if (knobs.size() > knobs_max) {
    return Error{
        fmt::format("there are {} knobs, and at most {} can be searched", knobs.size(), knobs_max)};
  }
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const auto earlier = knobs.subspan(0, i);
    const auto named = [&](const std::string& key) {
      return std::ranges::find(earlier, key, &Knob::key);
    };
    if (named(knobs[i].key) != earlier.end()) {
      return Error{fmt::format("knob {} is there twice", knobs[i].key)};
    }
    if (knobs[i].times.empty()) continue;
    const auto base = named(knobs[i].times);
    if (base == earlier.end() || base->kind == Knob::Kind::choice) {
      return Error{fmt::format("knob {}: {} is no earlier knob with a range", knobs[i].key,
                               tulle::quoted(knobs[i].times))};
    }
  }
  return {};
}

std::vector<std::string> values_at(std::span<const Knob> knobs, std::span<const double> place) {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  std::vector<Knob::Kind> kinds;
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const Knob& knob = knobs[i];
    if (knob.kind == Knob::Kind::choice) {
      const auto count = static_cast<double>(knob.values.size());
      const double index = std::clamp(std::floor(place[i] * count), 0.0, count - 1);
      texts.push_back(knob.values[static_cast<std::size_t>(index)]);
      numbers.push_back(0);
      kinds.push_back(knob.kind);
      continue;
    }
    double value = value_between(knob, place[i]);
    Knob::Kind kind = knob.kind;
    if (!knob.times.empty()) {
      const auto base = std::ranges::find(knobs, knob.times, &Knob::key) - knobs.begin();
      value *= numbers[static_cast<std::size_t>(base)];
      kind = kinds[static_cast<std::size_t>(base)];
    }
    value = kind == Knob::Kind::whole ? std::round(value) : rounded(value);
    if (knob.times.empty()) value = std::clamp(value, knob.least, knob.most);
    texts.push_back(toml_of_value(kind, value));
    numbers.push_back(value);
    kinds.push_back(kind);
  }
  return texts;
}

}  // namespace tulle::tuning
