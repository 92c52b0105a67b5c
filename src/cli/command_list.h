#pragma once

// The commands of the simulator, for both programs: `tulle` lists them and hands them over, and
// `tulle-simulator` runs them.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/check.h"

namespace tulle::cli {

struct SimulatorCommand {
  std::string_view name;
  std::string_view description;
};

inline constexpr std::array simulator_commands = {
    SimulatorCommand{"sim", "Simulate a cluster: adapters, links and switches"},
    SimulatorCommand{"sweep", "Run a parameter sweep over a scenario; resumes if interrupted"},
    SimulatorCommand{"tune", "Search for the settings of a scenario that optimize a figure"},
    SimulatorCommand{"compare", "Simulate the same traffic on several fabrics"},
    SimulatorCommand{"bench", "Run, check and time a collective among live processes"},
    SimulatorCommand{"calibrate",
                     "Profile this machine so that simulations can predict `tulle bench` results"},
};

// Returns null if the name is none of the simulator's commands.
inline const SimulatorCommand* simulator_command(std::string_view name) {
  const auto found = std::ranges::find(simulator_commands, name, &SimulatorCommand::name);
  return found == simulator_commands.end() ? nullptr : &*found;
}

// Adds a command of the simulator, with its description.
inline CLI::App* add_simulator_command(CLI::App& app, std::string_view name) {
  const SimulatorCommand* command = simulator_command(name);
  TULLE_CHECK(command != nullptr);
  return app.add_subcommand(std::string(command->name), std::string(command->description));
}

}  // namespace tulle::cli
