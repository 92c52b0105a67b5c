#pragma once

// Finds scenarios and their variants by name.

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/scenario/scenario.h"

namespace tulle::study {

// Returns the names of the scenarios that come with Tulle (config::shipped_folder()), in
// alphabetical order.
std::vector<std::string> shipped_scenarios();
// Returns a line for each of them, with its title.
Result<std::string> shipped_scenarios_text();
// Returns the file of a scenario, given as a path or as the name of one that comes with Tulle. The
// error suggests similar names.
Result<std::string> find_scenario(const std::string& name);
// Finds and reads a scenario, with these lines of TOML in place of those of its keys. All errors
// are of what was asked for.
Result<scenario::Scenario> read_scenario(const std::string& name,
                                         const std::vector<std::string>& set,
                                         const scenario::Overrides& overrides = {});

// Returns the indices of the variants that have a name; of all, if it is empty.
std::vector<std::size_t> wanted_variants(const scenario::Scenario& scenario,
                                         const std::string& variant);
// Returns an error message for the case that there is none.
std::string no_such_variant(const scenario::Scenario& scenario, const std::string& variant);

}  // namespace tulle::study
