#include "study/report/figure.h"

#include <fmt/format.h>

#include <cstdlib>

#include <algorithm>

namespace tulle::report {
namespace {

constexpr std::string_view ending_of_times = "_us";

// Turns a value into the number that represents it in JSON, with all its bits.
struct ToNumber {
  double operator()(std::uint64_t count) const { return static_cast<double>(count); }
  double operator()(double number) const { return number; }
  double operator()(Time time) const { return static_cast<double>(time.ps) * 1e-6; }
  double operator()(Rate rate) const { return rate.bits_per_second * 1e-9; }
};

}  // namespace

bool has_kind(const Figure& figure, const Value& value) {
  if (figure.form == Form::count) return std::holds_alternative<std::uint64_t>(value);
  if (figure.form == Form::rate) return std::holds_alternative<Rate>(value);
  if (figure.key.ends_with(ending_of_times)) return std::holds_alternative<Time>(value);
  return std::holds_alternative<double>(value);
}

const Measured* find(const Figures& figures, std::string_view key) {
  const auto found = std::ranges::find_if(
      figures, [&](const Measured& measured) { return measured.figure->key == key; });
  return found == figures.end() ? nullptr : &*found;
}

double exact(const Value& value) { return std::visit(ToNumber{}, value); }

double rounded(const Value& value) {
  if (std::holds_alternative<std::uint64_t>(value)) return exact(value);
  return std::strtod(fmt::format("{:.9g}", exact(value)).c_str(), nullptr);
}

std::string ns_text(Time time) {
  const std::int64_t ps = time.ps % 1'000;
  return ps == 0 ? fmt::format("{}", time.ps / 1'000)
                 : fmt::format("{}.{:03}", time.ps / 1'000, ps);
}

std::string csv_key(const Figure& figure) {
  std::string key(figure.key);
  if (key.ends_with(ending_of_times)) key.replace(key.size() - ending_of_times.size(), 3, "_ns");
  return key;
}

std::string csv_text(const Value& value) {
  if (const auto* count = std::get_if<std::uint64_t>(&value)) return fmt::format("{}", *count);
  if (const auto* time = std::get_if<Time>(&value)) return ns_text(*time);
  return fmt::format("{:.4f}", exact(value));
}

}  // namespace tulle::report
