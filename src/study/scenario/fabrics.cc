#include "study/scenario/fabrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/near_names.h"
#include "base/quoted.h"
#include "base/split.h"
#include "study/scenario/document.h"
#include "study/scenario/reading.h"
#include "study/workload/csv.h"

namespace tulle::scenario {
namespace {

namespace fs = std::filesystem;

// Replaces the names of profiles next to a fabric by their paths, wherever the scenario comes from.
// Others are looked up when the fabric is built.
void name_profiles(toml::table& keys, const fs::path& folder) {
  for (const auto& [table, profiles] : {std::pair{"host", "hosts"}, {"fabric", "switches"}}) {
    toml::value<std::string>* name = keys[table]["profile"].as_string();
    if (name == nullptr || (*name)->empty()) continue;
    std::error_code error;
    const fs::path path = fs::absolute(folder / profiles / **name, error);
    if (is_there(path.string() + ".toml")) *name = path.string();
  }
}

}  // namespace

Result<Fabric> parse_fabric(std::string_view text, const std::string& file) {
  const fs::path path(file);
  Fabric fabric;
  fabric.name = path.stem().string();
  auto root = parse_toml(text, file);
  if (!root) return root.error();
  Findings findings(file);
  TableReader reader({&*root}, "", 0, findings);
  fabric.title = reader.text("title", "");
  fabric.sources = reader.text("sources", "");
  fabric.by_default = reader.boolean("default", false);
  fabric.one_plane = reader.boolean("one_plane", false);
  for (const char* table : {"fabric", "host", "congestion", "routing", "recovery"}) {
    reader.table(table);
  }
  if (fabric.title.empty()) findings.add(0, "title", "is needed, for people");
  reader.finish();
  if (findings.any()) return Error{findings.first()};
  for (const std::string_view key : {"title", "sources", "default", "one_plane"}) root->erase(key);
  name_profiles(*root, path.parent_path().parent_path() / "profiles");
  fabric.keys = std::make_shared<const Keys>(Keys{std::move(*root)});
  return fabric;
}

Result<std::vector<Fabric>> read_fabrics(const std::string& folder) {
  const std::vector<std::string> names = toml_names(folder);
  if (names.empty()) return Error{fmt::format("{}: there are no fabrics", folder)};
  std::vector<Fabric> fabrics;
  for (const std::string& name : names) {
    const std::string path = (fs::path(folder) / (name + ".toml")).string();
    auto text = read_file(path);
    if (!text) return text.error();
    auto fabric = parse_fabric(*text, path);
    if (!fabric) return fabric.error();
    fabrics.push_back(std::move(*fabric));
  }
  return fabrics;
}

namespace {

Result<Fabric> fabric_in_file(const std::string& file) {
  auto path = find_file("", file);
  if (!path) return path.error();
  auto text = read_file(*path);
  if (!text) return text.error();
  return parse_fabric(*text, *path);
}

Result<Fabric> fabric_named(const std::vector<Fabric>& fabrics, const std::string& name) {
  const auto found = std::ranges::find(fabrics, name, &Fabric::name);
  if (found != fabrics.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(fabrics.size());
  for (const Fabric& fabric : fabrics) names.push_back(fabric.name);
  const std::string all = fmt::format("the fabrics are {}, and all", fmt::join(names, ", "));
  return Error{fmt::format("no fabric {}{}", tulle::quoted(name), did_you_mean(name, names, all))};
}

}  // namespace

Result<std::vector<Fabric>> choose_fabrics(const std::vector<Fabric>& fabrics,
                                           const std::string& names, std::uint32_t planes) {
  if (names == "all") return fabrics;
  std::vector<Fabric> chosen;
  if (names.empty()) {
    std::ranges::copy_if(fabrics, std::back_inserter(chosen), [&](const Fabric& fabric) {
      return fabric.by_default && fabric.goes_with(planes);
    });
    return chosen;
  }
  for (const std::string_view part : split(names, ',')) {
    const std::string name(workload::trimmed(part));
    auto fabric = name.ends_with(".toml") ? fabric_in_file(name) : fabric_named(fabrics, name);
    if (!fabric) return fabric.error();
    if (std::ranges::find(chosen, fabric->name, &Fabric::name) != chosen.end()) {
      return Error{fmt::format("{} is there twice", fabric->name)};
    }
    chosen.push_back(std::move(*fabric));
  }
  return chosen;
}

std::vector<std::pair<std::string, std::string>> titles_in(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> profiles;
  for (const std::string& name : toml_names(folder)) {
    const std::string path = (fs::path(folder) / (name + ".toml")).string();
    auto text = read_file(path);
    auto root = text ? parse_toml(*text, path) : Result<toml::table>(text.error());
    if (root) profiles.emplace_back(name, (*root)["title"].value_or(std::string()));
  }
  return profiles;
}

}  // namespace tulle::scenario
