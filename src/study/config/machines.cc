// The machines over which a software fabric is spread: the list [[machine]]. A simulation does not
// need them.

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "base/quoted.h"
#include "fabric/machines/placement.h"
#include "study/config/network.h"

namespace tulle::config {

std::vector<fabric::Machine> build_machines(TableReader& root) {
  std::vector<fabric::Machine> machines;
  std::set<std::string> names;
  auto tables = root.tables("machine");
  if (tables.size() > fabric::machines_max) {
    root.wrong("machine", fmt::format("there may be {} machines", fabric::machines_max));
    return {};
  }
  for (TableReader& table : tables) {
    fabric::Machine machine;
    machine.name = table.text("name", "");
    machine.address = table.text("address", "");
    machine.nodes = table.texts("nodes", {});
    constexpr std::size_t text_max = 64;
    if (machine.name.size() > text_max || machine.address.size() > text_max) {
      table.wrong("name", fmt::format("and address have at most {} characters", text_max));
    }
    if (machine.name.empty()) table.wrong("name", "is needed: a name for people");
    if (machine.address.empty()) {
      table.wrong("address",
                  "is needed: an IP address, such as \"192.0.2.7\" or \"192.0.2.7:24791\"");
    }
    if (!names.insert(machine.name).second) {
      table.wrong("name", tulle::quoted(machine.name) + " is another machine's name already");
    }
    table.finish();
    machines.push_back(std::move(machine));
  }
  return machines;
}

}  // namespace tulle::config
