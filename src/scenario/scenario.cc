#include "scenario/scenario.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "scenario/build.h"
#include "scenario/picture.h"
#include "scenario/reader.h"

namespace tulle::scenario {
namespace {

// Moves the keys of `from` over those of `to`, table by table. They are moved, since a copied node
// forgets its line.
void merge(toml::table& from, toml::table& to) {
  for (auto&& [key, node] : from) {
    toml::table* inner = node.as_table();
    toml::table* there = to[key.str()].as_table();
    if (inner != nullptr && there != nullptr) {
      merge(*inner, *there);
    } else {
      node.visit(
          [&, &key = key](auto& value) { to.insert_or_assign(key.str(), std::move(value)); });
    }
  }
}

Result<toml::table> parse_toml(std::string_view text, const std::string& file) {
  try {
    return toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& error) {
    return Error{fmt::format("{}:{}: {}", file, error.source().begin.line, error.description())};
  }
}

// Takes the array of variants out of the file's table.
toml::array take_variants(toml::table& root) {
  toml::array variants;
  if (toml::array* found = root["variant"].as_array()) variants = std::move(*found);
  root.erase("variant");
  return variants;
}

// Merges the keys that were set over those of a file.
Result<void> merge_set(const std::vector<std::string>& set, toml::table& root) {
  for (const std::string& line : set) {
    auto change = parse_toml(line, "--set");
    if (!change) return change.error();
    merge(*change, root);
  }
  return {};
}

// Keeps only the keys of the traffic, its topology and faults, the seed, the end and the report.
void keep_traffic(toml::table& root) {
  static constexpr std::array<std::string_view, 6> kept = {"seed",    "stop_at", "topology",
                                                           "traffic", "fault",   "report"};
  std::vector<std::string> others;
  for (const auto& [key, node] : root) {
    if (std::ranges::find(kept, key.str()) == kept.end()) others.emplace_back(key.str());
  }
  for (const std::string& key : others) root.erase(key);
}

Result<void> merge_fabric(const Fabric& fabric, toml::table& root) {
  auto keys = parse_toml(fabric.text, fabric.file);
  if (!keys) return keys.error();
  for (const std::string_view key : {"title", "sources", "default"}) keys->erase(key);
  // The profiles of a fabric lie beside the fabrics, wherever the scenario comes from.
  const std::filesystem::path folder = std::filesystem::path(fabric.file).parent_path();
  for (const auto& [table, profiles] : {std::pair{"host", "hosts"}, {"fabric", "switches"}}) {
    toml::value<std::string>* name = (*keys)[table]["profile"].as_string();
    if (name == nullptr || (*name)->empty()) continue;
    *name =
        std::filesystem::absolute(folder.parent_path() / "profiles" / profiles / **name).string();
  }
  merge(*keys, root);
  return {};
}

// Reads the variants. A variant's own keys are those of a scenario, except those of the scenario as
// a whole.
void read_variants(toml::array& variants, Findings& findings, std::vector<Variant>& found) {
  for (toml::node& node : variants) {
    toml::table* table = node.as_table();
    const std::uint32_t line = node.source().begin.line;
    TableReader variant(table, "variant.", line, findings);
    Variant added{variant.text("name", ""), variant.text("title", "")};
    if (added.name.empty()) findings.add(line, "variant.name", "is needed, a short name");
    if (added.name.find('/') != std::string::npos || added.name.starts_with('.')) {
      findings.add(line, "variant.name",
                   "names a folder of results: no / in it, nor . at its front");
    }
    for (const Variant& other : found) {
      if (other.name == added.name) {
        findings.add(line, "variant.name", fmt::format("\"{}\" is there twice", added.name));
      }
    }
    if (variant.has("picture")) {
      variant.wrong("picture", "is of all variants together: a table [picture] beside them");
    }
    found.push_back(std::move(added));
  }
  if (found.empty()) found.push_back({});
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Error{fmt::format("{}: is a folder, not a file", path)};
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{fmt::format("{}: {}", path, std::strerror(errno)), errno};
  std::stringstream text;
  text << in.rdbuf();
  if (in.bad()) return Error{fmt::format("{}: cannot be read", path)};
  return std::move(text).str();
}

Result<Scenario> Scenario::read(const std::string& path, std::vector<std::string> set) {
  auto text = read_file(path);
  if (!text) return text.error();
  const std::filesystem::path file(path);
  auto scenario = parse(std::move(*text), path, file.parent_path().string(), std::move(set));
  if (scenario) scenario->name_ = file.stem().string();
  return scenario;
}

Result<Scenario> Scenario::parse(std::string text, const std::string& file,
                                 const std::string& folder, std::vector<std::string> set) {
  Scenario scenario;
  scenario.text_ = std::move(text);
  scenario.file_ = file;
  scenario.folder_ = folder;
  scenario.set_ = std::move(set);
  auto root = parse_toml(scenario.text_, file);
  if (!root) return root.error();
  Findings findings(file);
  if (const toml::node* node = root->get("variant");
      node != nullptr && !node->is_array_of_tables()) {
    findings.add(*node, "variant", "must be a list of tables: [[variant]]");
  }
  toml::array variants = take_variants(*root);
  TableReader reader(&*root, "", 0, findings);
  scenario.title_ = reader.text("title", "");
  scenario.description_ = reader.text("description", "");
  read_variants(variants, findings, scenario.variants_);
  if (auto merged = merge_set(scenario.set_, *root); !merged) return merged.error();
  scenario.picture_ = read_picture(reader.table("picture"), scenario.variants_);
  if (findings.any()) return Error{findings.first()};
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

Result<Setup> Scenario::build(std::size_t variant) const {
  auto root = parse_toml(text_, file_);
  if (!root) return root.error();
  toml::array variants = take_variants(*root);
  if (!fabrics_.empty()) {
    keep_traffic(*root);
    if (auto merged = merge_fabric(fabrics_[variant], *root); !merged) return merged.error();
  } else if (variant < variants.size()) {
    toml::table& changes = *variants[variant].as_table();
    changes.erase("name");
    changes.erase("title");
    merge(changes, *root);
  }
  if (auto merged = merge_set(set_, *root); !merged) return merged.error();
  root->erase("picture");  // parse() has read it
  Findings findings(file_);
  Setup setup = build_setup(*root, folder_, findings);
  setup.variant = variants_[variant].name;
  if (!findings.any()) return setup;
  // In a comparison, the file alone does not say whose keys do not go together.
  const std::string whose = fabrics_.empty() ? "" : setup.variant + ": ";
  return Error{whose + findings.first()};
}

}  // namespace tulle::scenario
