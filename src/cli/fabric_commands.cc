#include "cli/fabric_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "terminal/command_line.h"

namespace tulle::cli {
namespace {

constexpr char fabric_examples[] =
    "Examples:\n"
    "  tulle fabric up                               two switches and four hosts: h0 to h3\n"
    "  tulle fabric up my.toml                       the topology of a scenario\n"
    "  tulle fabric up --no-manager                  without the built-in subnet manager\n"
    "  tulle run --host h0 -- ib_write_bw            a server on a host\n"
    "  tulle run --host h3 -- ib_write_bw h0         its client on another host\n"
    "  tulle run --host h0 -- opensm -f $PWD/opensm.log\n"
    "                                                another subnet manager, on a host\n"
    "  tulle run --host h3 -- ibnetdiscover          the subnet that a host discovers\n"
    "  tulle fabric cut h1 switch4                   pull a cable; join plugs it in again\n"
    "  tulle fabric status                           nodes, LIDs, ports and their states\n"
    "  tulle fabric list                             running fabrics\n"
    "  tulle fabric down                             stop the fabric\n"
    "\n"
    "The switches and adapters run in one process of this user. They answer management datagrams\n"
    "as InfiniBand nodes do, and forward the packets of verbs programs by LID. Each host has a\n"
    "name. If this machine allows namespaces, the hosts also have an IP network.\n";
constexpr char up_examples[] =
    "Examples:\n"
    "  tulle fabric up                               two switches and four hosts: h0 to h3\n"
    "  tulle fabric up my.toml                       the topology of a scenario\n"
    "  tulle fabric up --no-manager                  without a subnet manager\n"
    "  tulle run --host h0 -- opensm -f $PWD/opensm.log\n"
    "                                                a subnet manager, on a host\n";
constexpr char fabric_status_examples[] =
    "Examples:\n"
    "  tulle fabric status                           nodes, LIDs, ports and their states\n"
    "  tulle fabric status --name lab --json         another fabric, for a script\n";
constexpr char shell_examples[] =
    "Examples:\n"
    "  tulle fabric rsh h3 hostname                  a command on host h3\n";
constexpr char cut_examples[] =
    "Examples:\n"
    "  tulle fabric cut h1 switch4                   the cable between a host and a switch\n"
    "  tulle fabric cut switch4:3 switch5            one of several cables, by its port\n";
constexpr char join_examples[] =
    "Examples:\n"
    "  tulle fabric join h1 switch4                  plug the cable in again\n";
constexpr char end_help[] = "A host or switch, or one of its ports: h0, switch4, switch4:3";

void add_name(CLI::App* command, std::string& name) {
  command->add_option("--name", name, "Name of the fabric (\"default\")")->type_name("NAME");
}

// `tulle fabric`, which needs one of its commands and names them all if it gets another word.
class FabricApp : public CLI::App {
 public:
  explicit FabricApp(std::string description) : CLI::App(std::move(description), "fabric") {
    require_subcommand(0, 1);
    allow_extras();
  }

 private:
  void pre_callback() override {
    const auto unknown = remaining();
    if (unknown.empty() && !get_subcommands().empty()) return;
    std::vector<std::string> names;
    for (const CLI::App* each : get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(each->get_name());
    }
    const std::string wrong = unknown.empty()
                                  ? "a command is missing"
                                  : fmt::format("unknown command \"fabric {}\"", unknown.front());
    throw CLI::ParseError(fmt::format("{}: choose from {}", wrong, fmt::join(names, ", ")),
                          CLI::ExitCodes::ExtrasError);
  }
};

CLI::App* add_up(CLI::App* fabric, int& status) {
  static FabricUpOptions up_options;
  auto* up = fabric->add_subcommand("up", "Start a fabric");
  up->add_option("topology", up_options.topology,
                 "A scenario file, or a name from `tulle sim --list`; only its [topology] is used "
                 "(default: two switches, four hosts)")
      ->type_name("FILE");
  add_name(up, up_options.name);
  auto* no_manager = up->add_flag("--no-manager", up_options.no_manager,
                                  "Leave the ports inactive until a subnet manager runs on a host");
  up->add_option("--manager-key", up_options.manager_key,
                 "File with the key (M_Key and SM_Key) of the built-in subnet manager, such as "
                 "0x1b2c3d4e5f607182, for tools and managers that must change the fabric. With "
                 "\"none\", any program can change it. By default, the key is random and secret")
      ->type_name("KEYFILE")
      ->excludes(no_manager);
  up->add_flag("--shared-network", up_options.shared_network,
               "Share this machine's IP network with the hosts");
  up->add_flag("--rates", up_options.keeps_rates,
               "Limit links to their rates; by default, they are as fast as this machine");
  up->add_option("--machine", up_options.machine,
                 "Name of this machine in the file, if no address in the file identifies it")
      ->type_name("NAME");
  up->add_option("--secure", up_options.secure,
                 "Encrypt and authenticate traffic between machines with the first key of this "
                 "file, as tulle run does; all machines need the key")
      ->type_name("KEYFILE");
  up->add_flag("--foreground", up_options.foreground, "Run in the foreground until stopped");
  up->footer(up_examples);
  up->callback([&status] { status = fabric_up(up_options); });
  return up;
}

void add_shell(CLI::App* fabric, int& status, const std::vector<std::string>& after_dashes) {
  static shim::LaunchOptions shell_options;
  auto* shell = fabric->add_subcommand(
      "rsh", "Run a command on a host, as rsh does; for launchers such as mpirun");
  add_name(shell, shell_options.fabric);
  shell->add_option("host", shell_options.host, "The host")->type_name("HOST")->required();
  shell->footer(shell_examples);
  shell->prefix_command();
  shell->callback([shell, &status, &after_dashes] {
    shell_options.command = shell->remaining();
    if (!after_dashes.empty() && !shell_options.command.empty()) {
      shell_options.command.emplace_back("--");
    }
    auto& command = shell_options.command;
    command.insert(command.end(), after_dashes.begin(), after_dashes.end());
    if (command.empty()) throw CLI::RequiredError("A command line");
    status = fabric_shell(shell_options);
  });
}

}  // namespace

void add_fabric(CLI::App& app, int& status, const std::vector<std::string>& after_dashes) {
  static std::string name;
  static std::array<std::string, 2> ends;
  static bool json = false;
  auto* fabric = app.add_subcommand(
      std::make_shared<FabricApp>("Run an InfiniBand fabric of software switches"));
  fabric->formatter(app.get_formatter());
  fabric->footer(fabric_examples);

  CLI::App* up = add_up(fabric, status);
  auto* down = fabric->add_subcommand("down", "Stop a fabric");
  add_name(down, name);
  down->footer("");
  down->callback([&status] { status = fabric_down(name); });

  auto* show = fabric->add_subcommand("status", "Show hosts and switches, ports and cables");
  add_name(show, name);
  show->add_flag("--json", json, "Print JSON");
  show->footer(fabric_status_examples);
  show->callback([&status] { status = fabric_status(name, json); });

  auto* list = fabric->add_subcommand("list", "List running fabrics");
  list->add_flag("--json", json, "Print JSON");
  list->footer("");
  list->callback([&status] { status = fabric_list(json); });

  add_shell(fabric, status, after_dashes);

  for (const bool cuts : {true, false}) {
    auto* command = fabric->add_subcommand(cuts ? "cut" : "join",
                                           cuts ? "Cut a cable" : "Reconnect a cable that was cut");
    add_name(command, name);
    command->add_option("END", ends[0], end_help)->type_name("END")->required();
    command->add_option("OTHER_END", ends[1], "Other end of the cable")
        ->type_name("OTHER_END")
        ->required();
    command->footer(cuts ? cut_examples : join_examples);
    command->callback([cuts, &status] { status = fabric_cable(name, cuts, ends); });
  }
  // What `tulle fabric` itself takes, to name it, its commands do not.
  for (CLI::App* each : {up, down, show, list}) each->allow_extras(false);
}

}  // namespace tulle::cli
