#include "cli/bench_commands.h"

#include "cli/command_line.h"
#include "cli/simulations.h"
#include "ranks/plan.h"

namespace tulle::cli {
namespace {

constexpr char bench_examples[] =
    "Examples:\n"
    "  tulle bench allreduce:64MiB                   a sum among four processes of this host\n"
    "  tulle bench allreduce:64MiB --algorithm tree --ranks 8 --per-server 1\n"
    "                                                by trees among eight\n"
    "  tulle run --no-direct -- tulle bench alltoall:1MiB\n"
    "                                                with an option of tulle run\n"
    "  tulle bench allgather:1MiB --ranks 2 --rank 0 --meet 192.0.2.1:7000\n"
    "  tulle bench allgather:1MiB --ranks 2 --rank 1 --meet 192.0.2.1:7000\n"
    "                                                a rank on each of two hosts\n"
    "\n"
    "The processes do what `tulle compare --workload` simulates, message for message. They check\n"
    "each value of each iteration, outside of the time. The columns are those of nccl-tests, and\n"
    "GB/s are 10^9 bytes a second. The size is rounded up to equal parts for all ranks. The exit\n"
    "status is 1 if a value was wrong or a rank failed. If TULLE_BENCH_TOKEN is set, ranks that\n"
    "meet take only those that have the same.\n";
constexpr char calibrate_examples[] =
    "Examples:\n"
    "  tulle calibrate -o here.toml                  measure this machine\n"
    "  tulle compare --workload allreduce:64MiB --gpus 4 --servers here.toml\n"
    "                                                foretell what `tulle bench` will measure\n"
    "\n"
    "The measurements take half a minute. They are of messages and sums alone; no collective is\n"
    "measured. The machine should have no other work meanwhile.\n";

void add_timeout(CLI::App& command, double& seconds) {
  command.add_option("--timeout", seconds, "End the run if a rank says nothing for this long (10)")
      ->type_name("SECONDS")
      ->check(from_to(1.0, 3'600.0));
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  static BenchOptions options;
  auto* command = add_simulator_command(app, "bench");
  command
      ->add_option("collective", options.collective,
                   "A collective with its bytes: allreduce:64MiB, reducescatter:…, allgather:…, "
                   "broadcast:…, alltoall:…")
      ->type_name("NAME:SIZE")
      ->required();
  command->add_option("--ranks,-n", options.ranks, "Number of processes (4)")->type_name("N");
  command
      ->add_option("--per-server", options.per_server,
                   "Ranks that trees and hierarchies take for one server (all)")
      ->type_name("N");
  command
      ->add_option("--algorithm", options.algorithm,
                   "Algorithm: ring, tree, hierarchical, halving-doubling, direct")
      ->type_name("ALGORITHM");
  command->add_option("--channels", options.channels, "Number of channels (1)")
      ->type_name("N")
      ->check(from_to(1, 16));
  command
      ->add_option("--chunk", options.chunk,
                   "A tree or a chain passes on so much at a time (512KiB)")
      ->type_name("SIZE");
  command->add_option("--iterations", options.iterations, "Iterations to measure (20)")
      ->type_name("N")
      ->check(from_to(1, 1'000'000));
  command->add_option("--warm-up", options.warm_up, "Iterations before these (5)")
      ->type_name("N")
      ->check(from_to(0, 1'000'000));
  add_timeout(*command, options.timeout_seconds);
  auto* rank = command->add_option("--rank", options.rank, "Be this rank alone; needs --meet");
  rank->type_name("N");
  auto* meet =
      command->add_option("--meet", options.meet, "Where all ranks meet; rank 0 listens there");
  meet->type_name("HOST:PORT");
  rank->needs(meet);
  meet->needs(rank);
  command->add_flag("--json", options.json, "Print JSON");
  command->footer(bench_examples);
  command->callback([&status] { status = bench(options); });
}

void add_calibrate(CLI::App& app, int& status) {
  static CalibrateOptions options;
  auto* command = add_simulator_command(app, "calibrate");
  command
      ->add_option("--output,-o", options.output,
                   "Write the profile of the machine to this file, and not to standard output")
      ->type_name("FILE");
  command->add_option("--ranks,-n", options.ranks, "Processes that share the machine (4)")
      ->type_name("N")
      ->check(from_to(2u, ranks::ranks_max));
  add_timeout(*command, options.timeout_seconds);
  command->footer(calibrate_examples);
  command->callback([&status] { status = calibrate(options); });
}

}  // namespace tulle::cli
