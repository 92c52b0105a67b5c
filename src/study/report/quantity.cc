#include "study/report/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace tulle::report {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 5> units_of_time = {
    {{"ps", 1}, {"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}, {"s", 1e12}}};
constexpr std::array<Unit, 5> units_of_rate = {
    {{"bps", 1}, {"Kbps", 1e3}, {"Mbps", 1e6}, {"Gbps", 1e9}, {"Tbps", 1e12}}};
constexpr std::array<Unit, 9> units_of_bytes = {{{"B", 1},
                                                 {"KB", 1e3},
                                                 {"MB", 1e6},
                                                 {"GB", 1e9},
                                                 {"TB", 1e12},
                                                 {"KiB", 1024.0},
                                                 {"MiB", 1024.0 * 1024},
                                                 {"GiB", 1024.0 * 1024 * 1024},
                                                 {"TiB", 1024.0 * 1024 * 1024 * 1024}}};

// Parses a number and its unit into the smallest unit, of which it must be a whole number.
std::optional<std::int64_t> parse(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number >= 0)) return {};
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (known.name != unit) continue;
    const double value = number * known.factor;
    constexpr double most = 9.2e18;
    if (value > most || std::abs(value - std::round(value)) > 1e-6 * value) return {};
    return std::llround(value);
  }
  return {};
}

std::string text_of(double value, std::span<const Unit> units) {
  const Unit* best = &units[0];
  for (const Unit& unit : units) {
    if (value >= unit.factor && unit.factor >= best->factor) best = &unit;
  }
  const double scaled = value / best->factor;
  const int digits = scaled >= 100 || scaled == std::floor(scaled) ? 0 : scaled >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", scaled, digits, best->name);
}

}  // namespace

std::optional<Time> parse_time(std::string_view text) {
  const auto ps = parse(text, units_of_time);
  return ps ? std::optional(Time{*ps}) : std::nullopt;
}

std::optional<std::int64_t> parse_rate(std::string_view text) {
  const auto rate = parse(text, units_of_rate);
  return rate && *rate > 0 ? rate : std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto bytes = parse(text, units_of_bytes);
  return bytes ? std::optional(static_cast<std::uint64_t>(*bytes)) : std::nullopt;
}

std::string time_text(Time time) { return text_of(static_cast<double>(time.ps), units_of_time); }
std::string rate_text(double bits_per_second) { return text_of(bits_per_second, units_of_rate); }
std::string bytes_text(double bytes) { return text_of(bytes, std::span(units_of_bytes).first(5)); }

}  // namespace tulle::report
