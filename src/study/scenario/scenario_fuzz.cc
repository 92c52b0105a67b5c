// Reads any text as a scenario, and builds what it describes. The text is refused in one line that
// names the file, or it builds: a set-up whose flows run between its hosts.
//
// Each text is read as it is, and built once more with small numbers, since a large network takes
// long. Lines behind a line "%%" are set as on the command line. A text that begins with "?" is the
// choices of `tulle compare`, one that begins with "!" is a fabric, one that begins with "$" is the
// file of a model, and one that begins with "@" is a file of prices.
// libFuzzer: -max_len=12000

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "places.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/model_file.h"
#include "study/scenario/prices.h"
#include "study/scenario/scenario.h"
#include "study/scenario/workloads.h"

namespace tulle::scenario {
namespace {

constexpr int largest_number = 17;
const std::string tables = TULLE_SCENARIOS "/tables/";

// Replaces numbers by smaller ones, except those that nothing accepts.
std::string with_small_numbers(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (end == i) {
      out += text[i++];
      continue;
    }
    const std::string_view digits = text.substr(i, end - i);
    const bool is_small = digits.size() <= 2 && std::stoi(std::string(digits)) <= largest_number;
    if (is_small || digits.size() > 18) {
      out += digits;
    } else {
      out += std::to_string((digits.back() - '0') + 4);
    }
    i = end;
  }
  return out;
}

void check_error(const Error& error) {
  TULLE_CHECK(!error.message.empty());
  for (const char c : error.message) TULLE_CHECK(c < 0 || c >= ' ');
}

void check_setup(const Setup& setup) { TULLE_CHECK(setup.topology.hosts >= 1); }

// Builds four variants, beginning with number `first`, counted around. The reference has many, and
// the keys of the later ones would otherwise never be read.
void build(const Scenario& scenario, std::size_t first = 0) {
  const std::size_t count = scenario.variants().size();
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 4); ++i) {
    auto setup = scenario.build((first + i) % count);
    if (!setup) {
      check_error(setup.error());
    } else {
      check_setup(*setup);
    }
  }
}

void check(std::string_view text, bool builds) {
  std::vector<std::string> set;
  const std::size_t mark = text.find("\n%%\n");
  if (mark != std::string_view::npos) {
    std::string_view lines = text.substr(mark + 4);
    text = text.substr(0, mark + 1);
    while (!lines.empty() && set.size() < 16) {
      const std::size_t end = std::min(lines.find('\n'), lines.size());
      set.emplace_back(lines.substr(0, end));
      lines.remove_prefix(std::min(end + 1, lines.size()));
    }
  }
  auto scenario = Scenario::parse(text, "fuzz.toml", TULLE_SCENARIOS, set);
  if (!scenario) return check_error(scenario.error());
  TULLE_CHECK(!scenario->variants().empty());
  if (builds) build(*scenario, text.size());
}

// Reads the text as the choices of `tulle compare`.
void check_workload(std::string_view text) {
  WorkloadOptions options;
  std::vector<std::string> words;
  while (!text.empty() && words.size() < 10) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  words.resize(10);
  const auto& known = workloads();
  const std::size_t choice = words[0].empty() ? 0 : static_cast<unsigned char>(words[0][0]);
  options.workload =
      words[0].size() == 1 ? std::string(known[choice % known.size()].name) : words[0];
  // A workload may be a file. This fuzzer reads only those that come with Tulle.
  if (options.workload.find('.') != std::string::npos) {
    if (options.workload.find('/') != std::string::npos) return;
    options.workload.insert(0, options.workload.ends_with(".csv") ? tables : TULLE_SCENARIOS "/");
  }
  options.bytes = words[1];
  options.link_rate = words[2];
  if (!words[3].empty()) options.hosts = static_cast<std::uint32_t>(words[3].size());
  if (!words[4].empty()) options.set = {words[4]};
  if (!words[6].empty()) options.seed = words[6].size();
  if (words[7].find('/') != std::string::npos) return;
  const bool names_rails = std::ranges::find(rail_topologies, words[7]) != rail_topologies.end();
  if (!words[7].empty()) options.topology = names_rails ? words[7] : tables + words[7];
  if (!words[8].empty()) options.planes = static_cast<std::uint32_t>(words[8].size());
  // Another job alongside the first one reads no files.
  if (words[9].find_first_of("./") != std::string::npos) return;
  if (!words[9].empty()) {
    options.gpus = 16;
    options.others = {{words[9], 16}};
    options.placement = "spread";
  }
  static auto fabrics = read_fabrics(TULLE_SCENARIOS "/fabrics");
  TULLE_CHECK(fabrics);
  auto chosen = choose_fabrics(*fabrics, words[5]);
  auto scenario = workload_scenario(options, TULLE_SCENARIOS);
  if (!scenario) return check_error(scenario.error());
  if (!chosen) return check_error(chosen.error());
  build(scenario->on_fabrics(*chosen));
}

// Reads the text as a fabric, and builds a small network of it.
void check_fabric(std::string_view text) {
  auto fabric = parse_fabric(text, TULLE_SCENARIOS "/fabrics/fuzz.toml");
  if (!fabric) return check_error(fabric.error());
  WorkloadOptions options;
  options.workload = "incast";
  options.hosts = 9;
  auto scenario = workload_scenario(options, TULLE_SCENARIOS);
  TULLE_CHECK(scenario);
  build(scenario->on_fabrics({*fabric}));
}

// Reads the text as the file of a model, and trains and serves it on a few GPUs.
void check_model(std::string_view text) {
  auto model = parse_model_file(text, "fuzz.toml", TULLE_SCENARIOS);
  if (!model) return check_error(model.error());
  workload::Servers servers;
  servers.servers = 4;
  servers.gpus = servers.adapters = 4;
  servers.scale_up_bits_per_second = 1'000'000'000;
  model->step.servers = model->serving.servers = servers;
  auto step = workload::make_training_step(model->step);
  if (!step) check_error(step.error());
  TULLE_CHECK(!step || step->check());
  model->step.steps = 2;
  model->step.checkpoint.storage = 1;
  auto training = workload::make_training(model->step);
  if (!training) check_error(training.error());
  TULLE_CHECK(!training || training->graph.check());
  auto serving = workload::make_serving(model->serving);
  if (!serving) check_error(serving.error());
  TULLE_CHECK(!serving || serving->graph.check());
}

// Reads the text as a file of prices, and adds up the pieces of two small networks.
void check_prices(std::string_view text) {
  auto prices = parse_prices(text, "fuzz.toml");
  if (!prices) return check_error(prices.error());
  fabric::Topology topology;
  topology.hosts = topology.switches = 1;
  for (const PriceList* list : {&prices->infiniband, &prices->ethernet}) {
    for (const auto& [rate, pieces] : *list) {
      fabric::Link link;
      link.b = 1;
      link.bits_per_second = rate;
      topology.links = {link};
      auto price = price_of(topology, *list, "list");
      TULLE_CHECK(price);
      TULLE_CHECK(std::isfinite(price->amount) && price->amount >= 0);
      TULLE_CHECK(std::isfinite(price->watts) && price->watts >= 0);
      topology.links.front().bits_per_second = rate + 1;
      price = price_of(topology, *list, "list");
      TULLE_CHECK(price || !list->contains(rate + 1));
      if (!price) check_error(price.error());
    }
  }
}

}  // namespace
}  // namespace tulle::scenario

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("?")) {
    tulle::scenario::check_workload(tulle::scenario::with_small_numbers(text.substr(1)));
    return 0;
  }
  if (text.starts_with("!")) {
    tulle::scenario::check_fabric(tulle::scenario::with_small_numbers(text.substr(1)));
    return 0;
  }
  if (text.starts_with("$")) {
    tulle::scenario::check_model(tulle::scenario::with_small_numbers(text.substr(1)));
    return 0;
  }
  if (text.starts_with("@")) {
    tulle::scenario::check_prices(text.substr(1));
    return 0;
  }
  tulle::scenario::check(text, false);
  tulle::scenario::check(tulle::scenario::with_small_numbers(text), true);
  return 0;
}
