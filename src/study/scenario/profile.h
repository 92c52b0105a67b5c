#pragma once

// Profiles: files of keys, with sources, that a scenario names.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

// Reads profiles/KIND/NAME.toml, if the key `profile` names one. It is next to the scenario, or it
// comes with Tulle.
template <typename Read>
void read_profile(TableReader& table, const std::string& folder, std::string_view kind,
                  const Read& read) {
  const std::string name = table.text("profile", "");
  if (name.empty()) return;
  auto found = find_named(folder, fmt::format("profiles/{}", kind), name, "profile");
  if (!found) return table.wrong("profile", found.error().message);
  const std::string& path = *found;
  auto text = read_file(path);
  if (!text) return table.wrong("profile", text.error().message);
  auto root = parse_toml(*text, path);
  if (!root) return table.wrong("profile", root.error().message);
  Findings findings(path);
  TableReader profile({&*root}, "", 0, findings);
  profile.text("title", "");
  read(profile);
  profile.finish();
  if (findings.any()) table.findings().add(0, "", findings.first());
}

}  // namespace tulle::scenario
