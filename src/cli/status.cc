#include <fmt/format.h>
#include <pwd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/quoted.h"
#include "cli/commands.h"
#include "live/process/agent_client.h"

namespace tulle::cli {
namespace {

using live::AgentStatus;
using live::ProcessStatus;
using json_t = nlohmann::ordered_json;

constexpr int answer_milliseconds = 5'000;

std::string user_name(std::uint32_t uid) {
  const passwd* user = getpwuid(uid);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

std::string time_text(std::uint64_t seconds) {
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3'600) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} h {} min", seconds / 3'600, seconds / 60 % 60);
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1'024 && unit + 1 < units.size()) {
    value /= 1'024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::uint64_t counter(const ProcessStatus& process, std::string_view name) {
  for (std::size_t i = 0; i < live::counter_count; ++i) {
    if (live::counter_names[i] == name) return process.counters[i];
  }
  return 0;
}

// Returns the counters that are not zero and not in the table. Most of them count what went wrong.
std::string remarks(const ProcessStatus& process) {
  std::string text;
  constexpr std::array<std::string_view, 7> shown = {
      "queue_pairs",    "packets_sent", "packets_received", "bytes_sent",
      "bytes_received", "send_calls",   "receive_calls"};
  for (std::size_t i = 0; i < live::counter_count; ++i) {
    const std::string_view name = live::counter_names[i];
    const bool is_shown = std::find(shown.begin(), shown.end(), name) != shown.end();
    if (is_shown || process.counters[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, process.counters[i]);
  }
  return text;
}

void print_text(const AgentStatus& agent, const std::vector<ProcessStatus>& processes) {
  fmt::print("Host agent: process {}, user {}, up {}, at {}, UDP port {}, Tulle {}\n", agent.pid,
             user_name(agent.uid), time_text(agent.uptime_seconds), agent.address, agent.port,
             agent.version);
  if (agent.listeners > 0) {
    fmt::print("Connection manager: {} listener{}\n", agent.listeners,
               agent.listeners == 1 ? "" : "s");
  }
  if (processes.empty()) {
    fmt::print("No process has a device open.\n");
    return;
  }
  fmt::print("\n{:>8}  {:<10} {:<15} {:<10} {:>4} {:>5} {:>12} {:>12} {:>12} {:>12}\n", "PID",
             "USER", "COMMAND", "DEVICE", "SLOT", "QPS", "PACKETS OUT", "PACKETS IN", "BYTES OUT",
             "BYTES IN");
  for (const ProcessStatus& p : processes) {
    fmt::print("{:>8}  {:<10} {:<15} {:<10} {:>4} {:>5} {:>12} {:>12} {:>12} {:>12}\n", p.pid,
               user_name(p.uid), one_line(p.command), one_line(p.device), p.slot,
               counter(p, "queue_pairs"), counter(p, "packets_sent"),
               counter(p, "packets_received"), size_text(counter(p, "bytes_sent")),
               size_text(counter(p, "bytes_received")));
    if (!p.connected) fmt::print("{:>8}  not connected to this host agent\n", "");
    if (const std::string text = remarks(p); !text.empty()) fmt::print("{:>8}  {}\n", "", text);
    if (!p.refusal.empty()) fmt::print("{:>8}  refused: {}\n", "", p.refusal);
  }
}

json_t named(const std::array<std::uint64_t, live::counter_count>& counters) {
  json_t out;
  for (std::size_t i = 0; i < live::counter_count; ++i) {
    out[std::string(live::counter_names[i])] = counters[i];
  }
  return out;
}

void print_json(const AgentStatus& agent, const std::vector<ProcessStatus>& processes) {
  json_t list = json_t::array();
  for (const ProcessStatus& p : processes) {
    list.push_back({{"pid", p.pid},
                    {"uid", p.uid},
                    {"command", p.command},
                    {"device", p.device},
                    {"slot", p.slot},
                    {"first_qp", p.first_qp},
                    {"qp_count", p.qp_count},
                    {"connected", p.connected},
                    {"last_refusal", p.refusal},
                    {"counters", named(p.counters)}});
  }
  const json_t out = {{"agent",
                       {{"pid", agent.pid},
                        {"uid", agent.uid},
                        {"uptime_seconds", agent.uptime_seconds},
                        {"address", agent.address},
                        {"port", agent.port},
                        {"slots", agent.slots},
                        {"listeners", agent.listeners},
                        {"version", agent.version},
                        {"counters", named(agent.counters)}}},
                      {"processes", list}};
  // A process may have any bytes as its name.
  fmt::print("{}\n", out.dump(2, ' ', false, json_t::error_handler_t::replace));
}

}  // namespace

int status(const live::Settings& settings, bool json) {
  live::Hello hello;
  hello.purpose = live::Purpose::status;
  hello.command = "tulle status";
  auto answer = live::ask_agent(settings, hello, live::IfAbsent::fail);
  if (!answer && answer.error().error_number == ECONNREFUSED) {
    // This is no error: no program uses the network.
    if (json) {
      fmt::print("{}\n", json_t({{"agent", nullptr}, {"processes", json_t::array()}}).dump(2));
    } else {
      fmt::print("No host agent is running at {}: no program has a device open.\n", settings.agent);
    }
    return 0;
  }
  if (!answer) return fail(answer.error());
  AgentStatus agent;
  if (!decode(answer->message.bytes, agent)) return fail("cannot decode the host agent's answer");
  std::vector<ProcessStatus> processes;
  for (;;) {
    auto message = live::await_message(answer->connection.get(), answer_milliseconds);
    ProcessStatus process;
    if (!message || !decode(message->bytes, process)) break;
    processes.push_back(process);
  }
  json ? print_json(agent, processes) : print_text(agent, processes);
  return 0;
}

}  // namespace tulle::cli
