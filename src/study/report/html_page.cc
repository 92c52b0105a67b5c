#include "study/report/html_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "embedded.h"
#include "study/report/columns.h"
#include "study/report/links.h"

namespace tulle::report {
namespace {

using json_t = nlohmann::ordered_json;

// --- data ---------------------------------------------------------------------------------------

// Returns the number with so many digits as a chart can show.
double shown(double value) { return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr); }
double microseconds(Time time) { return shown(static_cast<double>(time.ps) * 1e-6); }

double number(const Outcome& outcome, std::string_view key) {
  const Measured* measured = find(outcome.figures, key);
  return measured == nullptr ? 0 : exact(measured->value);
}

json_t json_of(const Table& table) {
  json_t json;
  json["heads"] = table.heads;
  json["rows"] = json_t::array();
  for (const auto& row : table.rows) {
    json_t cells = json_t::array();
    for (const Cell& cell : row) {
      if (cell.best) {
        cells.push_back({{"text", cell.text}, {"best", true}});
      } else {
        cells.push_back(cell.text);
      }
    }
    json["rows"].push_back(std::move(cells));
  }
  return json;
}

// Returns the completion times of flows in order; of many flows, so many that are evenly chosen.
json_t completions(const Outcome& outcome) {
  constexpr std::size_t most = 1'000;
  std::vector<Time> times;
  for (const Flow& flow : outcome.flows) {
    if (flow.is_done()) times.push_back(flow.taken());
  }
  std::ranges::sort(times);
  json_t json = json_t::array();
  const std::size_t count = std::min(most, times.size());
  for (std::size_t i = 1; i <= count; ++i) {
    json.push_back(microseconds(times[i * times.size() / count - 1]));
  }
  return json;
}

json_t timeline(const Outcome& outcome) {
  const Timeline& timeline = outcome.timeline;
  const double seconds = timeline.interval.to_seconds();
  json_t json;
  json["interval_us"] = microseconds(timeline.interval);
  for (const char* key :
       {"sent_gbps", "queue_bytes", "paused", "credit_stalls", "marked", "dropped"}) {
    json[key] = json_t::array();
  }
  for (const Moment& moment : timeline.moments) {
    json["sent_gbps"].push_back(shown(static_cast<double>(moment.bytes_sent) * 8e-9 / seconds));
    json["queue_bytes"].push_back(moment.queue_bytes);
    json["paused"].push_back(shown(moment.paused.to_seconds() / seconds));
    json["credit_stalls"].push_back(moment.credit_stalls);
    json["marked"].push_back(moment.marked);
    json["dropped"].push_back(moment.dropped);
  }
  return json;
}

json_t spans(const Spans& spans) {
  json_t json;
  json["rows"] = spans.rows;
  json["phases"] = spans.phases;
  if (!spans.phases.empty() && spans.phases[0].empty()) json["phases"][0] = "messages";
  json["spans"] = json_t::array();
  for (const Span& span : spans.spans) {
    json["spans"].push_back({span.row, span.phase, microseconds(span.start), microseconds(span.end),
                             span.is_message ? 1 : 0});
  }
  return json;
}

// The page has the names of nodes once, and links by the numbers of their ends.
class Nodes {
 public:
  std::size_t number(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(name, numbers_.size());
    if (is_new) names_.push_back(name);
    return found->second;
  }
  json_t names() const { return names_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> names_;
};

// The page of a large network has only the worst links.
constexpr std::size_t links_max = 20'000;

void add_links(const Outcome& outcome, Nodes& nodes, json_t& json) {
  const std::vector<LinkLoad> loads = link_loads(outcome);
  json["links"] = json_t::array();
  for (const std::size_t i : worst_links(loads, links_max)) {
    const auto& names = outcome.links.rows[i].names;
    const LinkLoad& load = loads[i];
    json["links"].push_back({nodes.number(names.front()), nodes.number(names.back()),
                             shown(load.utilisation), shown(load.waited_us), load.queue_max_bytes,
                             shown(load.paused_us), load.dropped});
  }
}

json_t quantiles_of(const Outcome& outcome) {
  json_t json = json_t::array();
  for (const char* key : {"fct_us.min", "fct_us.median", "fct_us.p99", "fct_us.max"}) {
    json.push_back(shown(number(outcome, key)));
  }
  return json;
}

json_t variant_of(const Outcome& outcome, const PageText::Variant& text, Nodes& nodes) {
  json_t json;
  json["name"] = outcome.variant;
  json["title"] = text.title;
  const bool is_job = find(outcome.figures, "tasks") != nullptr;
  json["time_us"] = shown(number(outcome, is_job ? "job_us" : "end_us"));
  const Measured* exposed = find(outcome.figures, "exposed_us");
  json["exposed_us"] = exposed == nullptr ? json_t(nullptr) : json_t(shown(exact(exposed->value)));
  json["completions"] = completions(outcome);
  json["quantiles_us"] = quantiles_of(outcome);
  json["timeline"] = timeline(outcome);
  json["spans"] = spans(outcome.spans);
  add_links(outcome, nodes, json);
  json["settings"] = text.settings;
  return json;
}

// --- what each variant lost its time to ---------------------------------------------------------

// The figures by which a fabric loses time, in the order in which they are shown.
constexpr std::array<std::string_view, 13> loss_keys = {
    "share_of_ideal", "slowdown.p99",  "paused_us",       "pauses",        "credit_stalls",
    "dropped",        "lost",          "discarded",       "retransmitted", "timeouts",
    "marked",         "notifications", "buffer_max_bytes"};

Table losses_table(const std::vector<Outcome>& outcomes) {
  Table table;
  for (const Outcome& outcome : outcomes) table.rows.push_back({{outcome.variant}});
  for (const std::string_view key : loss_keys) {
    const Figure* figure = nullptr;
    for (const Outcome& outcome : outcomes) {
      const Measured* measured = find(outcome.figures, key);
      if (measured != nullptr && exact(measured->value) != 0) figure = measured->figure;
    }
    if (figure == nullptr) continue;
    table.heads.emplace_back(figure->heading);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const Measured* measured = find(outcomes[i].figures, key);
      table.rows[i].push_back({measured == nullptr ? "-" : figure_text(*measured)});
    }
  }
  return table;
}

// Returns a sentence about a variant: of several losses, those that are there.
std::string loss_note(const Outcome& outcome) {
  std::vector<std::string> losses;
  const auto add = [&](std::string_view key, const char* format) {
    const double value = number(outcome, key);
    if (value != 0) losses.push_back(fmt::format(fmt::runtime(format), value));
  };
  const double port_us = number(outcome, "end_us") * static_cast<double>(outcome.links.rows.size());
  if (const double paused = number(outcome, "paused_us"); paused > 0 && port_us > 0) {
    losses.push_back(fmt::format("ports were paused for {:.2f} % of the time of all ports",
                                 100 * paused / port_us));
  }
  add("credit_stalls", "ports waited {:.0f} times for credits");
  add("dropped", "{:.0f} frames were dropped");
  add("lost", "{:.0f} frames were lost to faults");
  add("retransmitted", "{:.0f} packets were sent again");
  add("timeouts", "{:.0f} time-outs ran off");
  add("notifications", "senders received {:.0f} notifications to slow down");
  std::string text = outcome.variant.empty() ? "" : outcome.variant + ": ";
  if (losses.empty()) return text + "nothing was paused, dropped or sent again.";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i > 0) text += i + 1 == losses.size() ? " and " : ", ";
    text += losses[i];
  }
  return text + ".";
}

// --- the page -----------------------------------------------------------------------------------

// Escapes what could end the element that contains the JSON.
std::string without_markup(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

std::string as_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// Returns a source expression of a content security policy that allows exactly this text.
std::string hash_source(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  unsigned length = 0;
  EVP_Digest(text.data(), text.size(), hash.data(), &length, EVP_sha256(), nullptr);
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64{};
  EVP_EncodeBlock(base64.data(), hash.data(), static_cast<int>(length));
  return fmt::format("'sha256-{}'", reinterpret_cast<const char*>(base64.data()));
}

// A browser's tools would look for the map, which is not there.
std::string_view without_source_map(std::string_view script) {
  return script.substr(0, script.rfind("//# sourceMappingURL"));
}

// Replaces each {{key}} of the template once, so that nothing is looked for in what was put in.
std::string filled(std::string_view form,
                   const std::map<std::string_view, std::string_view>& texts) {
  std::string out;
  while (true) {
    const std::size_t begin = form.find("{{");
    const std::size_t end = form.find("}}", begin);
    out += form.substr(0, begin);
    if (end == std::string_view::npos) return out;
    out += texts.at(form.substr(begin + 2, end - begin - 2));
    form.remove_prefix(end + 2);
  }
}

}  // namespace

std::string page_json(const Results& results, const PageText& text) {
  json_t json;
  json["description"] = results.description;
  json["command"] = text.command;
  json["what"] = text.what;
  json["summary"] = json_of(telling_figures(text.what, results.outcomes));
  json["losses"] = json_of(losses_table(results.outcomes));
  json["losses"]["notes"] = json_t::array();
  for (const Outcome& outcome : results.outcomes) {
    // An outcome that was stored has no links to tell of.
    if (!outcome.tally) json["losses"]["notes"].push_back(loss_note(outcome));
  }
  Nodes nodes;
  json["variants"] = json_t::array();
  for (std::size_t i = 0; i < results.outcomes.size(); ++i) {
    json["variants"].push_back(variant_of(results.outcomes[i], text.variants[i], nodes));
  }
  json["nodes"] = nodes.names();
  // Names need not be UTF-8. What is not is shown as U+FFFD.
  return json.dump(-1, ' ', false, json_t::error_handler_t::replace);
}

std::string html_page(const Results& results, const PageText& text) {
  const std::string title = as_html(results.title.empty() ? results.name : results.title);
  const std::string data = without_markup(page_json(results, text));
  const std::string_view chart_script = without_source_map(embedded::chart_script);
  const std::string_view chart_style =
      embedded::chart_style.substr(0, embedded::chart_style.rfind("/*# sourceMappingURL"));
  const std::string script_hashes =
      hash_source(chart_script) + " " + hash_source(embedded::page_script);
  const std::string style_hashes =
      hash_source(chart_style) + " " + hash_source(embedded::page_style);
  return filled(embedded::page, {{"title", title},
                                 {"script_hashes", script_hashes},
                                 {"style_hashes", style_hashes},
                                 {"chart_style", chart_style},
                                 {"style", embedded::page_style},
                                 {"data", data},
                                 {"chart_script", chart_script},
                                 {"script", embedded::page_script}});
}

}  // namespace tulle::report
