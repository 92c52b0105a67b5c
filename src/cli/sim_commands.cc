#include "cli/sim_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/command_list.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/experiment/threads.h"
#include "terminal/command_line.h"

namespace tulle::cli {
namespace {

using terminal::add_older_name;
using terminal::from_to;
using terminal::refuse_given;
using terminal::refuse_others;

constexpr char tune_examples[] =
    "Examples:\n"
    "  tulle tune victim --variant pfc-dcqcn-paper --knobs dcqcn --knobs ecn --minimize "
    "fct_us.p99 -o results\n"
    "  tulle tune my.toml -k traffic.queue_pairs=1..16 --maximize goodput_gbps --limit "
    "'pauses<=0' -o results\n"
    "\n"
    "Defaults are in parentheses. The exit status is 1 if the best setting is no better than the\n"
    "scenario on the validation seeds.\n"
    "An interrupted or killed search resumes if you repeat the command.\n";

constexpr char sweep_examples[] =
    "Examples:\n"
    "  tulle sweep incast -k traffic.bytes=64KB,1MB -k seed=1..5 -o results\n"
    "                                                ten points, and the table of their results\n"
    "  tulle sweep my.toml -k fabric.path=flow,flowlet --variant ecmp -o results\n"
    "  tulle sweep my.toml --points points.toml -o results\n"
    "                                                a list of points, not all combinations\n"
    "\n"
    "Defaults are in parentheses. An interrupted or killed sweep resumes if you repeat the\n"
    "command. If you add values to a knob, only the new points are simulated.\n";

constexpr char sim_examples[] =
    "Examples:\n"
    "  tulle sim --list                              list the scenarios\n"
    "  tulle sim incast                              a scenario that comes with Tulle\n"
    "  tulle sim incast -o results --set traffic.bytes=4MB\n"
    "                                                the same with larger messages, in files\n"
    "  tulle sim my.toml --variant spray             one variant of your own scenario\n"
    "  tulle sim --gallery -o pages                  a page with pictures for each scenario\n"
    "  tulle sim --topology links.csv --flows flows.csv --fabric roce\n"
    "                                                flows and links from tables\n"
    "  mpirun -n 4 tulle sim my.toml                 four ranks of Open MPI or MPICH\n"
    "\n"
    "Defaults are in parentheses. Results depend only on the scenario and its seed. A message\n"
    "that fails is a valid result: the exit status is 0, and --json counts failed messages. With\n"
    "TULLE_MPI=none, each process that mpirun starts runs a separate simulation.\n";

constexpr char compare_examples[] =
    "Examples:\n"
    "  tulle compare --list                          list the fabrics and workloads\n"
    "  tulle compare --workload incast               all to one, on the default fabrics\n"
    "  tulle compare --workload all-to-all --hosts 128 --bytes 1MB --link-rate 400Gbps\n"
    "                                                a larger cluster\n"
    "  tulle compare --workload allreduce:256MiB --gpus 512\n"
    "                                                512 GPUs in servers of 8\n"
    "  tulle compare --workload step:llama-3-70b --gpus 64\n"
    "                                                a step of training a model\n"
    "  tulle compare --workload step:llama-3-8b --gpus 64 --storage 2\n"
    "                                                two steps, and a checkpoint between them\n"
    "  tulle compare --workload step:mixtral-8x7b --gpus 64\n"
    "                                                the same with a mixture of experts\n"
    "  tulle compare --workload serve:llama-3-70b --gpus 64\n"
    "                                                requests to a model\n"
    "  tulle compare --workload step.0.et --gpus 64  a trace, such as Chakra's\n"
    "  tulle compare --workload step:llama-3-8b --gpus 32 --workload allreduce --gpus 32 --alone\n"
    "                                                two jobs on one network, and each alone\n"
    "  tulle compare --workload my.toml --fabrics infiniband,roce-pfc -o results\n"
    "                                                a scenario's traffic on two fabrics\n"
    "  tulle compare --workload flows.csv --topology links.csv --fabrics all\n"
    "                                                the flows of a table on every fabric\n"
    "\n"
    "Defaults are in parentheses. Each fabric carries the same flows. The exit status is 1 if a\n"
    "fabric did not finish them.\n";

constexpr unsigned jobs_max = 1'024;
// Returns the number of processors that this process may use.
unsigned jobs_by_default() { return std::max(1u, std::thread::hardware_concurrency()); }

constexpr char set_help[] =
    "Override a key of the scenario, such as traffic.bytes=4MB or seed=7 (may be repeated)";

// Seeds are integers of TOML.
void add_seed(CLI::App& command, std::optional<std::uint64_t>& seed, std::string_view usual) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  command.add_option("--seed", seed, fmt::format("Seed of all random choices ({})", usual))
      ->type_name("N")
      ->check(from_to(std::int64_t{0}, most));
}

// Returns the command that has the same results, without what says only where they go.
std::string again(const CLI::App& command) {
  constexpr std::array<std::string_view, 4> without = {"--output", "--json", "--jobs", "--threads"};
  return terminal::repeated(command, without);
}

void add_scenario(CLI::App& command, std::string& scenario) {
  command.add_option("scenario", scenario, "A TOML file, or a name from tulle sim --list")
      ->type_name("SCENARIO")
      ->required();
}

void add_variant(CLI::App& command, std::string& variant,
                 const std::string& help = "Run only this variant of the scenario") {
  command.add_option("--variant", variant, help)->type_name("NAME");
}

void add_set(CLI::App& command, std::vector<std::string>& set, const std::string& help) {
  command.add_option("--set", set, help)->type_name("KEY=VALUE")->allow_extra_args(false);
}

void add_results_folder(CLI::App& command, std::string& folder) {
  command
      .add_option("--output,-o", folder,
                  "Write summary.json, flows.csv, links.csv and report.html to this folder")
      ->type_name("DIR");
}

void add_jobs(CLI::App& command, unsigned& jobs, const std::string& what, const std::string& more) {
  jobs = jobs_by_default();
  command
      .add_option("--jobs,-j", jobs,
                  what +
                      " to run at the same time (one for each processor); each needs separate "
                      "memory. " +
                      more)
      ->type_name("N")
      ->check(from_to(1u, jobs_max));
}

// The option for the threads of each variant, or of what else runs at the same time. If --jobs is
// not given, there are as many jobs as fill the processors.
void add_threads(CLI::App& command, unsigned& threads, unsigned& jobs, const std::string& what) {
  command
      .add_option("--threads", threads,
                  "Threads that simulate each " + what +
                      " together (1). The number does not change the results")
      ->type_name("N")
      ->check(from_to(1u, experiment::Threads::most));
  command.parse_complete_callback([&command, &threads, &jobs] {
    if (command.count("--jobs") == 0) jobs = std::max(1u, jobs_by_default() / threads);
    if (!ranks().are_several()) return;
    if (command.count("--jobs") > 0 && jobs > 1) {
      throw CLI::ValidationError("--jobs", "the ranks of mpirun simulate one after the other");
    }
    jobs = 1;
  });
}

// A scenario has its own network and traffic.
void refuse_tables_of_scenarios(const CLI::App& command) {
  const std::array<std::string, 4> of_tables = {"--topology", "--flows", "--fabric",
                                                "--congestion-control"};
  if (command.count("scenario") > 0) refuse_given(command, of_tables, "with SCENARIO");
}

// Flows are simulated by one thread.
void refuse_threads_of_flows(const CLI::App& command, const std::string& level) {
  constexpr auto with = "with --level flow";
  if (level == study::flow_level)
    refuse_given(command, std::array<std::string, 1>{"--threads"}, with);
}

void add_level(CLI::App& command, std::string& level, bool* is_unvalidated = nullptr) {
  command
      .add_option(
          "--level", level,
          "Simulate each packet, or flows as fluids that share links. The latter is hundreds "
          "of times as fast; docs/reference/simulator/flow-level.md has its limits (packet)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({study::packet_level, study::flow_level}));
  if (is_unvalidated == nullptr) return;
  command.add_flag("--unvalidated", *is_unvalidated,
                   "With --level flow: also simulate outside the range in which the flow level was "
                   "validated");
}

}  // namespace

void add_sim(CLI::App& app, int& status) {
  static SimOptions options;
  auto* command = add_simulator_command(app, "sim");
  command
      ->add_option("scenario", options.choice.scenarios,
                   "A TOML file, or a name from --list; --gallery takes several")
      ->type_name("SCENARIO");
  command->add_flag("--list", options.list, "List the scenarios that come with Tulle");
  auto* gallery = command->add_flag(
      "--gallery", options.gallery,
      "Run these scenarios, or all that come with Tulle, and write a page with a table and "
      "a picture for each of them to the folder of -o (docs/gallery)");
  add_results_folder(*command, options.output);
  add_variant(*command, options.choice.variant);
  add_set(*command, options.choice.set, set_help);
  add_seed(*command, options.choice.overrides.seed, "the scenario's");
  command->add_flag(
      "--alone", options.choice.overrides.is_alone,
      "Also simulate each of [[jobs]] alone and compare, as with report.alone = true");
  command->add_flag("--json", options.json, "Print the summary as JSON");
  command
      ->add_option("--topology", options.choice.topology,
                   "Read the links from a table: a,b,gbps,delay_ns")
      ->type_name("CSV");
  command
      ->add_option("--flows", options.choice.flows,
                   "Read the flows from a table: src,dst,bytes,start_ns")
      ->type_name("CSV");
  command
      ->add_option("--fabric", options.choice.fabric,
                   "Fabric for --topology: roce (with PFC) or infiniband")
      ->type_name("NAME")
      ->check(CLI::IsMember({"roce", "infiniband"}));
  command
      ->add_option("--congestion-control", options.choice.congestion_control,
                   "For --topology: none, or dcqcn-hpcc (DCQCN as in HPCC's simulator)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"none", "dcqcn-hpcc"}));
  command
      ->add_option("--capture", options.choice.capture,
                   "Write the frames of one node's links to a pcapng file, for Wireshark")
      ->type_name("FILE");
  command
      ->add_option("--capture-at", options.capture_at,
                   "Node to capture at: \"host 0\", \"leaf 3\" … (host 0; may be repeated)")
      ->type_name("NODE")
      ->allow_extra_args(false)
      ->needs("--capture");
  command
      ->add_option("--timings", options.timings,
                   "Write the times of set-up and run to this file, as JSON")
      ->type_name("FILE");
  add_level(*command, options.choice.level, &options.choice.unvalidated);
  add_jobs(*command, options.jobs, "Variants", "Unrelated to [[jobs]] of a scenario");
  add_threads(*command, options.threads, options.jobs, "variant");
  for (const char* other :
       {"--variant", "--json", "--topology", "--flows", "--fabric", "--congestion-control",
        "--capture", "--capture-at", "--timings", "--level", "--unvalidated", "--threads"}) {
    gallery->excludes(other);
  }
  command->footer(sim_examples);
  command->callback([command, &status] {
    refuse_others(*command, "--list");
    refuse_tables_of_scenarios(*command);
    refuse_threads_of_flows(*command, options.choice.level);
    options.again = again(*command);
    status = sim(options);
  });
}

void add_sweep(CLI::App& app, int& status) {
  static SweepOptions options;
  auto* command = add_simulator_command(app, "sweep");
  add_scenario(*command, options.scenario);
  auto* knobs = command
                    ->add_option("--knob,-k", options.knobs,
                                 "A key and its values: traffic.bytes=64KB,1MB or seed=1..10. "
                                 "Several knobs are simulated in all combinations")
                    ->type_name("KEY=VALUES")
                    ->allow_extra_args(false);
  command
      ->add_option("--points", options.points,
                   "Instead of knobs, a TOML file with a list [[point]], each with keys and values")
      ->type_name("FILE")
      ->excludes(knobs);
  command
      ->add_option("--output,-o", options.output,
                   "Folder for sweep.csv, sweep.json, report.html and a file for each point. "
                   "Points that it already has are not simulated again")
      ->type_name("DIR")
      ->required();
  add_variant(*command, options.variant);
  add_set(*command, options.set, "Override a key at all points: traffic.bytes=4MB");
  command->add_flag("--json", options.json, "Print the results as JSON");
  add_level(*command, options.level);
  add_jobs(*command, options.jobs, "Points", "Each point is a separate process");
  command->footer(sweep_examples);
  command->callback([command, &status] {
    options.again = again(*command);
    status = sweep(options);
  });
}

void add_tune(CLI::App& app, int& status) {
  static TuneOptions options;
  auto* command = add_simulator_command(app, "tune");
  add_scenario(*command, options.scenario);
  command
      ->add_option("--knobs", options.knob_files,
                   "Set of keys to tune, with ranges: dcqcn, ecn, pfc, routing, queue-pairs, "
                   "collective, or a file (may be repeated)")
      ->type_name("KNOBS|FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--knob,-k", options.knobs,
                   "Key to tune, with a range or a list of values: fabric.ecn.kmin=10KB..4MB "
                   "or fabric.path=flow,flowlet (may be repeated)")
      ->type_name("KEY=RANGE")
      ->allow_extra_args(false);
  auto* minimize = command
                       ->add_option("--minimize", options.minimize,
                                    "Figure to minimize, by its name in summary.json: fct_us.p99, "
                                    "slowdown.p99, traffic.NAME.fct_us.max")
                       ->type_name("FIGURE");
  command->add_option("--maximize", options.maximize, "Figure to maximize, such as busbw_gbytes")
      ->type_name("FIGURE")
      ->excludes(minimize);
  command
      ->add_option("--limit", options.limits,
                   "Limit on a figure, which a setting must keep: pauses<=0 (may be repeated)")
      ->type_name("FIGURE<=NUMBER")
      ->allow_extra_args(false);
  add_variant(*command, options.variant, "Variant of the scenario to tune");
  add_set(*command, options.set, "Override a key in all simulations: traffic.bytes=4MB");
  command->add_option("--seeds", options.seeds, "Seeds to search on (1..2)")->type_name("SEEDS");
  command
      ->add_option("--validation-seeds", options.validation_seeds,
                   "Other seeds, on which to measure the gain (101..105)")
      ->type_name("SEEDS");
  add_older_name(*command, "--least", "--minimize", options.minimize);
  add_older_name(*command, "--most", "--maximize", options.maximize);
  add_older_name(*command, "--held-back", "--validation-seeds", options.validation_seeds);
  command->add_option("--budget", options.budget, "Settings to try, each on all of --seeds (100)")
      ->type_name("N");
  command
      ->add_option("--output,-o", options.output,
                   "Folder for tuned.toml, evaluations.csv, tune.json, report.html, and device "
                   "settings: sonic.json and adapter.sh")
      ->type_name("DIR")
      ->required();
  command->add_flag("--json", options.json, "Print the result as JSON");
  add_level(*command, options.level);
  add_jobs(*command, options.jobs, "Simulations", "Each is a separate process");
  command->footer(tune_examples);
  command->callback([command, &status] {
    options.again = again(*command);
    status = tune(options);
  });
}

namespace {

// Adds the options that say what the hosts do. Returns --workload.
CLI::Option* add_workload_options(CLI::App* command, CompareOptions& options) {
  scenario::WorkloadOptions& workload = options.choice.workload;
  auto* name = command->add_option(
      "--workload", options.choice.workloads,
      "A name from --list; a collective and its size, such as allreduce:256MiB; a mixture of "
      "experts, such as moe:dispatch; a training step, step:MODEL; requests to a model, "
      "serve:MODEL; a Chakra, GOAL, SimAI or htsim trace; a scenario FILE.toml, of which "
      "[topology], [traffic], [[jobs]] and [[fault]] are used; or a table of flows FILE.csv. "
      "Repeat --workload and --gpus for several jobs at the same time");
  name->type_name("NAME|FILE")->allow_extra_args(false);
  command
      ->add_option("--fabrics", options.choice.fabrics,
                   "Fabrics from --list, such as infiniband,tcp; \"all\"; or your own files, "
                   "FILE.toml (those that --list marks with *)")
      ->type_name("NAMES");
  command->add_option("--hosts", workload.hosts, "Number of hosts (64)")->type_name("N");
  command
      ->add_option("--gpus", options.choice.gpus,
                   "Number of GPUs of a collective, step or trace (64); repeat it for several jobs")
      ->type_name("N")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--placement", workload.placement,
          "How several jobs get servers: packed, one job after the other; spread, evenly over "
          "the free servers; or random (packed)")
      ->type_name("PLACEMENT")
      ->check(CLI::IsMember({"packed", "spread", "random"}));
  command->add_flag("--alone", workload.is_alone,
                    "Also simulate each of several jobs alone and compare");
  command
      ->add_option(
          "--storage", workload.storage,
          "Number of servers that store checkpoints of training, in addition to those of --gpus; "
          "see also --set traffic.checkpoint.KEY=VALUE")
      ->type_name("N")
      ->check(from_to(1, 65'536));
  command
      ->add_option("--servers", workload.servers,
                   "Servers of the GPUs: a name from --list, or FILE.toml (dgx-h100)")
      ->type_name("SERVER|FILE");
  command
      ->add_option(
          "--algorithm", workload.algorithm,
          "Algorithm for a collective: ring, tree, hierarchical, halving-doubling, direct, "
          "in-network, nvls; or how tokens reach their experts: direct, by-server")
      ->type_name("ALGORITHM");
  command
      ->add_option("--protocol", workload.protocol,
                   "NCCL protocol for a collective: simple, ll, ll128, or automatic, the one with "
                   "the shortest estimated time (simple)")
      ->type_name("simple|ll|ll128|automatic");
  command
      ->add_option("--bytes", workload.bytes,
                   "Size of each message, or bytes for each host, such as 256KB")
      ->type_name("SIZE");
  return name;
}

// Adds the options that say what the network is.
void add_network_options(CLI::App* command, scenario::WorkloadOptions& workload) {
  command
      ->add_option(
          "--link-rate", workload.link_rate,
          "Rate of all links; with --planes, of each adapter (200Gbps; with GPUs, 400Gbps)")
      ->type_name("RATE");
  command
      ->add_option("--prices", workload.prices,
                   "Add cost and power from a price list: FILE.toml, or one that comes with Tulle, "
                   "such as example")
      ->type_name("PRICES|FILE");
  add_seed(*command, workload.seed, "1");
  command
      ->add_option("--topology", workload.topology,
                   "Network of a job's servers: rail-optimised (default), or rail-only, with a "
                   "separate network for each rail; or the links for a table of flows: "
                   "a,b,gbps,delay_ns")
      ->type_name("KIND|CSV");
  command
      ->add_option("--planes", workload.planes,
                   "Split each adapter's rate over this many networks, 1 to 16 (1)")
      ->type_name("N");
}

}  // namespace

std::string as_option(std::string_view member) {
  std::string option = "--" + std::string(member);
  std::ranges::replace(option, '_', '-');
  return option;
}

void add_compare(CLI::App& app, int& status) {
  static CompareOptions options;
  scenario::WorkloadOptions& workload = options.choice.workload;
  auto* command = add_simulator_command(app, "compare");
  auto* list = command->add_flag("--list", options.list, "List the fabrics and workloads");
  auto* name = add_workload_options(command, options);
  add_network_options(command, workload);
  add_set(*command, workload.set,
          "Override a key of the scenario on every fabric, as for tulle sim");
  command->add_flag("--json", options.json, "Print the summary as JSON");
  add_results_folder(*command, options.output);
  add_level(*command, options.level, &options.unvalidated);
  add_jobs(*command, options.jobs, "Fabrics",
           "For jobs that share a network, repeat --workload instead");
  add_threads(*command, options.threads, options.jobs, "fabric");
  command->footer(compare_examples);
  command->callback([command, list, name, &status] {
    refuse_others(*command, "--list");
    refuse_threads_of_flows(*command, options.level);
    options.again = again(*command);
    if (list->count() == 0 && name->count() == 0) throw CLI::RequiredError("--workload");
    status = compare(options);
  });
}

}  // namespace tulle::cli
