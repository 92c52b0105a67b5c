// The program `tulle`: the command lines of the live commands. It becomes another program, the
// simulator, for the commands of that one.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quoted.h"
#include "cli/command_list.h"
#include "cli/commands.h"
#include "cli/fabric_commands.h"
#include "cli/layout.h"
#include "cli/simulator.h"
#include "live/agent/agent.h"
#include "live/likeness.h"
#include "live/settings.h"
#include "study/config/files.h"
#include "terminal/command_line.h"
#include "terminal/complete.h"

namespace tulle::cli {
namespace {

using terminal::CommandLine;
using terminal::from_to;

constexpr char about[] =
    "Tulle: an RDMA network in software.\n"
    "\n"
    "It runs unmodified verbs programs over RoCE v2 (UDP port 4791) on any Linux machine, without\n"
    "RDMA hardware, kernel modules or privileges. It also simulates clusters of the same adapters\n"
    "in virtual time, over InfiniBand, RoCE v2 and other networks.";
constexpr char examples[] =
    "Examples:\n"
    "  tulle run -- ibv_devinfo                      the device that programs find\n"
    "  tulle run -- ib_write_bw                      a server\n"
    "  tulle run -- ib_write_bw 192.0.2.2            its client, on another host\n"
    "  tulle status                                  programs that use the device, and counters\n"
    "  tulle capture -o trace.pcapng                 packets, for Wireshark\n"
    "  tulle sim incast                              a cluster in virtual time\n"
    "  tulle compare --workload incast               the same traffic on several fabrics\n";
constexpr char devices_examples[] =
    "Examples:\n"
    "  tulle devices                                 the device, its interfaces and addresses\n"
    "  tulle devices --interface eth0 --roce both    with one interface and both versions of RoCE\n"
    "  tulle devices --json                          for a script\n";
constexpr char status_examples[] =
    "Examples:\n"
    "  tulle status                                  processes, traffic and discarded packets\n"
    "  tulle status --json                           for a script\n";
constexpr char run_examples[] =
    "Examples:\n"
    "  tulle run -- ibv_rc_pingpong -g 0             a server; its client needs -g 0, too\n"
    "  tulle run --interface eth0 --device mlx5_0 -- ucx_info -d\n"
    "                                                a device called mlx5_0, over eth0\n"
    "  tulle run --faults drop=0.01,reorder=1%,seed=7 -- ib_send_bw 192.0.2.2\n"
    "                                                a client on a bad network\n"
    "  tulle run -- mpirun -n 4 ./program            an MPI job, with Open MPI or MPICH\n"
    "  tulle run --rsockets -- redis-server          a socket program over RDMA\n"
    "\n"
    "Defaults are in parentheses. The exit status is the program's, 127 if the program is not\n"
    "found, or 126 if it cannot be run.\n"
    "\n"
    "The options set TULLE_DEVICE, TULLE_INTERFACE, TULLE_FAULTS, TULLE_SECURE, TULLE_AGENT,\n"
    "TULLE_RECOVERY, TULLE_ROCE, TULLE_BUSY_POLL, TULLE_LIKE and TULLE_GID_ORDER for the program.\n"
    "--explain sets TULLE_EXPLAIN and --strict TULLE_STRICT to 1, --no-offload and --no-direct "
    "set\n"
    "TULLE_OFFLOAD and TULLE_DIRECT to \"off\", --share-memory sets TULLE_SHARE_MEMORY to \"on\", "
    "and\n"
    "--host sets TULLE_FABRIC and TULLE_HOST.\n";
constexpr char secure_help[] =
    "Encrypt and authenticate all traffic to other hosts with the first key of this file, and "
    "accept only traffic sealed with one of its keys (one per line: `openssl rand -hex 32`)";
constexpr char share_memory_help[] =
    "Let peers on this host map the memory that the program registers. This makes small transfers "
    "several times as fast. The program must not call clone(2) directly to fork";
constexpr char recovery_help[] =
    "How reliable connections recover from loss: go-back-n (default), which all adapters support, "
    "or selective-repeat, which resends only what is missing; set it at both ends";
constexpr char roce_help[] =
    "Version of RoCE: v2 (default), v1, or both, with separate GID indices for each. RoCE v1 is "
    "confined to one link and needs CAP_NET_RAW";
constexpr char busy_poll_help[] =
    "Maximum time to busy-poll before blocking on a completion channel; adaptive. 0 disables it "
    "(50)";
constexpr char faults_help[] =
    "Inject faults into the packets that the program sends: any of drop=P, duplicate=P, reorder=P, "
    "corrupt=P (probabilities, such as 0.01 or 1%), delay=T, reorder_delay=T (times, such as "
    "100us), seed=N";
constexpr char capture_examples[] =
    "Examples:\n"
    "  tulle capture -o trace.pcapng                 capture until Ctrl-C\n"
    "  tulle capture -o trace.pcapng --duration 5 --direction out --snaplen 128\n"
    "                                                headers of outgoing frames, for five seconds\n"
    "  tulle capture -o - | tshark -r - -Y infiniband\n"
    "                                                show frames as they arrive\n"
    "  tulle capture --fabric default -o links.pcapng\n"
    "                                                packets on the links of a software fabric\n"
    "\n"
    "While a capture runs, processes on one host exchange packets instead of accessing each\n"
    "other's memory directly.\n";

CLI::Validator device_name() {
  const auto check = [](std::string& name) {
    return live::is_device_name(name) ? std::string() : std::string(live::device_name_rule);
  };
  return CLI::Validator(check, "");
}

void add_agent_address(CLI::App& command, std::string& address) {
  command.add_option("--agent", address, "Address of the host agent: @name, or a path")
      ->type_name("NAME");
}

// Adds the options that say which device the program finds, and where.
void add_device_options(CLI::App* command, shim::LaunchOptions& options) {
  command
      ->add_option("--device,-d", options.device,
                   "Name of the device that the program finds (tulle0)")
      ->type_name("NAME")
      ->check(device_name());
  command
      ->add_option("--interface,-i", options.interfaces,
                   "Network interfaces to use, such as eth0,eth1 (default: all that are up)")
      ->type_name("IF");
  auto* host =
      command->add_option("--host", options.host,
                          "Run on this host of a software fabric (tulle fabric up), such as h0");
  host->type_name("HOST");
  command->add_option("--fabric", options.fabric, "Name of the fabric, for --host (\"default\")")
      ->type_name("NAME")
      ->needs(host);
  command->add_option("--faults", options.faults, faults_help)->type_name("SPEC");
  command->add_option("--secure", options.secure, secure_help)->type_name("KEYFILE");
  add_agent_address(*command, options.agent);
}

// Adds the options that say how the device behaves.
void add_behaviour_options(CLI::App* command, shim::LaunchOptions& options) {
  command->add_flag("--rsockets", options.rsockets,
                    "Replace the program's sockets with rsockets, as librspreload does; for "
                    "programs such as redis-server");
  command->add_flag("--explain", options.explain, "Print on standard error why a verb fails");
  auto* strict = command->add_flag(
      "--strict", options.strict,
      "Behave as strictly as hardware: read and write memory late, free queue entries only "
      "after their completions are polled, and more");
  const std::vector<std::string_view> adapters = live::likeness_names();
  command
      ->add_option("--like", options.like,
                   fmt::format("Use the limits, identifiers and device name of an "
                               "adapter: {}",
                               fmt::join(adapters, ", ")))
      ->type_name("ADAPTER")
      ->check(CLI::IsMember(std::vector<std::string>(adapters.begin(), adapters.end())));
  command
      ->add_option(
          "--gid-order", options.gid_order,
          "Which addresses have the first GID indices: ip (default), or link-local, as with "
          "kernel devices and with --like")
      ->type_name("ORDER")
      ->check(CLI::IsMember({"ip", "link-local"}));
  command->add_flag("--no-offload", options.no_offload,
                    "Send datagrams one by one, without the kernel's segmentation");
  command->add_flag("--no-direct", options.no_direct,
                    "Use packets even between processes on one host");
  command->add_flag("--share-memory", options.share_memory, share_memory_help)->excludes(strict);
  command->add_flag("--no-mpi-defaults", options.no_mpi_defaults,
                    "Do not set UCX_TLS, UCX_RNDV_THRESH, MPIR_CVAR_NOLOCAL, and OMPI_MCA_pml, "
                    "_osc, _opal_common_ucx_devices and _opal_common_ucx_tls. By default, tulle "
                    "run sets those that are unset, so that MPI uses the device");
  command->add_option("--recovery", options.recovery, recovery_help)
      ->type_name("KIND")
      ->check(CLI::IsMember({"go-back-n", "selective-repeat"}));
  command->add_option("--roce", options.roce, roce_help)
      ->type_name("VERSION")
      ->check(CLI::IsMember({"v1", "v2", "both"}));
  command->add_option("--busy-poll", options.busy_poll, busy_poll_help)
      ->type_name("MICROSECONDS")
      ->check(from_to(0u, live::busy_poll_max));
}

void add_run(CLI::App& app, int& status, const std::vector<std::string>& after_dashes) {
  auto* command = app.add_subcommand("run", "Run a program with Tulle's RDMA device");
  static shim::LaunchOptions options;
  add_device_options(command, options);
  add_behaviour_options(command, options);
  command->prefix_command();
  command->footer(run_examples);
  command->callback([command, &status, &after_dashes] {
    const std::vector<std::string> before = command->remaining();
    options.command = before.empty() ? after_dashes : before;
    if (options.command.empty()) throw CLI::RequiredError("A program to run");
    const bool is_option = !before.empty() && before.front().starts_with('-');
    if (is_option) throw CLI::ExtrasError({before.front()});
    if (!before.empty()) {
      // The dashes in `tulle run prog -- args` belong to the program.
      options.command.insert(options.command.end(), after_dashes.begin(), after_dashes.end());
    }
    status = run(options);
  });
}

void add_agent(CLI::App& app, int& status) {
  auto* command =
      app.add_subcommand("agent", "Run the host agent; programs start one if none runs");
  static live::AgentOptions options;
  options.settings = live::read_settings();
  auto* foreground = command->add_flag("--foreground", options.foreground,
                                       "Run in the foreground until stopped, and log events");
  command
      ->add_flag("--on-demand", options.on_demand,
                 "Run detached and exit when idle, as when a program starts the agent")
      ->excludes(foreground);
  command->add_option("--secure", options.settings.secure, secure_help)->type_name("KEYFILE");
  command->add_option("--agent", options.settings.agent, "Address to listen on: @name, or a path")
      ->type_name("NAME");
  auto* idle = command
                   ->add_option("--idle-exit", options.settings.idle_exit_seconds,
                                "Exit after this many seconds without programs; 0 means never "
                                "(with --on-demand 10, otherwise never)")
                   ->type_name("SECONDS")
                   ->check(from_to(0, 1'000'000));
  command->footer(
      "The host agent owns UDP port 4791 of its network namespace and shares it among programs.\n"
      "Root's agent serves all users. Another user's agent serves only that user.\n");
  command->callback([idle, &status] {
    options.idle_exit = options.on_demand || idle->count() > 0;
    if (options.settings.idle_exit_seconds == 0) options.idle_exit = false;
    if (!options.on_demand) options.foreground = true;
    status = live::run_agent(options);
  });
}

void add_queries(CLI::App& app, int& status) {
  static live::Settings settings = live::read_settings();
  static bool json = false;
  const auto add_common = [](CLI::App* command) {
    add_agent_address(*command, settings.agent);
    command->add_flag("--json", json, "Print JSON");
  };
  auto* devices_command = app.add_subcommand("devices", "List the devices that programs find");
  add_common(devices_command);
  devices_command->add_option("--device,-d", settings.device.name, "Device name, as for tulle run")
      ->type_name("NAME")
      ->check(device_name());
  devices_command
      ->add_option("--interface,-i", settings.device.interfaces,
                   "Network interfaces, as for tulle run")
      ->type_name("IF");
  static std::string roce;
  devices_command->add_option("--roce", roce, "Version of RoCE, as for tulle run")
      ->type_name("VERSION")
      ->check(CLI::IsMember({"v1", "v2", "both"}));
  devices_command->footer(devices_examples);
  devices_command->callback([&status] {
    if (!roce.empty()) settings.device.roce = live::roce_versions(roce);
    status = devices(settings, json);
  });
  auto* status_command =
      app.add_subcommand("status", "Show the host agent, its programs and their counters");
  add_common(status_command);
  status_command->footer(status_examples);
  status_command->callback([&status] { status = cli::status(settings, json); });
}

void add_capture(CLI::App& app, int& status) {
  static live::CaptureOptions options;
  static std::optional<std::string> fabric;
  static std::uint32_t buffer_mebibytes = 32;
  options.settings = live::read_settings();
  auto* command = app.add_subcommand("capture", "Write packets to a pcapng file");
  command->add_option("--output,-o", options.output, "The file to write; - means standard output")
      ->type_name("FILE")
      ->required();
  command->add_option("--duration", options.duration_seconds, "Stop after this many seconds")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber);
  command->add_option("--count,-c", options.count, "Stop after this many frames")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  static const std::map<std::string, live::CaptureDirection> directions = {
      {"in", live::CaptureDirection::in},
      {"out", live::CaptureDirection::out},
      {"both", live::CaptureDirection::both}};
  command
      ->add_option("--direction", options.direction,
                   "Frames to capture: incoming, outgoing, or both (both)")
      ->type_name("in|out|both")
      ->transform(CLI::CheckedTransformer(directions).description(""));
  command
      ->add_option("--snaplen,-s", options.snap_length,
                   "Keep at most this many bytes of each frame (all)")
      ->type_name("BYTES")
      ->check(CLI::PositiveNumber);
  auto* of_fabric = command->add_option("--fabric", fabric,
                                        "Capture the links of this software fabric (tulle fabric "
                                        "up) instead of this host's processes");
  of_fabric->type_name("NAME");
  command
      ->add_flag("--flow-control", options.has_flow_control,
                 "With --fabric: also capture flow control packets, which carry credits")
      ->needs("--fabric");
  command
      ->add_option("--buffer", buffer_mebibytes, "Size of the capture buffer for each process (32)")
      ->type_name("MiB")
      ->check(from_to(1, 1024));
  add_agent_address(*command, options.settings.agent);
  // A fabric's process sees each packet once, as a port sends it.
  for (const char* other : {"--agent", "--direction"}) of_fabric->excludes(other);
  command->footer(capture_examples);
  command->callback([&status] {
    options.ring_bytes = buffer_mebibytes << 20;
    status = capture(options, fabric);
  });
}

// Returns true if the simulator has the command, or knows what may come next after it.
bool is_simulators(const CommandLine& line) {
  if (line.first() != "complete") return simulator_command(line.first()) != nullptr;
  const auto& words = line.after_dashes;
  return words.size() > 1 && simulator_command(words.front()) != nullptr;
}

// Returns false if the command serves another program: a shell, or a program that needs an agent.
// The agent inherits that program's environment, and the program has warned of what is wrong there.
bool is_for_a_person(const CommandLine& line, const std::vector<std::string>& arguments) {
  if (line.first() == "agent")
    return std::ranges::find(arguments, "--on-demand") == arguments.end();
  return line.first() != "complete";
}

int tulle_main(const std::vector<std::string>& arguments) {
  const CommandLine line(arguments);
  if (is_simulators(line)) return become_simulator(arguments);
  const std::string wrong = live::wrong_setting();
  if (!wrong.empty() && is_for_a_person(line, arguments)) return refuse(wrong);
  CLI::App app(about, "tulle");
  terminal::prepare(app, TULLE_VERSION);
  app.footer(examples);
  int status = 0;
  config::set_shipped_folder(scenario_folder().string());
  add_run(app, status, line.after_dashes);
  add_queries(app, status);
  add_capture(app, status);
  add_fabric(app, status, line.after_dashes);
  add_agent(app, status);
  for (const SimulatorCommand& each : simulator_commands) add_simulator_command(app, each.name);
  terminal::add_complete(app, status, line.after_dashes);
  auto ran = terminal::run_command(app, line, status);
  return ran ? *ran : fail(ran.error());
}

}  // namespace

int fail(const Error& error) {
  std::fprintf(stderr, "tulle: %s\n", one_line(error.message).c_str());
  return error.is_misuse ? usage_status : 1;
}

}  // namespace tulle::cli

int main(int argc, char** argv) try {
  return tulle::cli::tulle_main({argv + 1, argv + argc});
} catch (const std::bad_alloc&) {
  return tulle::cli::fail("there is not enough memory for this");
} catch (const std::exception& error) {
  return tulle::cli::fail(error.what());
}
