#include "fabric/faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/quoted.h"

namespace tulle::fabric {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit probability_units[] = {{"", 1}, {"%", 0.01}};
constexpr Unit time_units[] = {{"ns", 1e3}, {"us", 1e6}, {"ms", 1e9}, {"s", 1e12}, {"", 0}};

// Parses a number followed by one of these units.
std::optional<double> parse_number(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  for (const Unit& known : units) {
    if (known.name == unit && (known.factor > 0 || number == 0)) return number * known.factor;
  }
  return std::nullopt;
}

std::optional<std::string> set_probability(std::string_view key, std::string_view value,
                                           double& out) {
  const auto number = parse_number(value, probability_units);
  if (!number || *number > 1) {
    return "faults: " + std::string(key) + " is a probability from 0 to 1 (or a percentage), not " +
           quoted(value);
  }
  out = *number;
  return std::nullopt;
}

std::optional<std::string> set_time(std::string_view key, std::string_view value, Time& out) {
  constexpr double longest_ps = 60e12;  // a minute
  const auto picoseconds = parse_number(value, time_units);
  if (!picoseconds || *picoseconds > longest_ps) {
    return "faults: " + std::string(key) +
           " is a time such as 100us (ns, us, ms, s; at most 60s), "
           "not " +
           quoted(value);
  }
  out = Time::picoseconds(static_cast<std::int64_t>(*picoseconds));
  return std::nullopt;
}

std::optional<std::string> set(std::string_view key, std::string_view value,
                               FaultSettings& settings) {
  if (key == "drop") return set_probability(key, value, settings.drop);
  if (key == "duplicate") return set_probability(key, value, settings.duplicate);
  if (key == "reorder") return set_probability(key, value, settings.reorder);
  if (key == "corrupt") return set_probability(key, value, settings.corrupt);
  if (key == "delay") return set_time(key, value, settings.delay);
  if (key == "reorder_delay") return set_time(key, value, settings.reorder_delay);
  if (key != "seed") {
    return "faults: there is no " + quoted(key) +
           ", only drop, duplicate, reorder, corrupt, delay, reorder_delay and seed";
  }
  const auto [rest, error] =
      std::from_chars(value.data(), value.data() + value.size(), settings.seed);
  if (error == std::errc() && rest == value.data() + value.size()) return std::nullopt;
  return "faults: seed is a whole number, not " + quoted(value);
}

}  // namespace

std::variant<FaultSettings, std::string> parse_faults(std::string_view text) {
  FaultSettings settings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      return "faults: " + quoted(entry) + " is not of the form name=value";
    }
    const auto error = set(entry.substr(0, equals), entry.substr(equals + 1), settings);
    if (error) return *error;
  }
  return settings;
}

Faults::Copies Faults::draw() {
  // Every value is drawn each time, in the same order, so that changing one rate does not change
  // the draws of the others.
  const bool dropped = random_.chance(settings_.drop);
  const bool duplicated = random_.chance(settings_.duplicate);
  Copies out;
  out.count = (dropped ? 0u : 1u) + (duplicated ? 1u : 0u);
  counters_.dropped += dropped ? 1 : 0;
  counters_.duplicated += duplicated ? 1 : 0;
  const auto longest =
      static_cast<std::uint64_t>(std::max<std::int64_t>(settings_.reorder_delay.ps, 1));
  for (std::size_t i = 0; i < out.copies.size(); ++i) {
    const bool reordered = random_.chance(settings_.reorder);
    const Time extra{static_cast<std::int64_t>(random_.below(longest)) + 1};
    const bool damaged = random_.chance(settings_.corrupt);
    out.copies[i] = {reordered ? settings_.delay + extra : settings_.delay, damaged};
    if (i >= out.count) continue;
    counters_.reordered += reordered ? 1 : 0;
    counters_.corrupted += damaged ? 1 : 0;
  }
  return out;
}

std::size_t Faults::damage(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  switch (random_.below(4)) {
    case 0:
      return random_.below(bytes.size());
    case 1: {
      const std::uint64_t from = random_.below(bytes.size());
      const std::uint64_t count =
          std::min<std::uint64_t>(1 + random_.below(16), bytes.size() - from);
      for (std::uint64_t i = 0; i < count; ++i) {
        bytes[from + i] ^= static_cast<std::byte>(1 + random_.below(255));
      }
      return bytes.size();
    }
    default:
      // An odd number of bits is flipped, so that they cannot all cancel each other out.
      for (std::uint64_t i = 0, bits = 1 + 2 * random_.below(2); i < bits; ++i) {
        const std::uint64_t bit = random_.below(bytes.size() * 8);
        bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      }
      return bytes.size();
  }
}

}  // namespace tulle::fabric
