#include "study/config/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/near_names.h"
#include "base/quoted.h"
#include "study/report/quantity.h"

namespace tulle::config {

namespace {

std::string finding(std::string_view file, std::uint32_t line, std::string_view key,
                    std::string_view what) {
  std::string text(file);
  if (line > 0) text += fmt::format(":{}", line);
  return one_line(text +
                  (key.empty() ? fmt::format(": {}", what) : fmt::format(": {}: {}", key, what)));
}

// Returns the n of "link/n".
std::optional<std::int64_t> parse_share(std::string_view text, std::string_view before) {
  if (!text.starts_with(before)) return {};
  text.remove_prefix(before.size());
  std::int64_t n = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || rest != text.data() + text.size() || n < 1) return {};
  return n;
}

}  // namespace

void Findings::add(std::uint32_t line, std::string_view key, std::string_view what) {
  if (!any()) first_ = finding(file_, line, key, what);
}

void Findings::add(const toml::node& node, std::string_view key, std::string_view what) {
  const toml::source_region& source = node.source();
  if (any()) return;
  const std::string& from = source.path == nullptr ? file_ : *source.path;
  // Keys that were set on the command line have no lines.
  first_ = finding(from, from == "--set" ? 0 : source.begin.line, key, what);
}

TableReader::Layers TableReader::tables_under(std::string_view key) const {
  Layers tables;
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const toml::node* node = (*layer)->get(key);
    if (node == nullptr) continue;
    if (!node->is_table()) break;
    tables.insert(tables.begin(), node->as_table());
  }
  return tables;
}

const toml::node* TableReader::find(std::string_view key) const {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const toml::node* node = (*layer)->get(key);
    if (node != nullptr) return node->is_table() ? tables_under(key).front() : node;
  }
  return nullptr;
}

TableReader TableReader::table(std::string_view key) {
  const toml::node* node = take(key);
  const std::string path = path_ + std::string(key) + ".";
  if (node == nullptr) return {{}, path, line_, *findings_};
  if (!node->is_table()) {
    wrong(key, fmt::format("must be a table: [{}{}]", path_, key));
    return {{}, path, line_, *findings_};
  }
  return {tables_under(key), path, node->source().begin.line, *findings_};
}

std::vector<TableReader> TableReader::tables(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return {};
  const toml::array* array = node->as_array();
  if (array != nullptr && array->empty()) return {};  // a variant that removes the list
  if (!node->is_array_of_tables()) {
    wrong(key, fmt::format("must be a list of tables: [[{}{}]]", path_, key));
    return {};
  }
  std::vector<TableReader> found;
  for (const toml::node& element : *node->as_array()) {
    found.push_back({{element.as_table()},
                     path_ + std::string(key) + ".",
                     element.source().begin.line,
                     *findings_});
  }
  return found;
}

const toml::node* TableReader::take(std::string_view key) {
  asked_.emplace(key);
  return find(key);
}

template <typename T>
std::optional<T> TableReader::value(std::string_view key, std::string_view what) {
  const toml::node* node = take(key);
  if (node == nullptr) return {};
  std::optional<T> found = node->value_exact<T>();
  if (!found) wrong(key, what);
  return found;
}

std::string TableReader::text(std::string_view key, std::string_view otherwise) {
  return value<std::string>(key, "must be text in quotes").value_or(std::string(otherwise));
}

bool TableReader::boolean(std::string_view key, bool otherwise) {
  return value<bool>(key, "must be true or false").value_or(otherwise);
}

std::int64_t TableReader::integer(std::string_view key, std::int64_t otherwise, std::int64_t least,
                                  std::int64_t most) {
  const std::string what = fmt::format("must be a whole number from {} to {}", least, most);
  const std::int64_t found = value<std::int64_t>(key, what).value_or(otherwise);
  if (!has(key) || (found >= least && found <= most)) return found;
  wrong(key, fmt::format("{} is out of range, {}", found, what));
  return otherwise;
}

double TableReader::number(std::string_view key, double otherwise, double least, double most) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const std::optional<double> found = node->value<double>();
  if (found && *found >= least && *found <= most) return *found;
  wrong(key, fmt::format("must be a number from {} to {}", least, most));
  return otherwise;
}

Time TableReader::time(std::string_view key, Time otherwise, Time most) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const auto written = node->value_exact<std::string>();
  const auto found = written ? report::parse_time(*written) : std::nullopt;
  if (found && *found <= most) return *found;
  wrong(key, found ? fmt::format("must be at most {}", report::time_text(most))
                   : fmt::format("must be a time such as \"1.5us\", in {}", report::time_units));
  return otherwise;
}

std::int64_t TableReader::rate(std::string_view key, std::int64_t otherwise, std::int64_t link) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const auto written = node->value_exact<std::string>();
  if (written && link > 0) {
    if (const auto part = parse_share(*written, "link/"))
      return std::max<std::int64_t>(link / *part, 1);
  }
  const auto found = written ? report::parse_rate(*written) : std::nullopt;
  if (found && *found <= rate_max) return *found;
  wrong(key, found ? fmt::format("must be at most {}", report::rate_text(rate_max))
                   : fmt::format("must be a rate such as \"400Gbps\", in {}", report::rate_units));
  return otherwise;
}

std::uint64_t TableReader::bytes(std::string_view key, std::uint64_t otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const auto written = node->value_exact<std::string>();
  const auto found = written ? report::parse_bytes(*written) : std::nullopt;
  if (found) return *found;
  wrong(key, fmt::format("must be an amount such as \"64KB\", in {}", report::byte_units));
  return otherwise;
}

std::vector<std::int64_t> TableReader::integers(std::string_view key,
                                                std::vector<std::int64_t> otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  std::vector<std::int64_t> found;
  if (const toml::array* array = node->as_array()) {
    for (const toml::node& element : *array) {
      const auto number = element.value_exact<std::int64_t>();
      if (!number) break;
      found.push_back(*number);
    }
    if (found.size() == array->size() && !found.empty()) return found;
  }
  wrong(key, "must be a list of whole numbers such as [4, 4]");
  return otherwise;
}

std::vector<std::string> TableReader::texts(std::string_view key,
                                            std::vector<std::string> otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  std::vector<std::string> found;
  if (const toml::array* array = node->as_array()) {
    for (const toml::node& element : *array) {
      const auto text = element.value_exact<std::string>();
      if (!text) break;
      found.push_back(*text);
    }
    if (found.size() == array->size() && !found.empty()) return found;
  }
  wrong(key, "must be a list of texts such as [\"leaf 0\", \"spine 1\"]");
  return otherwise;
}

std::size_t TableReader::choose(std::string_view key, std::span<const std::string_view> names,
                                std::size_t otherwise) {
  const toml::node* node = take(key);
  if (node == nullptr) return otherwise;
  const auto written = node->value_exact<std::string>();
  std::string allowed;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (written == names[i]) return i;
    if (i > 0) allowed += i + 1 == names.size() ? " or " : ", ";
    allowed += fmt::format("\"{}\"", names[i]);
  }
  wrong(key, fmt::format("must be {}", allowed));
  return otherwise;
}

void TableReader::wrong(std::string_view key, std::string_view what) {
  const toml::node* node = find(key);
  // A key that was put under the table is on no line.
  if (node == nullptr || node->source().begin.line == 0) {
    findings_->add(line_, path_ + std::string(key), what);
  } else {
    findings_->add(*node, path_ + std::string(key), what);
  }
}

void TableReader::finish() {
  std::set<std::string_view> unknown;
  for (const toml::table* layer : layers_) {
    for (const auto& [key, node] : *layer) {
      if (!asked_.contains(key.str())) unknown.insert(key.str());
    }
  }
  if (unknown.empty()) return;
  std::string known;
  for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
  const std::string_view key = *unknown.begin();
  const std::string meant = did_you_mean(key, asked_);
  findings_->add(*find(key), path_ + std::string(key),
                 fmt::format("is not a known key{}",
                             meant.empty() ? fmt::format("; there are {}", known) : meant));
}

}  // namespace tulle::config
