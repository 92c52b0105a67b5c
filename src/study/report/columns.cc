#include "study/report/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/quoted.h"
#include "base/terminal_text.h"
#include "study/report/markdown.h"
#include "study/report/quantity.h"

namespace tulle::report {
namespace {

// A row for a variant, or below it for one kind of its traffic.
struct Row {
  std::string name;
  const Figures* figures;
  Tally tally;
  const std::optional<Method>* method;
  bool is_variant;

  bool all_finished() const { return tally.finished == tally.flows; }
};

// `mark` precedes the names of kinds.
std::vector<Row> rows_of(const std::vector<Outcome>& outcomes, std::string_view mark) {
  std::vector<Row> rows;
  for (const Outcome& outcome : outcomes) {
    rows.push_back({outcome.variant, &outcome.figures, tally(outcome), &outcome.method, true});
    for (std::size_t i = 0; i < outcome.kinds.size(); ++i) {
      const Kind& kind = outcome.kinds[i];
      rows.push_back(
          {std::string(mark) + kind.name, &kind.figures, tally(outcome, i), &kind.method, false});
    }
  }
  return rows;
}

std::string flows_text(const Row& row) {
  return fmt::format("{}/{}", row.tally.finished, row.tally.flows);
}

// Returns the figures of the rows that have a place, from left to right.
template <typename PlaceOf>
std::vector<const Figure*> columns_of(const std::vector<Row>& rows, PlaceOf place_of) {
  std::vector<const Figure*> columns;
  for (const Row& row : rows) {
    for (const Measured& measured : *row.figures) {
      const Figure& figure = *measured.figure;
      const bool is_there = std::ranges::find(columns, figure.key, &Figure::key) != columns.end();
      if (place_of(figure) > 0 && !is_there) columns.push_back(&figure);
    }
  }
  std::ranges::stable_sort(columns, {}, [&](const Figure* figure) { return place_of(*figure); });
  return columns;
}

// --- the table of `tulle sim` -------------------------------------------------------------------

// Returns the text of the figure, or "" if the row has no such figure.
std::string summary_cell(const Figure& figure, const Row& row) {
  const Measured* measured = find(*row.figures, figure.key);
  if (measured == nullptr) return "";
  if (figure.summary.of_all_arrived && row.tally.arrived < row.tally.flows) return "";
  const double number = exact(measured->value);
  switch (figure.form) {
    case Form::per_cent:
      return fmt::format("{:.1f} %", number * 100);
    case Form::rate:
      return rate_text(std::get<Rate>(measured->value).bits_per_second);
    case Form::count:
    case Form::number:
      break;
  }
  return fmt::format("{:.{}f}", number, figure.summary.digits);
}

std::vector<const Figure*> summary_columns(const std::vector<Row>& rows) {
  auto columns = columns_of(rows, [](const Figure& figure) { return figure.summary.place; });
  std::erase_if(columns, [&](const Figure* figure) {
    return std::ranges::all_of(rows,
                               [&](const Row& row) { return summary_cell(*figure, row).empty(); });
  });
  return columns;
}

std::string summary_text(const SummaryColumn& column, std::string_view text) {
  return fmt::format("{}{:>{}}", column.is_close ? " " : "  ", text, column.width);
}

// --- the most telling figures side by side ------------------------------------------------------

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

using Values = std::vector<std::optional<double>>;

Values values_of(const Figure& figure, const std::vector<Row>& rows) {
  Values values;
  for (const Row& row : rows) {
    const Measured* measured = find(*row.figures, figure.key);
    const bool is_shown =
        measured != nullptr && !(figure.column.of_finished && row.tally.finished == 0);
    values.push_back(is_shown ? std::optional(rounded(measured->value)) : std::nullopt);
  }
  return values;
}

void mark_best(const Figure& figure, const std::vector<Row>& rows, const Values& values,
               Table& table) {
  if (figure.column.best == Best::none) return;
  const auto counts = [&](std::size_t i) {
    return values[i] && rows[i].is_variant && rows[i].all_finished();
  };
  std::vector<double> counted;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (counts(i)) counted.push_back(*values[i]);
  }
  if (counted.size() < 2) return;
  const auto [least, most] = std::ranges::minmax(counted);
  if (least == most) return;
  const double best = figure.column.best == Best::least ? least : most;
  for (std::size_t i = 0; i < values.size(); ++i) {
    table.rows[i].back().best = counts(i) && *values[i] == best;
  }
}

// A column tells nothing if no variant has anything in it.
bool is_telling(const Values& values) {
  return std::ranges::any_of(values, [](const auto& value) { return value && *value != 0; });
}

void add_methods(const std::vector<Row>& rows, Table& table) {
  if (std::ranges::none_of(rows, [](const Row& row) { return row.method->has_value(); })) return;
  table.heads.emplace_back("algorithm, protocol");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::optional<Method>& method = *rows[i].method;
    table.rows[i].push_back(
        {method ? fmt::format("{}, {}", method->algorithm, method->protocol) : "-"});
  }
}

// Returns the width in columns of a terminal, not in bytes, since names may have any letters.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string summary_table(const std::vector<Outcome>& outcomes) {
  std::vector<Row> rows = rows_of(outcomes, "  ");
  for (Row& row : rows) row.name = one_line(row.name);
  std::size_t width = 7;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  const std::vector<const Figure*> columns = summary_columns(rows);
  std::string text =
      fmt::format("{:<{}}  {:>13}", outcomes.size() > 1 ? "variant" : "", width, "flows");
  for (const Figure* figure : columns) {
    const std::string_view own = figure->summary.heading;
    text += summary_text(figure->summary, own.empty() ? figure->heading : own);
  }
  text += "\n";
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:>13}", row.name, width, flows_text(row));
    for (const Figure* figure : columns)
      line += summary_text(figure->summary, summary_cell(*figure, row));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Table telling_figures(const std::string& what, const std::vector<Outcome>& outcomes) {
  Table table;
  table.heads = {what, "flows"};
  const std::vector<Row> rows = rows_of(outcomes, "\u00b7 ");
  for (const Row& row : rows) {
    table.rows.push_back({{row.name}, {flows_text(row)}});
  }
  add_methods(rows, table);
  const auto place_of = [](const Figure& of) { return of.column.place; };
  for (const Figure* figure : columns_of(rows, place_of)) {
    const Values values = values_of(*figure, rows);
    if (!is_telling(values)) continue;
    table.heads.emplace_back(figure->heading);
    for (std::size_t i = 0; i < values.size(); ++i) {
      table.rows[i].push_back({values[i] ? text_of(figure->form, *values[i]) : "-"});
    }
    mark_best(*figure, rows, values, table);
  }
  return table;
}

std::string figure_text(const Measured& measured) {
  return text_of(measured.figure->form, rounded(measured.value));
}

std::string plain_text(Table table, bool mark) {
  for (auto& row : table.rows) {
    for (Cell& cell : row) cell.text = one_line(cell.text);
  }
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < table.heads.size(); ++column) {
    std::size_t width = width_of(table.heads[column]);
    for (const auto& row : table.rows) width = std::max(width, width_of(row[column].text));
    widths.push_back(width);
  }
  const auto padded = [&](const std::string& text, std::size_t column, bool bold) {
    const std::string blanks(widths[column] - width_of(text), ' ');
    const std::string shown = bold ? fmt::format("{}{}{}", bold_begin, text, bold_end) : text;
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
  for (const std::string& head : table.heads) out += " " + markdown_text(head) + " |";
  out += "\n| ---";
  for (std::size_t column = 1; column < table.heads.size(); ++column) out += " | ---:";
  out += " |\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const Cell& cell : row) out += " " + markdown_text(cell.text) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace tulle::report
