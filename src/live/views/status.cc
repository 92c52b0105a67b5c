#include "live/views/status.h"

#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/quoted.h"
#include "live/process/agent_client.h"

namespace tulle::live {
namespace {

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
  for (std::size_t i = 0; i < counter_count; ++i) {
    if (counter_names[i] == name) return process.counters[i];
  }
  return 0;
}

// Returns the counters that are not zero and not in the table. Most of them count what went wrong.
std::string remarks(const ProcessStatus& process) {
  std::string text;
  constexpr std::array<std::string_view, 7> shown = {
      "queue_pairs",    "packets_sent", "packets_received", "bytes_sent",
      "bytes_received", "send_calls",   "receive_calls"};
  for (std::size_t i = 0; i < counter_count; ++i) {
    const std::string_view name = counter_names[i];
    const bool is_shown = std::find(shown.begin(), shown.end(), name) != shown.end();
    if (is_shown || process.counters[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, process.counters[i]);
  }
  return text;
}

json_t named(const std::array<std::uint64_t, counter_count>& counters) {
  json_t out;
  for (std::size_t i = 0; i < counter_count; ++i) {
    out[std::string(counter_names[i])] = counters[i];
  }
  return out;
}

}  // namespace

Result<std::optional<HostStatus>> ask_status(const Settings& settings, const std::string& command) {
  Hello hello;
  hello.purpose = Purpose::status;
  hello.command = command;
  auto answer = ask_agent(settings, hello, IfAbsent::fail);
  if (!answer && answer.error().error_number == ECONNREFUSED) return std::optional<HostStatus>();
  if (!answer) return answer.error();
  HostStatus status;
  if (!decode(answer->message.bytes, status.agent))
    return Error{"cannot decode the host agent's answer"};
  for (;;) {
    auto message = await_message(answer->connection.get(), answer_milliseconds);
    ProcessStatus process;
    if (!message || !decode(message->bytes, process)) break;
    status.processes.push_back(std::move(process));
  }
  return std::optional<HostStatus>(std::move(status));
}

std::string status_text(const std::optional<HostStatus>& status, const std::string& address) {
  if (!status) {
    return fmt::format("No host agent is running at {}: no program has a device open.\n", address);
  }
  const AgentStatus& agent = status->agent;
  const std::vector<ProcessStatus>& processes = status->processes;
  std::string text;
  text += fmt::format("Host agent: process {}, user {}, up {}, at {}, UDP port {}, Tulle {}\n",
                      agent.pid, user_name(agent.uid), time_text(agent.uptime_seconds),
                      agent.address, agent.port, agent.version);
  if (agent.listeners > 0) {
    text += fmt::format("Connection manager: {} listener{}\n", agent.listeners,
                        agent.listeners == 1 ? "" : "s");
  }
  if (processes.empty()) {
    return text + "No process has a device open.\n";
  }
  text += fmt::format("\n{:>8}  {:<10} {:<15} {:<10} {:>4} {:>5} {:>12} {:>12} {:>12} {:>12}\n",
                      "PID", "USER", "COMMAND", "DEVICE", "SLOT", "QPS", "PACKETS OUT",
                      "PACKETS IN", "BYTES OUT", "BYTES IN");
  for (const ProcessStatus& p : processes) {
    text += fmt::format("{:>8}  {:<10} {:<15} {:<10} {:>4} {:>5} {:>12} {:>12} {:>12} {:>12}\n",
                        p.pid, user_name(p.uid), one_line(p.command), one_line(p.device), p.slot,
                        counter(p, "queue_pairs"), counter(p, "packets_sent"),
                        counter(p, "packets_received"), size_text(counter(p, "bytes_sent")),
                        size_text(counter(p, "bytes_received")));
    if (!p.connected) text += fmt::format("{:>8}  not connected to this host agent\n", "");
    if (const std::string more = remarks(p); !more.empty())
      text += fmt::format("{:>8}  {}\n", "", more);
    if (!p.refusal.empty()) text += fmt::format("{:>8}  refused: {}\n", "", p.refusal);
  }
  return text;
}

std::string status_json(const std::optional<HostStatus>& status) {
  if (!status) {
    return json_t({{"agent", nullptr}, {"processes", json_t::array()}}).dump(2) + "\n";
  }
  const AgentStatus& agent = status->agent;
  json_t list = json_t::array();
  for (const ProcessStatus& p : status->processes) {
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
  return out.dump(2, ' ', false, json_t::error_handler_t::replace) + "\n";
}

}  // namespace tulle::live
