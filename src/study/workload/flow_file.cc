#include "study/workload/flow_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "study/workload/csv.h"

namespace tulle::workload {
namespace {

enum class Column { source, destination, bytes, start, after };
constexpr std::array<std::string_view, 5> column_names = {"src", "dst", "bytes", "start_ns",
                                                          "after"};
constexpr std::size_t columns_needed = 4;  // all but `after`

constexpr std::size_t absent = std::numeric_limits<std::size_t>::max();
using Places = std::array<std::size_t, column_names.size()>;  // place of each column in a line

// Returns the place of each column, read from the first line.
Result<Places> parse_names(const CsvReader& reader) {
  const std::string expected = "src,dst,bytes,start_ns and optionally after";
  Places places;
  places.fill(absent);
  for (std::size_t i = 0; i < reader.fields().size(); ++i) {
    const auto known = std::find(column_names.begin(), column_names.end(), reader.fields()[i]);
    if (known == column_names.end()) {
      return reader.error(quoted(reader.fields()[i]) + " is no column; name them " + expected);
    }
    std::size_t& place = places[static_cast<std::size_t>(known - column_names.begin())];
    if (place != absent) return reader.error("column " + quoted(*known) + " is there twice");
    place = i;
  }
  for (std::size_t i = 0; i < columns_needed; ++i) {
    if (places[i] == absent) {
      return reader.error("there is no column " + quoted(column_names[i]) + "; name them " +
                          expected);
    }
  }
  return places;
}

// Describes the fault of a field, for the person who wrote it.
std::string fault_of(std::string_view name, std::string_view field, const char* range) {
  const bool negative = field.starts_with('-') && parse_real(field);
  return std::string(name) + " is " + (negative ? "negative: " : "not such a number: ") +
         quoted(field) + "; " + range;
}

// Parses nanoseconds with up to three decimals, exactly.
std::optional<Time> parse_nanoseconds(std::string_view field) {
  const std::size_t point = std::min(field.find('.'), field.size());
  const auto whole = parse_number<std::int64_t>(field.substr(0, point));
  if (!whole || *whole < 0 || field.front() == '-') return std::nullopt;
  std::string decimals(field.substr(std::min(point + 1, field.size())));
  while (decimals.size() > 3 && decimals.back() == '0') decimals.pop_back();
  if (decimals.size() > 3) return std::nullopt;
  decimals.resize(3, '0');
  const auto picoseconds = parse_number<std::uint32_t>(decimals);
  if (!picoseconds || *whole > (Time::never().ps - *picoseconds) / 1'000) return std::nullopt;
  return Time::nanoseconds(*whole) + Time::picoseconds(*picoseconds);
}

// Parses a line of numbers as a flow. check_flow then checks the numbers together.
Result<Flow> parse_flow(const CsvReader& reader, const Places& places) {
  const auto field = [&](Column column) {
    return reader.fields()[places[static_cast<std::size_t>(column)]];
  };
  Flow flow;
  for (const auto& [column, host] : {std::pair(Column::source, &flow.source),
                                     std::pair(Column::destination, &flow.destination)}) {
    const auto number = parse_number<std::uint32_t>(field(column));
    if (!number) {
      return reader.error(fault_of(column_names[static_cast<std::size_t>(column)], field(column),
                                   "give a host's number, from 0"));
    }
    *host = *number;
  }
  const auto bytes = parse_number<std::uint64_t>(field(Column::bytes));
  if (!bytes) {
    return reader.error(fault_of("bytes", field(Column::bytes), "give a whole number, at least 1"));
  }
  flow.bytes = *bytes;
  const auto start = parse_nanoseconds(field(Column::start));
  if (!start) {
    return reader.error(fault_of("start_ns", field(Column::start),
                                 "give nanoseconds from 0, with at most three decimals"));
  }
  flow.start = *start;
  if (places[static_cast<std::size_t>(Column::after)] == absent) return flow;
  const std::string_view after_text = field(Column::after);
  if (after_text.empty() || after_text == "-1") return flow;
  const auto after = parse_number<std::int32_t>(after_text);
  if (!after || *after < 0) {
    return reader.error(
        fault_of("after", after_text, "give the number of an earlier flow, from 0, or nothing"));
  }
  flow.after = *after;
  return flow;
}

// Returns the fault of a flow that would follow `flows`, or nothing.
std::optional<std::string> check_flow(const Flow& flow, const Flows& flows, std::uint32_t hosts) {
  for (const std::uint32_t host : {flow.source, flow.destination}) {
    if (host >= hosts) {
      return "there is no host " + std::to_string(host) + "; hosts are 0 to " +
             std::to_string(std::int64_t{hosts} - 1);
    }
  }
  if (flow.source == flow.destination) {
    return "host " + std::to_string(flow.source) + " sends to itself; name another dst";
  }
  if (flow.bytes == 0) return "a flow of 0 bytes; give at least 1, or leave the line out";
  if (flow.after < 0) return std::nullopt;
  if (static_cast<std::size_t>(flow.after) >= flows.size()) {
    return "after " + std::to_string(flow.after) + " is no earlier flow (this is flow " +
           std::to_string(flows.size()) + ", the first is 0); put what it waits for above it";
  }
  const Flow& awaited = flows[static_cast<std::size_t>(flow.after)];
  if (awaited.destination != flow.source) {
    return "flow " + std::to_string(flow.after) + " arrives at host " +
           std::to_string(awaited.destination) + ", but this flow's src is " +
           std::to_string(flow.source) + "; a flow waits for one that arrives at its src";
  }
  return std::nullopt;
}

}  // namespace

Result<Flows> parse_flows(std::string_view text, std::string_view file, std::uint32_t hosts) {
  CsvReader reader(text, file);
  if (!reader.next()) {
    return reader.error("no columns; the first line is src,dst,bytes,start_ns");
  }
  auto places = parse_names(reader);
  if (!places) return places.error();
  const std::size_t columns = reader.fields().size();
  Flows flows;
  flows.reserve(
      std::min(flows_max, static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'))));
  while (reader.next()) {
    if (reader.fields().size() != columns) {
      return reader.error(std::to_string(reader.fields().size()) +
                          " columns where the first line names " + std::to_string(columns));
    }
    if (flows.size() == flows_max) {
      return reader.error("more than " + std::to_string(flows_max) + " flows");
    }
    auto flow = parse_flow(reader, *places);
    if (!flow) return flow.error();
    if (const auto fault = check_flow(*flow, flows, hosts)) return reader.error(*fault);
    flows.push_back(*flow);
  }
  return flows;
}

std::string format_flows(const Flows& flows) {
  const bool waiting =
      std::any_of(flows.begin(), flows.end(), [](const Flow& flow) { return flow.after >= 0; });
  std::string text = "src,dst,bytes,start_ns";
  text += waiting ? ",after\n" : "\n";
  for (const Flow& flow : flows) {
    text += std::to_string(flow.source) + "," + std::to_string(flow.destination) + "," +
            std::to_string(flow.bytes) + "," + std::to_string(flow.start.to_nanoseconds());
    if (const std::int64_t picoseconds = flow.start.ps % 1'000; picoseconds > 0) {
      text += "." + std::to_string(1'000 + picoseconds).substr(1);
    }
    if (waiting) text += "," + (flow.after >= 0 ? std::to_string(flow.after) : std::string());
    text += "\n";
  }
  return text;
}

}  // namespace tulle::workload
