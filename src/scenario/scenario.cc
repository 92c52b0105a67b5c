#include "scenario/scenario.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "scenario/build.h"
#include "scenario/reader.h"

namespace tulle::scenario {
namespace {

// Moves what `from` says over what `to` says, table by table. Moved, since a copied node forgets
// its line.
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

// The array of variants, taken out of the file's table.
toml::array take_variants(toml::table& root) {
  toml::array variants;
  if (toml::array* found = root["variant"].as_array()) variants = std::move(*found);
  root.erase("variant");
  return variants;
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
    for (const Variant& other : scenario.variants_) {
      if (other.name == added.name) {
        findings.add(line, "variant.name", fmt::format("\"{}\" is there twice", added.name));
      }
    }
    scenario.variants_.push_back(std::move(added));
  }
  if (scenario.variants_.empty()) scenario.variants_.push_back({});
  if (findings.any()) return Error{findings.first()};
  return scenario;
}

Result<Setup> Scenario::build(std::size_t variant) const {
  auto root = parse_toml(text_, file_);
  if (!root) return root.error();
  toml::array variants = take_variants(*root);
  if (variant < variants.size()) {
    toml::table& changes = *variants[variant].as_table();
    changes.erase("name");
    changes.erase("title");
    merge(changes, *root);
  }
  for (const std::string& line : set_) {
    auto change = parse_toml(line, "--set");
    if (!change) return change.error();
    merge(*change, *root);
  }
  Findings findings(file_);
  Setup setup = build_setup(*root, folder_, findings);
  if (findings.any()) return Error{findings.first()};
  setup.variant = variants_[variant].name;
  return setup;
}

}  // namespace tulle::scenario
