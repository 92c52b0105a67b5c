#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/quoted.h"
#include "fabric/topology.h"
#include "fabric/topology_builder.h"

// Reading takes two passes. First, lines become rows, and each row is checked by itself. Then the
// rows are checked together. An error of the second pass is reported at the line that names the
// node first.

namespace tulle::fabric {
namespace {

constexpr std::string_view header = "a,b,gbps,delay_ns";
constexpr double max_gbps = 1e6;
constexpr double max_delay_ns = 1e12;  // a thousand seconds

struct Row {
  std::uint32_t a = 0, b = 0;
  LinkSettings settings;
  std::size_t line = 0;
};

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Removes and returns the text up to `separator`, or all of it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  Result<Topology> read(std::string_view text) {
    if (auto ok = read_rows(text); !ok) return ok.error();
    if (auto ok = check_numbering(); !ok) return ok.error();
    count_links();
    if (auto ok = check_hosts(); !ok) return ok.error();
    if (auto ok = check_reachable(); !ok) return ok.error();
    TopologyBuilder build(hosts_, nodes_ - hosts_, Tiers{{{hosts_, "switch", hosts_}}});
    for (const Row& row : rows_) build.link(row.a, row.b, row.settings);
    return build.take();
  }

 private:
  Error error(std::size_t line, const std::string& what) const {
    return Error{std::string(file_) + ":" + std::to_string(line) + ": " + what};
  }

  static std::string node(std::uint32_t number) { return "node " + std::to_string(number); }

  Result<void> read_rows(std::string_view text) {
    bool seen_header = false;
    std::size_t line_number = 0;
    while (!text.empty()) {
      const std::string_view line = trimmed(take_until(text, '\n'));
      ++line_number;
      if (line.empty() || line.front() == '#') continue;
      if (!seen_header) {
        if (line != header) {
          return error(line_number, "the first line must be the header " + std::string(header) +
                                        ", not " + quoted(line));
        }
        seen_header = true;
        continue;
      }
      if (auto ok = read_row(line, line_number); !ok) return ok;
    }
    if (rows_.empty()) {
      return error(std::max<std::size_t>(line_number, 1), "there are no links; after the header " +
                                                              std::string(header) +
                                                              ", write one line a link");
    }
    return {};
  }

  Result<void> read_row(std::string_view line, std::size_t line_number) {
    const auto columns = std::count(line.begin(), line.end(), ',') + 1;
    if (columns != 4) {
      return error(line_number, "there are " + std::to_string(columns) +
                                    " columns; write the four of " + std::string(header));
    }
    const std::string_view a_text = trimmed(take_until(line, ','));
    const std::string_view b_text = trimmed(take_until(line, ','));
    const std::string_view gbps_text = trimmed(take_until(line, ','));
    const std::string_view delay_text = trimmed(line);
    const auto a = parse<std::uint32_t>(a_text), b = parse<std::uint32_t>(b_text);
    for (const auto& [number, text] : {std::pair{a, a_text}, std::pair{b, b_text}}) {
      if (!number || *number >= max_nodes) {
        return error(line_number, "a node is a number from 0 to " + std::to_string(max_nodes - 1) +
                                      ", not " + quoted(text));
      }
    }
    if (a == b) {
      return error(line_number, node(*a) + " is linked to itself; name two different nodes");
    }
    const auto gbps = parse<double>(gbps_text);
    // The lowest rate is one bit a second, because rates are stored in whole bits.
    if (!gbps || !(*gbps >= 1e-9 && *gbps <= max_gbps)) {
      return error(line_number,
                   "gbps is a number above 0, at most 1000000, not " + quoted(gbps_text));
    }
    const auto delay = parse<double>(delay_text);
    if (!delay || !(*delay >= 0 && *delay <= max_delay_ns)) {
      return error(line_number,
                   "delay_ns is a number from 0 to 1000000000000, not " + quoted(delay_text));
    }
    rows_.push_back({*a,
                     *b,
                     {std::llround(*gbps * 1e9), Time::picoseconds(std::llround(*delay * 1e3))},
                     line_number});
    return {};
  }

  // Checks that the nodes named are all of 0 … nodes_-1.
  Result<void> check_numbering() {
    std::uint32_t highest = 0;
    for (const Row& row : rows_) highest = std::max({highest, row.a, row.b});
    nodes_ = highest + 1;
    first_line_.assign(nodes_, 0);
    for (const Row& row : rows_) {
      for (const std::uint32_t n : {row.a, row.b}) {
        if (first_line_[n] == 0) first_line_[n] = row.line;
      }
    }
    const auto gap = std::find(first_line_.begin(), first_line_.end(), 0u);
    if (gap == first_line_.end()) return {};
    return error(first_line_[highest],
                 node(highest) + " is named, but " +
                     node(static_cast<std::uint32_t>(gap - first_line_.begin())) +
                     " has no link; number the nodes from 0 without gaps");
  }

  void count_links() {
    degree_.assign(nodes_, 0);
    for (const Row& row : rows_) {
      ++degree_[row.a];
      ++degree_[row.b];
    }
    while (hosts_ < nodes_ && degree_[hosts_] == 1) ++hosts_;
  }

  Result<void> check_hosts() const {
    if (hosts_ == 0) {
      return error(first_line_[0], "node 0 has " + std::to_string(degree_[0]) +
                                       " links, so there is no host; hosts, with one link each, "
                                       "come first");
    }
    for (std::uint32_t n = hosts_; n < nodes_; ++n) {
      if (degree_[n] == 1) {
        return error(first_line_[n], node(n) + " has one link as a host has, but " + node(hosts_) +
                                         " before it is a switch; number the hosts first");
      }
      if (degree_[n] > max_switch_ports) {
        return error(first_line_[n], node(n) + " has " + std::to_string(degree_[n]) +
                                         " links; a switch has at most " +
                                         std::to_string(max_switch_ports));
      }
    }
    if (nodes_ == 2) return {};
    for (const Row& row : rows_) {
      if (row.a < hosts_ && row.b < hosts_) {
        return error(row.line, node(row.a) + " and " + node(row.b) +
                                   " are hosts (one link each) and linked to each other, which "
                                   "only two nodes without a switch may be; link each to a switch");
      }
    }
    return {};
  }

  Result<void> check_reachable() const {
    // A forest of parents is small, and fast enough for millions of links.
    std::vector<std::uint32_t> parent(nodes_);
    for (std::uint32_t n = 0; n < nodes_; ++n) parent[n] = n;
    const auto root = [&](std::uint32_t n) {
      while (parent[n] != n) n = parent[n] = parent[parent[n]];
      return n;
    };
    for (const Row& row : rows_) parent[root(row.a)] = root(row.b);
    for (std::uint32_t n = 1; n < nodes_; ++n) {
      if (root(n) != root(0)) {
        return error(first_line_[n], node(n) +
                                         " cannot be reached from node 0; add a link that joins "
                                         "the two parts");
      }
    }
    return {};
  }

  std::string_view file_;
  std::vector<Row> rows_;
  std::uint32_t nodes_ = 0;
  std::uint32_t hosts_ = 0;
  std::vector<std::size_t> first_line_;  // by node: line that names it first, 0 for none
  std::vector<std::uint32_t> degree_;    // by node: its number of links
};

}  // namespace

Result<Topology> from_csv(std::string_view text, std::string_view file) {
  return Reader(file).read(text);
}

}  // namespace tulle::fabric
