#include "cli/fabric_commands.h"

#include <string>
#include <vector>

#include "cli/commands.h"

namespace tulle::cli {
namespace {

constexpr char fabric_examples[] =
    "Examples:\n"
    "  tulle fabric up                               two switches and four hosts: h0 to h3\n"
    "  tulle fabric up my.toml                       the topology of a scenario\n"
    "  tulle fabric up --no-manager                  without a subnet manager of its own\n"
    "  tulle run --host h0 -- opensm                 another subnet manager, on a host\n"
    "  tulle run --host h3 -- ibnetdiscover          what a host finds\n"
    "  tulle fabric cut h1 switch0                   pull a cable; join plugs it in again\n"
    "  tulle fabric status                           nodes, LIDs, ports and their states\n"
    "  tulle fabric down                             end the fabric\n"
    "\n"
    "The switches and adapters are software in a process of this user, and answer management\n"
    "datagrams as InfiniBand's do. Verbs programs on hosts send packets through them, by LID.\n";
constexpr char end_help[] = "A host or switch, or one of its ports: h0, switch1, switch1:3";

void add_name(CLI::App* command, std::string& name) {
  command->add_option("--name", name, "Name of the fabric (default)")->type_name("NAME");
}

}  // namespace

void add_fabric(CLI::App& app, int& status) {
  static FabricUpOptions up_options;
  static std::string name;
  static std::vector<std::string> ends;
  static bool json = false;
  auto* fabric = app.add_subcommand("fabric", "Run an InfiniBand fabric of software switches");
  fabric->require_subcommand(1);
  fabric->footer(fabric_examples);

  auto* up = fabric->add_subcommand("up", "Start a fabric");
  up->add_option("topology", up_options.topology,
                 "A scenario's file, of which [topology] is used (two switches, four hosts)")
      ->type_name("FILE");
  add_name(up, up_options.name);
  up->add_flag("--no-manager", up_options.no_manager,
               "Leave the ports as they are until a subnet manager runs on a host");
  up->add_flag("--foreground", up_options.foreground, "Stay until stopped");
  up->callback([&status] { status = fabric_up(up_options); });

  auto* down = fabric->add_subcommand("down", "End a fabric");
  add_name(down, name);
  down->callback([&status] { status = fabric_down(name); });

  auto* show = fabric->add_subcommand("status", "Show hosts and switches, ports and cables");
  add_name(show, name);
  show->add_flag("--json", json, "Print JSON");
  show->callback([&status] { status = fabric_status(name, json); });

  for (const bool cuts : {true, false}) {
    auto* command = fabric->add_subcommand(cuts ? "cut" : "join",
                                           cuts ? "Cut a cable" : "Join a cable that was cut");
    add_name(command, name);
    command->add_option("ends", ends, end_help)->type_name("END")->required()->expected(2);
    command->callback([cuts, &status] { status = fabric_cable(name, cuts, ends); });
  }
}

}  // namespace tulle::cli
