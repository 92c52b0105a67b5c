#include "study/scenario/scenario.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <unordered_set>

#include "base/quoted.h"
#include "study/scenario/build.h"
#include "study/scenario/document.h"
#include "study/scenario/grid.h"
#include "study/scenario/picture.h"
#include "study/scenario/reading.h"

namespace tulle::scenario {
namespace {

// Takes the array of variants out of the file's table.
toml::array take_variants(toml::table& root) {
  toml::array variants;
  if (toml::array* found = root["variant"].as_array()) variants = std::move(*found);
  root.erase("variant");
  return variants;
}

Result<std::vector<toml::table>> parse_set(const std::vector<std::string>& set,
                                           const Overrides& overrides) {
  std::vector<toml::table> tables(1);
  toml::table& own = tables.front();
  // TOML's integers are signed.
  if (overrides.seed) own.insert("seed", static_cast<std::int64_t>(*overrides.seed));
  if (!overrides.prices.empty()) own.insert("prices", overrides.prices);
  if (overrides.is_alone) own.insert("report", toml::table{{"alone", true}});
  for (const std::string& line : set) {
    auto setting = parse_setting(line, "--set");
    if (!setting) return setting.error();
    auto table = parse_toml(*setting, "--set");
    if (!table) return table.error();
    tables.push_back(std::move(*table));
  }
  return tables;
}

// Moves the keys of the traffic and jobs, their topology and faults, the seed, the end and the
// report out of the file's table. They are moved, since a copied node forgets its line.
toml::table take_traffic(toml::table& root) {
  toml::table traffic;
  for (const std::string_view key :
       {"seed", "stop_at", "prices", "topology", "machine", "traffic", "jobs", "fault", "report"}) {
    toml::node* node = root.get(key);
    if (node == nullptr) continue;
    node->visit([&](auto& value) { traffic.insert(key, std::move(value)); });
    root.erase(key);
  }
  return traffic;
}

TableReader::Layers with_set(TableReader::Layers layers, const std::vector<toml::table>& set) {
  for (const toml::table& table : set) layers.push_back(&table);
  return layers;
}

// Puts the keys of a table over those of another one.
void put_over(toml::table& all, const toml::table& layer) {
  for (const auto& entry : layer) {
    const toml::key& key = entry.first;
    toml::table* below = all[key].as_table();
    if (below != nullptr && entry.second.is_table()) {
      put_over(*below, *entry.second.as_table());
    } else {
      entry.second.visit([&](const auto& value) { all.insert_or_assign(key, value); });
    }
  }
}

// Returns the tables in which a variant's keys are, of which the last that has a key counts.
TableReader::Layers layers_of(const Document& document, const std::vector<Fabric>& fabrics,
                              std::size_t variant) {
  TableReader::Layers layers = {&document.traffic};
  if (!fabrics.empty()) {
    layers.push_back(&fabrics[variant].keys->table);
  } else {
    layers.push_back(&document.others);
    if (variant < document.variants.size()) layers.push_back(&document.variants[variant]);
  }
  return with_set(std::move(layers), document.set);
}

// Reads the variants. A variant's own keys are those of a scenario, except those of the scenario as
// a whole.
void read_variants(toml::array& variants, Findings& findings, std::vector<Variant>& found) {
  std::unordered_set<std::string> names;
  for (toml::node& node : variants) {
    const toml::table* table = node.as_table();
    if (table == nullptr) continue;  // parse() has said so
    const std::uint32_t line = node.source().begin.line;
    TableReader variant({table}, "variant.", line, findings);
    Variant added{variant.text("name", ""), variant.text("title", "")};
    if (added.name.empty()) findings.add(line, "variant.name", "is needed, a short name");
    if (added.name.find('/') != std::string::npos || added.name.starts_with('.')) {
      findings.add(line, "variant.name",
                   "names a folder of results: no / in it, nor . at its front");
    }
    if (!names.insert(added.name).second) {
      findings.add(line, "variant.name", fmt::format("\"{}\" is there twice", added.name));
    }
    if (variant.has("picture")) {
      variant.wrong("picture", "applies to all variants: use a table [picture] outside of them");
    }
    found.push_back(std::move(added));
  }
  if (found.empty()) found.push_back({});
}

// Keeps the keys that a set-up is built from.
std::shared_ptr<const Document> document_of(toml::table root, toml::array& variants,
                                            std::vector<toml::table> set) {
  auto document = std::make_shared<Document>();
  document->traffic = take_traffic(root);
  for (const std::string_view key : {"picture", "title", "description"}) root.erase(key);
  document->others = std::move(root);
  for (toml::node& node : variants) {
    toml::table& changes = document->variants.emplace_back(std::move(*node.as_table()));
    changes.erase("name");
    changes.erase("title");
  }
  document->set = std::move(set);
  for (toml::table& table : document->set) table.erase("picture");
  return document;
}

}  // namespace

Result<Scenario> Scenario::read(const std::string& path, const std::vector<std::string>& set,
                                const Overrides& overrides) {
  auto text = read_file(path);
  if (!text) return text.error();
  const std::filesystem::path file(path);
  auto scenario = parse(*text, path, file.parent_path().string(), set, overrides);
  if (scenario) scenario->name_ = file.stem().string();
  return scenario;
}

Result<Scenario> Scenario::parse(std::string_view text, const std::string& file,
                                 const std::string& folder, const std::vector<std::string>& set,
                                 const Overrides& overrides) {
  auto root = parse_toml(text, file);
  if (!root) return root.error();
  return of({std::move(*root)}, file, folder, set, overrides);
}

Result<Scenario> Scenario::of(Keys keys, const std::string& origin, const std::string& folder,
                              const std::vector<std::string>& set, const Overrides& overrides) {
  toml::table& root = keys.table;
  Scenario scenario;
  scenario.file_ = origin;
  scenario.folder_ = folder;
  Findings findings(origin);
  if (const toml::node* node = root.get("variant");
      node != nullptr && !node->is_array_of_tables()) {
    findings.add(*node, "variant", "must be a list of tables: [[variant]]");
  }
  toml::array variants = take_variants(root);
  TableReader reader({&root}, "", 0, findings);
  scenario.title_ = reader.text("title", "");
  scenario.description_ = reader.text("description", "");
  const std::filesystem::path elsewhere = reader.text("folder", "");
  if (!elsewhere.empty()) scenario.folder_ = (std::filesystem::path(folder) / elsewhere).string();
  root.erase("folder");
  read_variants(variants, findings, scenario.variants_);
  auto set_keys = parse_set(set, overrides);
  if (!set_keys) return set_keys.error();
  TableReader with_picture(with_set({&root}, *set_keys), "", 0, findings);
  scenario.picture_ = read_picture(with_picture.table("picture"), scenario.variants_);
  if (findings.any()) return Error{findings.first()};
  scenario.document_ = document_of(std::move(root), variants, std::move(*set_keys));
  return scenario;
}

Scenario Scenario::on_fabrics(std::vector<Fabric> fabrics) const {
  Scenario scenario = *this;
  scenario.fabrics_ = std::move(fabrics);
  scenario.variants_.clear();
  for (const Fabric& fabric : scenario.fabrics_) {
    scenario.variants_.push_back({fabric.name, fabric.title});
  }
  return scenario;
}

std::string Scenario::settings(std::size_t variant) const {
  toml::table all;
  for (const toml::table* layer : layers_of(*document_, fabrics_, variant)) put_over(all, *layer);
  std::ostringstream text;
  text << all;
  return std::move(text).str();
}

Result<void> Scenario::check_settings(std::span<const std::size_t> variants) const {
  std::size_t bytes = 0;
  for (const std::size_t variant : variants) {
    bytes += settings(variant).size();
    if (bytes <= settings_bytes_max) continue;
    return as_misuse(
        {fmt::format("{}: the settings of {} variants take more than {} MiB, which results keep: "
                     "choose fewer variants, or shorten the keys that all of them have",
                     one_line(file_), variants.size(), settings_bytes_max >> 20)});
  }
  return {};
}

std::string Scenario::setting(std::size_t variant, std::string_view key) const {
  std::string value;
  for (const toml::table* layer : layers_of(*document_, fabrics_, variant)) {
    const toml::node* node = layer->at_path(key).node();
    if (node != nullptr) value = toml_of(*node);
  }
  return value;
}

Result<Setup> Scenario::build(std::size_t variant, bool may_choose_trains) const {
  Findings findings(file_);
  TableReader::Layers layers = layers_of(*document_, fabrics_, variant);
  Setup setup = build_setup({layers, "", 0, findings}, folder_);
  if (!findings.any()) {
    if (auto ends = check_length(setup); !ends) findings.add(0, "", ends.error().message);
  }
  const bool chooses = may_choose_trains && !findings.any();
  const std::uint32_t train = chooses ? automatic_train(setup) : 1;
  if (train > 1) {
    const toml::table chosen{{"host", toml::table{{"train", train}}}};
    layers.push_back(&chosen);
    setup = build_setup({layers, "", 0, findings}, folder_);
  }
  setup.variant = variants_[variant].name;
  if (!findings.any()) return setup;
  // In a comparison, the file alone does not say whose keys do not go together.
  const std::string whose = fabrics_.empty() ? "" : setup.variant + ": ";
  return Error{whose + findings.first()};
}

}  // namespace tulle::scenario
