#pragma once

// The commands of the simulator, for both programs: `tulle` lists them and hands them over, and
// `tulle-simulator` runs them.

#include <algorithm>
#include <array>
#include <string_view>

namespace tulle::cli {

struct SimulatorCommand {
  std::string_view name;
  std::string_view description;
};

inline constexpr std::array simulator_commands = {
    SimulatorCommand{"sim", "Simulate a cluster: adapters, links and switches"},
    SimulatorCommand{
        "sweep", "Simulate a scenario with many values of its keys, and go on after interruptions"},
    SimulatorCommand{"tune",
                     "Search for the values of a scenario's keys with which a figure is best"},
    SimulatorCommand{"compare", "Simulate the same traffic on several fabrics"},
    SimulatorCommand{"bench", "Run a collective live among processes, and check and time it"},
    SimulatorCommand{"calibrate",
                     "Measure this machine, for simulations of collectives among its processes"},
};

// Returns null if the name is none of the simulator's commands.
inline const SimulatorCommand* simulator_command(std::string_view name) {
  const auto found = std::ranges::find(simulator_commands, name, &SimulatorCommand::name);
  return found == simulator_commands.end() ? nullptr : &*found;
}

}  // namespace tulle::cli
