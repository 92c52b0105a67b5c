#include "study/report/stored.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

namespace tulle::report {
namespace {

using stored_t = nlohmann::ordered_json;

// JSON has no number that is infinite, or none: they are texts.
stored_t stored_double(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double double_of(const stored_t& json) {
  if (json.is_string()) return std::strtod(json.get<std::string>().c_str(), nullptr);
  if (!json.is_number()) throw std::runtime_error("a figure is no number");
  return json.get<double>();
}

std::uint64_t count_of(const stored_t& json) {
  if (!json.is_number_unsigned()) throw std::runtime_error("a figure is no count");
  return json.get<std::uint64_t>();
}

stored_t stored_value(const Value& value) {
  if (const auto* count = std::get_if<std::uint64_t>(&value)) return {{"count", *count}};
  if (const auto* number = std::get_if<double>(&value)) return {{"number", stored_double(*number)}};
  if (const auto* time = std::get_if<Time>(&value)) return {{"ps", time->ps}};
  return {{"bps", stored_double(std::get<Rate>(value).bits_per_second)}};
}

Value value_of(const stored_t& json) {
  if (json.contains("count")) return count_of(json["count"]);
  if (json.contains("number")) return double_of(json["number"]);
  if (!json.contains("ps")) return Rate{double_of(json.at("bps"))};
  if (!json["ps"].is_number_integer()) throw std::runtime_error("a figure is no time");
  return Time::picoseconds(json["ps"].get<std::int64_t>());
}

stored_t stored_figures(const Figures& figures) {
  stored_t json = stored_t::array();
  for (const Measured& measured : figures) {
    stored_t entry = stored_value(measured.value);
    entry["key"] = measured.figure->key;
    json.push_back(std::move(entry));
  }
  return json;
}

Figures figures_of(const stored_t& json, const FigureOf& figure_of) {
  Figures figures;
  for (const stored_t& entry : json) {
    const Figure* figure = figure_of(entry.at("key").get<std::string>());
    if (figure == nullptr) throw std::runtime_error("a figure that this version does not know");
    figures.push_back({figure, value_of(entry)});
    if (!has_kind(*figure, figures.back().value)) {
      throw std::runtime_error("a figure has another kind of value");
    }
  }
  return figures;
}

stored_t stored_tally(const Tally& tally) {
  return {tally.flows, tally.finished, tally.failed, tally.arrived};
}

Tally tally_of(const stored_t& json) {
  const Tally tally{count_of(json.at(0)), count_of(json.at(1)), count_of(json.at(2)),
                    count_of(json.at(3))};
  const bool is_right = tally.finished <= tally.flows && tally.arrived <= tally.flows &&
                        tally.failed <= tally.flows - tally.finished;
  if (!is_right) throw std::runtime_error("more flows ended than there were");
  return tally;
}

stored_t stored_method(const std::optional<Method>& method) {
  if (!method) return nullptr;
  return {method->algorithm, method->protocol};
}

// A method's names are literals where it was measured. Here they stay for as long as the program
// runs; there are few.
std::string_view literal(const std::string& name) {
  static std::set<std::string> names;
  return *names.insert(name).first;
}

std::optional<Method> method_of(const stored_t& json) {
  if (json.is_null()) return std::nullopt;
  return Method{literal(json.at(0).get<std::string>()), literal(json.at(1).get<std::string>())};
}

}  // namespace

stored_t stored_json(const Outcome& outcome) {
  stored_t json;
  json["variant"] = outcome.variant;
  json["tally"] = stored_tally(tally(outcome));
  json["method"] = stored_method(outcome.method);
  json["figures"] = stored_figures(outcome.figures);
  json["simulator"] = stored_figures(outcome.simulator);
  json["kinds"] = stored_t::array();
  for (std::size_t i = 0; i < outcome.kinds.size(); ++i) {
    const Kind& kind = outcome.kinds[i];
    json["kinds"].push_back({{"name", kind.name},
                             {"tally", stored_tally(tally(outcome, i))},
                             {"method", stored_method(kind.method)},
                             {"figures", stored_figures(kind.figures)}});
  }
  return json;
}

Result<Outcome> stored_outcome(const stored_t& json, const FigureOf& figure_of) {
  try {
    Outcome outcome;
    outcome.variant = json.at("variant").get<std::string>();
    outcome.tally = tally_of(json.at("tally"));
    outcome.method = method_of(json.at("method"));
    outcome.figures = figures_of(json.at("figures"), figure_of);
    outcome.simulator = figures_of(json.at("simulator"), figure_of);
    for (const stored_t& kind : json.at("kinds")) {
      outcome.kinds.push_back({kind.at("name").get<std::string>(),
                               figures_of(kind.at("figures"), figure_of),
                               method_of(kind.at("method")), tally_of(kind.at("tally"))});
    }
    return outcome;
  } catch (const std::exception& error) {
    return Error{error.what()};
  }
}

}  // namespace tulle::report
