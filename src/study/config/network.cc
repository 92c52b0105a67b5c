#include "study/config/network.h"

#include <filesystem>

#include "study/config/document.h"
#include "study/config/files.h"

namespace tulle::config {

Result<Network> read_network(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.error();
  auto parsed = parse_toml(*text, path);
  if (!parsed) return parsed.error();
  Findings findings(path);
  TableReader::Layers layers = {&*parsed};
  if (const toml::node* variants = parsed->get("variant"); variants != nullptr) {
    if (!variants->is_array_of_tables()) {
      findings.add(*variants, "variant", "must be a list of tables: [[variant]]");
    } else {
      layers.push_back(variants->as_array()->front().as_table());
    }
  }
  TableReader root(layers, "", 0, findings);
  const std::filesystem::path beside = std::filesystem::path(path).parent_path();
  const std::string folder = (beside / root.text("folder", "")).string();
  Network network;
  network.topology = build_topology(root.table("topology"), folder);
  network.machines = build_machines(root);
  if (findings.any()) return Error{findings.first()};
  return network;
}

}  // namespace tulle::config
