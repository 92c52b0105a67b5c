// GOAL, by lines:
//
//   num_ranks 2
//   rank 0 {
//     l1: calc 100 cpu 1
//     l2: send 10b to 1 tag 3
//     l2 requires l1
//   }
//
// A semicolon ends a statement like the end of a line. Comments are // to the end of a line, and
// /* to */.

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "study/traces/formats.h"
#include "study/workload/csv.h"

namespace tulle::traces {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// Splits a text into words and the marks : { } and the end of a statement, which is ";".
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  // Returns an empty view at the end of the text.
  std::string_view next() {
    skip();
    if (rest_.empty()) return {};
    std::size_t length = 1;
    if (is_word(rest_[0])) {
      while (length < rest_.size() && is_word(rest_[length])) ++length;
    }
    line_ = next_line_;
    const std::string_view token = rest_.substr(0, length);
    if (token == "\n") ++next_line_;
    rest_.remove_prefix(length);
    return token == "\n" ? ";" : token;
  }
  // Returns the line of the last token.
  std::uint64_t line() const { return line_; }

 private:
  void skip() {
    for (;;) {
      const std::size_t blanks = std::min(rest_.find_first_not_of(" \t\r"), rest_.size());
      rest_.remove_prefix(blanks);
      if (rest_.starts_with("//")) {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (rest_.starts_with("/*")) {
        const std::size_t end = rest_.find("*/");
        const std::string_view comment = rest_.substr(0, end);
        next_line_ += static_cast<std::uint64_t>(std::count(comment.begin(), comment.end(), '\n'));
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 2);
      } else {
        return;
      }
    }
  }

  std::string_view rest_;
  std::uint64_t line_ = 1;
  std::uint64_t next_line_ = 1;
};

class GoalReader {
 public:
  GoalReader(const File& file, const Settings& settings)
      : file_(file), settings_(settings), scanner_(file.text) {}

  Result<Trace> read();

 private:
  using Words = std::vector<std::string_view>;
  struct Requirement {
    std::string_view label, before;
    bool of_start;
    std::uint64_t line;
  };

  Result<void> read_ranks();
  Result<void> begin_rank(const Words& words);
  Result<void> read_statement(const Words& words);
  Result<void> read_action(const Words& words, std::size_t at, std::string_view label);
  Result<void> read_peer(const Words& words, std::size_t& at, Node& node);
  Result<void> end_rank();
  Error error(const std::string& fault) const {
    return {fmt::format("{}:{}: {}", one_line(file_.name), line_, fault)};
  }

  const File& file_;
  const Settings& settings_;
  Scanner scanner_;
  std::uint64_t line_ = 1;
  std::optional<Trace> trace_;
  std::optional<std::uint32_t> rank_;                          // whose block this is
  std::vector<bool> is_known_;                                 // by rank: its block came
  std::unordered_map<std::string_view, Trace::Index> labels_;  // of this rank
  std::vector<Requirement> requirements_;
};

Result<void> GoalReader::begin_rank(const Words& words) {
  if (!trace_) return error("num_ranks comes before the first rank");
  const auto rank = workload::parse_number<std::uint32_t>(words[1]);
  if (!rank || *rank >= trace_->ranks()) {
    return error(fmt::format("there is no rank {}; ranks are 0 to {}", quoted(words[1]),
                             trace_->ranks() - 1));
  }
  if (is_known_[*rank]) return error(fmt::format("rank {} is there twice", *rank));
  is_known_[*rank] = true;
  rank_ = *rank;
  return {};
}

Result<void> GoalReader::end_rank() {
  for (const Requirement& each : requirements_) {
    Trace::Index found[2];
    for (const auto& [label, place] : {std::pair(each.label, 0), std::pair(each.before, 1)}) {
      const auto known = labels_.find(label);
      if (known == labels_.end()) {
        line_ = each.line;
        return error(fmt::format("rank {} has no {}; name it with {}: before its action", *rank_,
                                 quoted(label), one_line(label.substr(0, 30))));
      }
      found[place] = known->second;
    }
    auto added = each.of_start ? trace_->wait_for_start(found[0], found[1])
                               : trace_->wait(found[0], found[1]);
    if (!added) return added.error();
  }
  requirements_.clear();
  labels_.clear();
  rank_.reset();
  return {};
}

// Reads "to 1" or "from 1".
Result<void> GoalReader::read_peer(const Words& words, std::size_t& at, Node& node) {
  const std::string_view way = node.kind == Node::Kind::send ? "to" : "from";
  if (at + 1 >= words.size() || words[at] != way) {
    return error(fmt::format("expected the bytes, then b {} and a rank, as in 10b {} 1", way, way));
  }
  const auto peer = workload::parse_number<std::uint32_t>(words[at + 1]);
  if (!peer) {
    return error(fmt::format("{} is no rank; a receive from any rank (-1) is not read, name one",
                             quoted(words[at + 1])));
  }
  node.peer = *peer;
  at += 2;
  return {};
}

Result<void> GoalReader::read_action(const Words& words, std::size_t at, std::string_view label) {
  Node node;
  node.rank = *rank_;
  node.number = line_;
  const std::string_view action = words[at++];
  std::string_view amount_text = at < words.size() ? words[at++] : std::string_view();
  const bool is_message = action != "calc";
  if (is_message && amount_text.ends_with('b')) {
    amount_text.remove_suffix(1);
  } else if (is_message && at < words.size() && words[at] == "b") {
    ++at;
  }
  const auto amount = workload::parse_number<std::uint64_t>(amount_text);
  if (!amount) {
    return error(fmt::format("{} is no amount; expected {}", quoted(amount_text),
                             is_message ? "bytes, as in 10b" : "nanoseconds"));
  }
  if (is_message) {
    node.kind = action == "send" ? Node::Kind::send : Node::Kind::receive;
    node.bytes = *amount;
    if (auto right = read_peer(words, at, node); !right) return right.error();
  } else {
    node.kind = Node::Kind::computation;
    if (*amount > static_cast<std::uint64_t>(Trace::computation_max.to_nanoseconds())) {
      return error(fmt::format("calc {} lasts more than 50 days; it is in nanoseconds", *amount));
    }
    node.duration = Time::nanoseconds(static_cast<std::int64_t>(*amount));
  }
  for (; at + 1 < words.size(); at += 2) {
    const auto number = workload::parse_number<std::uint32_t>(words[at + 1]);
    const bool is_known = words[at] == "cpu" || words[at] == "nic" || words[at] == "tag";
    if (!is_known || !number) {
      return error(
          fmt::format("{} is not understood; tag, cpu and nic may follow, each with a "
                      "number",
                      quoted(words[at])));
    }
    if (words[at] == "tag") node.tag = *number;
    if (words[at] != "cpu") continue;
    if (*number > 255) return error(fmt::format("cpu {} is too much; 0 to 255", *number));
    node.processor = static_cast<std::uint8_t>(*number);
  }
  if (at != words.size()) return error(fmt::format("{} is too much", quoted(words[at])));
  auto index = trace_->add(node);
  if (!index) return index.error();
  if (!label.empty() && !labels_.try_emplace(label, *index).second) {
    return error(fmt::format("{} is there twice; labels of a rank differ", quoted(label)));
  }
  return {};
}

Result<void> GoalReader::read_statement(const Words& words) {
  const auto is_action = [](std::string_view word) {
    return word == "send" || word == "recv" || word == "calc";
  };
  if (words[0] == "num_ranks" && words.size() == 2 && !trace_) {
    const auto ranks = workload::parse_number<std::uint64_t>(words[1]);
    if (!ranks) return error(fmt::format("num_ranks {} is no number", quoted(words[1])));
    if (auto right =
            check_ranks(fmt::format("{}:{}", one_line(file_.name), line_), *ranks, settings_);
        !right) {
      return right.error();
    }
    trace_.emplace(static_cast<std::uint32_t>(*ranks), settings_.limits);
    trace_->add_file(file_.name, Trace::Numbers::lines);
    is_known_.resize(*ranks);
    return {};
  }
  if (!rank_) return error(fmt::format("expected rank N {{, and not {}", quoted(words[0])));
  if (words.size() > 2 && words[1] == ":" && is_action(words[2])) {
    return read_action(words, 2, words[0]);
  }
  if (is_action(words[0])) return read_action(words, 0, {});
  if (words.size() == 3 && (words[1] == "requires" || words[1] == "irequires")) {
    if (requirements_.size() == settings_.limits.dependencies) {
      return error("there are too many dependencies");
    }
    requirements_.push_back({words[0], words[2], words[1] == "irequires", line_});
    return {};
  }
  return error(
      fmt::format("{} is not understood; expected send, recv, calc, or LABEL requires "
                  "LABEL",
                  quoted(words[0])));
}

Result<void> GoalReader::read_ranks() {
  constexpr std::size_t words_max = 16;
  Words words;
  for (std::string_view token = scanner_.next(); !token.empty(); token = scanner_.next()) {
    const bool is_mark = token == ";" || token == "{" || token == "}";
    if (!is_mark) {
      line_ = scanner_.line();
      if (words.size() == words_max)
        return error("the statement is too long; write one statement per line");
      words.push_back(token);
      if (words[0] != "num_ranks" || words.size() < 2) continue;
      if (auto right = read_statement(words); !right) return right.error();
      words.clear();
      continue;
    }
    if (token == "{" && (words.size() != 2 || words[0] != "rank" || rank_)) {
      line_ = scanner_.line();
      return error("{ follows rank N, and } ends it");
    }
    if (!words.empty()) {
      auto right = token == "{" ? begin_rank(words) : read_statement(words);
      if (!right) return right.error();
      words.clear();
    }
    if (token != "}") continue;
    line_ = scanner_.line();
    if (!rank_) return error("} ends nothing");
    if (auto right = end_rank(); !right) return right.error();
  }
  line_ = scanner_.line();
  if (!words.empty()) {
    if (auto right = read_statement(words); !right) return right.error();
  }
  if (rank_) return error(fmt::format("rank {} does not end; the file may be cut", *rank_));
  if (!trace_) return error("there is no num_ranks");
  return {};
}

Result<Trace> GoalReader::read() {
  if (auto right = read_ranks(); !right) return right.error();
  return std::move(*trace_);
}

}  // namespace

Result<Trace> read_goal(const File& file, const Settings& settings) {
  return GoalReader(file, settings).read();
}

}  // namespace tulle::traces
