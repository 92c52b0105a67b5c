#include "scenario/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "scenario/quantity.h"
#include "scenario/results.h"

namespace tulle::scenario {
namespace {

enum class Form { number, per_cent, rate, count };
enum class Best { least, most, none };

struct Column {
  std::string_view name;  // its name in summary.json
  std::string_view head;
  Form form;
  Best best;
  bool of_finished = false;  // empty if no flow finished
};

// A figure that only some scenarios have becomes a column only in those.
constexpr std::array<Column, 20> columns = {
    Column{"latency_us.median", "one way us", Form::number, Best::least},
    {"end_us", "all done us", Form::number, Best::least, true},
    {"fct_us.median", "FCT median us", Form::number, Best::least, true},
    {"fct_us.p99", "99 % us", Form::number, Best::least, true},
    {"fct_us.max", "max us", Form::number, Best::least, true},
    // These compare with the same fabric when it is empty, so that no variant is marked as best.
    {"slowdown.p99", "slowdown 99 %", Form::number, Best::none, true},
    {"share_of_ideal", "of ideal", Form::per_cent, Best::none, true},
    {"goodput_gbps", "goodput", Form::rate, Best::most},
    {"cpu_s_per_gib", "CPU s/GiB", Form::number, Best::least},
    {"dropped", "dropped", Form::count, Best::none},
    {"unmapped", "unmapped", Form::count, Best::none},
    {"pkey_dropped", "pkey dropped", Form::count, Best::none},
    {"lost", "lost", Form::count, Best::none},
    {"watchdog_dropped", "watchdog dropped", Form::count, Best::none},
    {"retransmitted", "resent", Form::count, Best::none},
    {"timeouts", "time-outs", Form::count, Best::none},
    {"marked", "marked", Form::count, Best::none},
    {"pauses", "pauses", Form::count, Best::none},
    {"ports_paused", "ports paused", Form::count, Best::none},
    {"recovery_us", "recovery us", Form::number, Best::least},
};

std::string text_of(Form form, double value) {
  switch (form) {
    case Form::per_cent:
      return fmt::format("{:.1f} %", value * 100);
    case Form::rate:
      return rate_text(value * 1e9);
    case Form::count:
      return fmt::format("{:.0f}", value);
    case Form::number:
      break;
  }
  // More digits than these are not worth showing.
  return fmt::format("{:.{}f}", value, value >= 100 ? 1 : 2);
}

// A row for a variant, or for one kind of its traffic, which stands below the variant.
struct Row {
  const Outcome* outcome;
  std::string name;
  std::string figures;  // prefix of its figures in summary.json
  std::uint64_t finished = 0;
  std::uint64_t flows = 0;

  bool is_variant() const { return figures.empty(); }
  bool all_finished() const { return finished == flows; }
};

std::vector<Row> rows_of(const std::vector<Outcome>& outcomes) {
  std::vector<Row> rows;
  for (const Outcome& outcome : outcomes) {
    rows.push_back({&outcome, outcome.variant, "", outcome.finished, outcome.flows.size()});
    for (const KindOutcome& kind : outcome.kinds) {
      rows.push_back({&outcome, "\u00b7 " + kind.name, "traffic." + kind.name + ".", kind.finished,
                      kind.flows});
    }
  }
  return rows;
}

using Values = std::vector<std::optional<double>>;

Values values_of(const Column& column, const std::vector<Row>& rows) {
  Values values;
  for (const Row& row : rows) {
    values.push_back(column.of_finished && row.finished == 0
                         ? std::nullopt
                         : summary_figure(*row.outcome, row.figures + std::string(column.name)));
  }
  return values;
}

void mark_best(const Column& column, const std::vector<Row>& rows, const Values& values,
               Table& table) {
  if (column.best == Best::none) return;
  const auto counts = [&](std::size_t i) {
    return values[i] && rows[i].is_variant() && rows[i].all_finished();
  };
  std::vector<double> counted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (counts(i)) counted.push_back(*values[i]);
  }
  if (counted.size() < 2) return;
  const auto [least, most] = std::ranges::minmax(counted);
  if (least == most) return;
  const double best = column.best == Best::least ? least : most;
  for (std::size_t i = 0; i < values.size(); ++i) {
    table.rows[i].back().best = counts(i) && *values[i] == best;
  }
}

// A column tells nothing if no variant has anything in it.
bool is_telling(const Values& values) {
  return std::ranges::any_of(values, [](const auto& value) { return value && *value != 0; });
}

// Returns the width in columns of a terminal, not in bytes, since names may have any letters.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

Table telling_figures(const std::string& what, const std::vector<Outcome>& outcomes) {
  Table table;
  table.heads = {what, "flows"};
  const std::vector<Row> rows = rows_of(outcomes);
  for (const Row& row : rows) {
    table.rows.push_back({{row.name}, {fmt::format("{}/{}", row.finished, row.flows)}});
  }
  for (const Column& column : columns) {
    const Values values = values_of(column, rows);
    if (!is_telling(values)) continue;
    table.heads.emplace_back(column.head);
    for (std::size_t i = 0; i < values.size(); ++i) {
      table.rows[i].push_back({values[i] ? text_of(column.form, *values[i]) : "-"});
    }
    mark_best(column, rows, values, table);
  }
  return table;
}

std::string plain_text(const Table& table, bool mark) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < table.heads.size(); ++column) {
    std::size_t width = width_of(table.heads[column]);
    for (const auto& row : table.rows) width = std::max(width, width_of(row[column].text));
    widths.push_back(width);
  }
  const auto padded = [&](const std::string& text, std::size_t column, bool bold) {
    const std::string blanks(widths[column] - width_of(text), ' ');
    const std::string shown = bold ? "\033[1m" + text + "\033[0m" : text;
    return column == 0 ? shown + blanks : "  " + blanks + shown;
  };
  std::string out;
  for (std::size_t column = 0; column < table.heads.size(); ++column) {
    out += padded(table.heads[column], column, false);
  }
  out += "\n";
  for (const auto& row : table.rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      out += padded(row[column].text, column, mark && row[column].best);
    }
    out += "\n";
  }
  return out;
}

std::string markdown(const Table& table) {
  std::string out = "|";
  for (const std::string& head : table.heads) out += " " + escaped(head) + " |";
  out += "\n| ---";
  for (std::size_t column = 1; column < table.heads.size(); ++column) out += " | ---:";
  out += " |\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const Cell& cell : row) out += " " + escaped(cell.text) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace tulle::scenario
