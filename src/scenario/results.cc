#include "scenario/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/split.h"
#include "scenario/quantity.h"

namespace tulle::scenario {
namespace {

using json_t = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Returns nanoseconds with the picoseconds behind the point, exactly.
std::string ns_text(Time time) {
  const std::int64_t ps = time.ps % 1'000;
  return ps == 0 ? fmt::format("{}", time.ps / 1'000)
                 : fmt::format("{}.{:03}", time.ps / 1'000, ps);
}

// Rounds to nine digits, so that a last bit of floating point makes no difference.
double rounded(double value) { return std::stod(fmt::format("{:.9g}", value)); }

json_t json_of(const Quantiles& q) {
  return {{"min", rounded(q.min)},
          {"median", rounded(q.median)},
          {"p99", rounded(q.p99)},
          {"max", rounded(q.max)}};
}

void add_faults(json_t& json, const FaultOutcome& faults) {
  json["lost"] = faults.lost;
  json["lost_bytes"] = faults.lost_bytes;
  json["unrouted"] = faults.unrouted;
  json["damaged"] = faults.damaged;
  json["watchdog_trips"] = faults.watchdog_trips;
  json["watchdog_dropped"] = faults.watchdog_dropped;
  json["ports_paused"] = faults.ports_paused;
  json["recovery_us"] = rounded(static_cast<double>(faults.recovery.ps) * 1e-6);
}

json_t json_of(const KindOutcome& kind) {
  return {{"flows", kind.flows},
          {"finished", kind.finished},
          {"failed", kind.failed},
          {"end_us", rounded(static_cast<double>(kind.end.ps) * 1e-6)},
          {"fct_us", json_of(kind.completion_us)},
          {"slowdown", json_of(kind.slowdown)},
          {"share_of_ideal", rounded(kind.share_of_ideal)},
          {"goodput_gbps", rounded(kind.goodput_bits_per_second * 1e-9)}};
}

json_t json_of(const Outcome& outcome) {
  json_t json;
  if (!outcome.variant.empty()) json["variant"] = outcome.variant;
  json["seed"] = outcome.seed;
  json["flows"] = outcome.flows.size();
  json["finished"] = outcome.finished;
  json["failed"] = outcome.failed;
  json["end_us"] = rounded(static_cast<double>(outcome.end.ps) * 1e-6);
  json["fct_us"] = json_of(outcome.completion_us);
  json["slowdown"] = json_of(outcome.slowdown);
  json["share_of_ideal"] = rounded(outcome.share_of_ideal);
  if (outcome.arrivals > 0) json["latency_us"] = json_of(outcome.latency_us);
  json["goodput_gbps"] = rounded(outcome.goodput_bits_per_second * 1e-9);
  json["dropped"] = outcome.dropped;
  json["lossless_dropped"] = outcome.lossless_dropped;
  if (outcome.discarded > 0) json["discarded"] = outcome.discarded;
  if (outcome.unmapped > 0) json["unmapped"] = outcome.unmapped;
  if (outcome.pkey_dropped > 0) json["pkey_dropped"] = outcome.pkey_dropped;
  if (outcome.pkey_violations > 0) json["pkey_violations"] = outcome.pkey_violations;
  json["retransmitted"] = outcome.retransmitted;
  json["timeouts"] = outcome.timeouts;
  json["marked"] = outcome.marked;
  json["notifications"] = outcome.notifications;
  if (outcome.notices > 0) json["notices"] = outcome.notices;
  json["pauses"] = outcome.pauses;
  json["paused_us"] = rounded(static_cast<double>(outcome.paused.ps) * 1e-6);
  json["credit_stalls"] = outcome.credit_stalls;
  json["buffer_max_bytes"] = outcome.buffer_bytes_max;
  if (outcome.faults) add_faults(json, *outcome.faults);
  if (outcome.stacks) {
    json["cpu_s"] = rounded(outcome.stacks->cpu_seconds);
    json["cpu_s_per_gib"] = rounded(outcome.stacks->cpu_seconds_per_gib);
    json["busiest_core"] = rounded(outcome.stacks->busiest_core);
  }
  if (outcome.bytes_verified) json["bytes_verified"] = *outcome.bytes_verified;
  for (const KindOutcome& kind : outcome.kinds) json["traffic"][kind.name] = json_of(kind);
  json["events"] = outcome.events;
  json["packet_hops"] = outcome.packet_hops;
  json["link_traversals"] = outcome.link_traversals;
  return json;
}

std::string_view status_text(const FlowOutcome& flow) {
  if (!flow.end.is_never()) return "done";
  if (flow.status != verbs::CompletionStatus::success) return "failed";
  return flow.start.is_never() ? "not begun" : "unfinished";
}

}  // namespace

Result<void> write_file(const std::string& path, const std::string& text) {
  const fs::path part = path + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) {
      const int number = errno;
      std::error_code ignored;
      fs::remove(part, ignored);
      return Error{fmt::format("{}: {}", path, std::strerror(number)), number};
    }
  }
  std::error_code error;
  fs::rename(part, path, error);
  if (!error) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return Error{fmt::format("{}: {}", path, error.message()), error.value()};
}

namespace {

// A row of the table of flows: those of a variant, or of one kind.
struct FlowsRow {
  std::string name;
  std::uint64_t finished = 0, flows = 0;
  Time end;
  std::string one_way;
  Quantiles fct;
  double slowdown_p99 = 0, share_of_ideal = 0, goodput_bits_per_second = 0;
};

std::string text_of(const FlowsRow& row, std::size_t width) {
  return fmt::format(
      "{:<{}}  {:>13}  {:>9.1f}  {}{:>9.1f} {:>9.1f} {:>9.1f} {:>9.1f}  {:>12.2f}  {:>8}  "
      "{:>10}",
      row.name, width, fmt::format("{}/{}", row.finished, row.flows),
      static_cast<double>(row.end.ps) * 1e-6, row.one_way, row.fct.min, row.fct.median, row.fct.p99,
      row.fct.max, row.slowdown_p99, fmt::format("{:.1f} %", row.share_of_ideal * 100),
      rate_text(row.goodput_bits_per_second));
}

}  // namespace

std::string summary_table(const std::vector<Outcome>& outcomes) {
  std::size_t width = 7;
  for (const Outcome& outcome : outcomes) {
    width = std::max(width, outcome.variant.size());
    for (const KindOutcome& kind : outcome.kinds) width = std::max(width, kind.name.size() + 2);
  }
  // The time one way is shown if every receiver was told.
  const auto is_told = [](const Outcome& outcome) {
    return outcome.arrivals > 0 && outcome.arrivals == outcome.flows.size();
  };
  const bool told = std::any_of(outcomes.begin(), outcomes.end(), is_told);
  const std::string no_one_way = told ? "            " : "";
  const bool stacked = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) {
    return outcome.stacks.has_value();
  });
  std::string text = fmt::format(
      "{:<{}}  {:>13}  {:>9}  {}{:>9} {:>9} {:>9} {:>9}  {:>12}  {:>8}  {:>10}  {:>9} {:>9} {:>9} "
      "{:>9}{}\n",
      outcomes.size() > 1 ? "variant" : "", width, "flows", "end us", told ? "one way us  " : "",
      "FCT min", "median", "p99", "max us", "slowdown p99", "of ideal", "goodput", "dropped",
      "resent", "marked", "pauses", stacked ? "  CPU s/GiB" : "");
  for (const Outcome& outcome : outcomes) {
    const std::string one_way =
        is_told(outcome) ? fmt::format("{:>10.2f}  ", outcome.latency_us.median) : no_one_way;
    text += text_of({outcome.variant, outcome.finished, outcome.flows.size(), outcome.end, one_way,
                     outcome.completion_us, outcome.slowdown.p99, outcome.share_of_ideal,
                     outcome.goodput_bits_per_second},
                    width);
    const std::string cpu =
        outcome.stacks ? fmt::format("  {:>9.3f}", outcome.stacks->cpu_seconds_per_gib) : "";
    text += fmt::format("  {:>9} {:>9} {:>9} {:>9}{}\n", outcome.dropped, outcome.retransmitted,
                        outcome.marked, outcome.pauses, cpu);
    for (const KindOutcome& kind : outcome.kinds) {
      text += text_of({"  " + kind.name, kind.finished, kind.flows, kind.end, no_one_way,
                       kind.completion_us, kind.slowdown.p99, kind.share_of_ideal,
                       kind.goodput_bits_per_second},
                      width) +
              "\n";
    }
  }
  return text;
}

std::string summary_json(const Scenario& scenario, const std::vector<Outcome>& outcomes) {
  json_t json;
  json["scenario"] = scenario.name();
  json["title"] = scenario.title();
  if (outcomes.size() == 1) {
    json.update(json_of(outcomes.front()));
  } else {
    json["variants"] = json_t::array();
    for (const Outcome& outcome : outcomes) json["variants"].push_back(json_of(outcome));
  }
  return json.dump(2) + "\n";
}

std::optional<double> summary_figure(const Outcome& outcome, const std::string& name) {
  const json_t json = json_of(outcome);
  const json_t* found = &json;
  for (const std::string_view part : split(name, '.')) {
    const std::string key(part);
    if (!found->is_object() || !found->contains(key)) return {};
    found = &(*found)[key];
  }
  return found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::string flows_csv(const Outcome& outcome) {
  std::string text = "flow,src,dst,bytes,start_ns,end_ns,fct_ns,slowdown,status,latency_ns";
  text += outcome.kinds.empty() ? "\n" : ",traffic\n";
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    const FlowOutcome& flow = outcome.flows[i];
    const bool done = !flow.end.is_never();
    const bool told = !flow.arrived.is_never();
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}", i, flow.flow.source, flow.flow.destination,
                        flow.flow.bytes, flow.start.is_never() ? "" : ns_text(flow.start),
                        done ? ns_text(flow.end) : "", done ? ns_text(flow.end - flow.start) : "",
                        done ? fmt::format("{:.4f}", flow.slowdown) : "", status_text(flow),
                        told ? ns_text(flow.arrived - flow.start) : "");
    if (!outcome.kinds.empty()) text += "," + outcome.kinds[outcome.kind_of[i]].name;
    text += "\n";
  }
  return text;
}

std::string links_csv(const Outcome& outcome) {
  std::string text =
      "from,port,to,frames,bytes,utilisation,queue_max_bytes,dropped,marked,pauses,paused_ns,"
      "credit_stalls";
  text += outcome.faults ? ",lost,damaged,watchdog_trips,watchdog_dropped\n" : "\n";
  for (const LinkOutcome& link : outcome.links) {
    text +=
        fmt::format("{},{},{},{},{},{:.4f},{},{},{},{},{},{}", link.from, link.port, link.to,
                    link.frames, link.bytes, link.utilisation, link.queue_bytes_max, link.dropped,
                    link.marked, link.pauses, ns_text(link.paused), link.credit_stalls);
    if (outcome.faults) {
      text += fmt::format(",{},{},{},{}", link.lost, link.damaged, link.watchdog_trips,
                          link.watchdog_dropped);
    }
    text += "\n";
  }
  return text;
}

std::string hosts_csv(const Outcome& outcome) {
  std::string text =
      "host,cpu_kernel_ns,cpu_application_ns,busiest_core_ns,interrupts,ring_drops\n";
  for (const StackOutcome::Host& host : outcome.stacks->hosts) {
    text += fmt::format("{},{},{},{},{},{}\n", host.name, ns_text(host.counters.busy_kernel),
                        ns_text(host.counters.busy_application), ns_text(host.counters.busy_most),
                        host.counters.interrupts, host.counters.receive_ring_drops);
  }
  return text;
}

Result<void> write_results(const std::string& folder, const Scenario& scenario,
                           const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    const fs::path own =
        outcomes.size() > 1 ? fs::path(folder) / outcome.variant : fs::path(folder);
    std::error_code error;
    fs::create_directories(own, error);
    if (error) return Error{fmt::format("{}: {}", own.string(), error.message()), error.value()};
    if (auto written = write_file(own / "flows.csv", flows_csv(outcome)); !written) return written;
    if (auto written = write_file(own / "links.csv", links_csv(outcome)); !written) return written;
    if (outcome.stacks) {
      const std::string hosts = hosts_csv(outcome);
      if (auto written = write_file(own / "hosts.csv", hosts); !written) return written;
    }
    if (outcome.samples.interval == Time::zero()) continue;
    const std::string samples = samples_csv(outcome.samples);
    if (auto written = write_file(own / "samples.csv", samples); !written) return written;
  }
  return write_file(fs::path(folder) / "summary.json", summary_json(scenario, outcomes));
}

}  // namespace tulle::scenario
