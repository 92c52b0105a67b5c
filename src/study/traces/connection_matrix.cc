// htsim's connection matrices, as its ConnectionMatrix::load reads them:
//
//   Nodes 4
//   Connections 2
//   Triggers 1
//   0->1 id 1 start 0 size 2000000 send_done_trigger 1
//   0->2 id 2 trigger 1 size 2000000
//   trigger id 1 oneshot
//
// A trigger of kind oneshot starts all its connections, multishot the next one each time, and
// barrier all of them once it was fired `count` times.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "study/traces/formats.h"
#include "study/traces/words.h"

namespace tulle::traces {
namespace {

class MatrixReader {
 public:
  MatrixReader(const File& file, const Settings& settings)
      : file_(file), settings_(settings), lines_(file.text) {}

  Result<Trace> read();

 private:
  struct Connection {
    std::uint32_t source = 0, destination = 0;
    std::uint64_t bytes = 0;
    std::optional<Time> start;
    std::uint32_t trigger = 0;        // that starts it; 0: none
    std::uint32_t fired[2] = {0, 0};  // that it fires when sent, and when received
    std::uint64_t line = 0;
    Trace::Index send = 0, receive = 0;
  };
  enum class Kind : std::uint8_t { unknown, oneshot, multishot, barrier };
  struct Trigger {
    Kind kind = Kind::unknown;
    std::uint64_t count = 0;
    std::uint64_t line = 0;
    std::vector<std::uint32_t> starts, fired_by;  // connections
  };

  Result<void> read_line();
  Result<void> read_connection(std::size_t arrow);
  Result<void> read_attributes(Connection& connection);
  Result<void> read_trigger();
  Result<void> check_counts() const;
  Result<void> add_connections();
  Result<void> add_starts();
  Result<void> add_trigger(std::uint32_t number, const Trigger& trigger);
  Result<void> wait_for(const Connection& connection, const Connection& before);
  Error error(std::uint64_t line, const std::string& fault) const {
    return {fmt::format("{}:{}: {}", one_line(file_.name), line, fault)};
  }
  Error error(const std::string& fault) const { return error(lines_.line(), fault); }
  template <typename Number>
  std::optional<Number> number(std::size_t at) const {
    if (at >= lines_.words().size()) return std::nullopt;
    return workload::parse_number<Number>(lines_.words()[at]);
  }

  const File& file_;
  const Settings& settings_;
  LineReader lines_;
  std::optional<Trace> trace_;
  std::uint64_t connections_wanted_ = 0, triggers_wanted_ = 0;
  std::size_t triggers_given_ = 0;
  std::vector<Connection> connections_;
  std::map<std::uint32_t, Trigger> triggers_;
};

Result<void> MatrixReader::read_attributes(Connection& connection) {
  const auto& words = lines_.words();
  bool has_size = false;
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const std::string_view name = words[i];
    const auto whole = number<std::uint64_t>(i + 1);
    if (name == "start") {
      constexpr double most = 4e18;
      const auto start = i + 1 < words.size() ? workload::parse_real(words[i + 1]) : std::nullopt;
      if (!start || *start < 0 || *start > most) return error("start is in picoseconds, from 0");
      connection.start = Time::picoseconds(std::llround(*start));
      continue;
    }
    constexpr std::string_view numbers[] = {
        "id", "size", "trigger", "send_done_trigger", "recv_done_trigger", "prio"};
    if (std::ranges::find(numbers, name) == std::end(numbers)) {
      return error(fmt::format("{} is not read; a connection has start, {}", quoted(name),
                               fmt::join(numbers, ", ")));
    }
    const std::uint64_t most = 0xFFFF'FFFFu * std::uint64_t{name == "size" ? 1u << 20 : 1u};
    if (!whole || *whole > most) {
      return error(fmt::format("{} needs a number from 0 to {}", quoted(name), most));
    }
    const auto small = static_cast<std::uint32_t>(*whole);
    if (name == "size") {
      connection.bytes = *whole;
      has_size = true;
    } else if (name == "trigger") {
      connection.trigger = small;
    } else if (name == "send_done_trigger") {
      connection.fired[0] = small;
    } else if (name == "recv_done_trigger") {
      connection.fired[1] = small;
    }
  }
  if (!has_size || connection.bytes == 0) {
    return error("the connection sends without end; give it a size in bytes, at least 1");
  }
  if (connection.start.has_value() == (connection.trigger != 0)) {
    return error("a connection has either a start or a trigger");
  }
  return {};
}

Result<void> MatrixReader::read_connection(std::size_t arrow) {
  const std::string_view hosts = lines_.words()[0];
  if (!trace_) return error("Nodes comes before the first connection");
  const auto source = workload::parse_number<std::uint32_t>(hosts.substr(0, arrow));
  const auto destination = workload::parse_number<std::uint32_t>(hosts.substr(arrow + 2));
  if (!source || !destination) {
    return error(fmt::format("{} is no connection; expected SOURCE->DESTINATION", quoted(hosts)));
  }
  for (const std::uint32_t host : {*source, *destination}) {
    if (host < trace_->ranks()) continue;
    return error(fmt::format("there is no rank {}; ranks are 0 to {}", host, trace_->ranks() - 1));
  }
  Connection connection;
  connection.source = *source;
  connection.destination = *destination;
  connection.line = lines_.line();
  if (connections_.size() == settings_.limits.nodes) return error("there are too many connections");
  if (auto right = read_attributes(connection); !right) return right.error();
  const auto place = static_cast<std::uint32_t>(connections_.size());
  if (connection.trigger != 0) triggers_[connection.trigger].starts.push_back(place);
  for (const std::uint32_t fired : connection.fired) {
    if (fired != 0) triggers_[fired].fired_by.push_back(place);
  }
  connections_.push_back(connection);
  return {};
}

Result<void> MatrixReader::read_trigger() {
  const auto& words = lines_.words();
  Trigger read;
  std::uint32_t id = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "oneshot") {
      read.kind = Kind::oneshot;
    } else if (words[i] == "multishot") {
      read.kind = Kind::multishot;
    } else if (words[i] == "barrier") {
      read.kind = Kind::barrier;
    } else if ((words[i] == "id" || words[i] == "count") && number<std::uint32_t>(i + 1)) {
      const std::uint32_t value = *number<std::uint32_t>(i + 1);
      if (words[i] == "id") {
        id = value;
      } else {
        read.count = value;
      }
      ++i;
    } else {
      return error(
          fmt::format("{} is not understood; a trigger has an id, and is oneshot, "
                      "multishot or barrier with a count",
                      quoted(words[i])));
    }
  }
  if (id == 0 || read.kind == Kind::unknown) {
    return error("a trigger has an id from 1, and is oneshot, multishot or barrier");
  }
  Trigger& trigger = triggers_[id];
  if (trigger.kind != Kind::unknown) return error(fmt::format("trigger {} is there twice", id));
  trigger.kind = read.kind;
  trigger.count = read.count;
  trigger.line = lines_.line();
  ++triggers_given_;
  return {};
}

Result<void> MatrixReader::read_line() {
  const std::string_view first = lines_.words()[0];
  if (const std::size_t arrow = first.find("->"); arrow != std::string_view::npos) {
    return read_connection(arrow);
  }
  if (first == "trigger") return read_trigger();
  const auto count = number<std::uint64_t>(1);
  if (!count) return error(fmt::format("{} is not understood", quoted(first)));
  if (first == "Nodes" && !trace_) {
    const std::string place = fmt::format("{}:{}", one_line(file_.name), lines_.line());
    if (auto right = check_ranks(place, *count, settings_); !right) return right.error();
    trace_.emplace(static_cast<std::uint32_t>(*count), settings_.limits);
    trace_->add_file(file_.name, Trace::Numbers::lines);
  } else if (first == "Connections") {
    connections_wanted_ = *count;
  } else if (first == "Triggers") {
    triggers_wanted_ = *count;
  } else if (first != "Failures" || *count > 0) {
    return error(
        fmt::format("{} is not read; failures are [[fault]] of a scenario", quoted(first)));
  }
  return {};
}

Result<void> MatrixReader::check_counts() const {
  if (!trace_) return error("there is no line with Nodes and their number");
  if (connections_.size() != connections_wanted_) {
    return error(fmt::format("there are {} connections, and {} were announced; the file may be cut",
                             connections_.size(), connections_wanted_));
  }
  if (triggers_given_ != triggers_wanted_) {
    return error(fmt::format("there are {} triggers, and {} were announced; the file may be cut",
                             triggers_given_, triggers_wanted_));
  }
  return {};
}

Result<void> MatrixReader::add_connections() {
  for (std::uint32_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    Node node;
    node.kind = Node::Kind::send;
    node.rank = connection.source;
    node.peer = connection.destination;
    node.bytes = connection.bytes;
    node.tag = i;
    node.number = connection.line;
    auto send = trace_->add(node);
    if (!send) return send.error();
    connection.send = *send;
    node.kind = Node::Kind::receive;
    std::swap(node.rank, node.peer);
    auto receive = trace_->add(node);
    if (!receive) return receive.error();
    connection.receive = *receive;
  }
  return {};
}

// A source's starts are a chain of pauses, from each to the next.
Result<void> MatrixReader::add_starts() {
  std::vector<const Connection*> started;
  for (const Connection& each : connections_) {
    if (each.start && *each.start > Time::zero()) started.push_back(&each);
  }
  std::stable_sort(started.begin(), started.end(), [](const Connection* a, const Connection* b) {
    return std::pair(a->source, *a->start) < std::pair(b->source, *b->start);
  });
  const Connection* last = nullptr;  // of the same source
  Trace::Index pause = 0;            // until its start
  for (const Connection* each : started) {
    if (last != nullptr && last->source != each->source) last = nullptr;
    if (last == nullptr || *last->start < *each->start) {
      Node node;
      node.kind = Node::Kind::computation;
      node.is_pause = true;
      node.rank = each->source;
      node.duration = *each->start - (last != nullptr ? *last->start : Time::zero());
      node.number = each->line;
      auto next = trace_->add(node);
      if (!next) return next.error();
      if (last != nullptr) {
        if (auto right = trace_->wait(*next, pause); !right) return right.error();
      }
      pause = *next;
    }
    if (auto right = trace_->wait(each->send, pause); !right) return right.error();
    last = each;
  }
  return {};
}

// A source knows when its own connection is done, and when it has received one.
Result<void> MatrixReader::wait_for(const Connection& connection, const Connection& before) {
  if (before.source == connection.source) return trace_->wait(connection.send, before.send);
  if (before.destination == connection.source) {
    return trace_->wait(connection.send, before.receive);
  }
  return error(connection.line,
               fmt::format("host {} cannot know when {}->{} of line {} is done, whose trigger "
                           "starts it; only these two hosts do",
                           connection.source, before.source, before.destination, before.line));
}

Result<void> MatrixReader::add_trigger(std::uint32_t number, const Trigger& trigger) {
  const auto& by = trigger.fired_by;
  const std::uint64_t line =
      trigger.line != 0 ? trigger.line
                        : connections_[(trigger.starts.empty() ? by : trigger.starts)[0]].line;
  if (trigger.kind == Kind::unknown) {
    return error(line, fmt::format("there is no trigger {}; add a line: trigger id {} oneshot",
                                   number, number));
  }
  if (trigger.starts.empty()) return {};
  const bool is_multishot = trigger.kind == Kind::multishot;
  const std::uint64_t wanted = is_multishot                    ? trigger.starts.size()
                               : trigger.kind == Kind::barrier ? trigger.count
                                                               : 1;
  if (by.size() < wanted || (!is_multishot && by.size() > wanted) || wanted == 0) {
    return error(
        line, fmt::format("trigger {} is fired {} times, and needs {}", number, by.size(), wanted));
  }
  for (std::size_t i = 0; i < trigger.starts.size(); ++i) {
    const std::size_t first = is_multishot ? i : 0;
    const std::size_t end = is_multishot ? i + 1 : by.size();
    for (std::size_t j = first; j < end; ++j) {
      auto right = wait_for(connections_[trigger.starts[i]], connections_[by[j]]);
      if (!right) return right.error();
    }
  }
  return {};
}

Result<Trace> MatrixReader::read() {
  while (lines_.next()) {
    if (auto right = read_line(); !right) return right.error();
  }
  if (auto right = check_counts(); !right) return right.error();
  if (auto right = add_connections(); !right) return right.error();
  if (auto right = add_starts(); !right) return right.error();
  for (const auto& [number, trigger] : triggers_) {
    if (auto right = add_trigger(number, trigger); !right) return right.error();
  }
  return std::move(*trace_);
}

}  // namespace

Result<Trace> read_connection_matrix(const File& file, const Settings& settings) {
  return MatrixReader(file, settings).read();
}

}  // namespace tulle::traces
