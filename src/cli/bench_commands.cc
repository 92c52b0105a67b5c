#include "cli/bench_commands.h"

#include "cli/command_list.h"
#include "cli/simulations.h"
#include "ranks/plan.h"
#include "terminal/command_line.h"

namespace tulle::cli {
namespace {

using terminal::from_to;

constexpr char bench_examples[] =
    "Examples:\n"
    "  tulle bench allreduce:64MiB                   a sum over four processes on this host\n"
    "  tulle bench allreduce:64MiB --algorithm tree --ranks 8 --per-server 1\n"
    "                                                by trees, among eight processes\n"
    "  tulle run --no-direct -- tulle bench alltoall:1MiB\n"
    "                                                with an option of tulle run\n"
    "  tulle bench allgather:1MiB --ranks 2 --rank 0 --meet 192.0.2.1:7000\n"
    "  tulle bench allgather:1MiB --ranks 2 --rank 1 --meet 192.0.2.1:7000\n"
    "                                                a rank on each of two hosts\n"
    "\n"
    "Defaults are in parentheses. The processes exchange the same messages that `tulle compare\n"
    "--workload` simulates. They check each value of each iteration, outside the measured time.\n"
    "The columns are those of nccl-tests; 1 GB/s is 10^9 bytes a second. The size is rounded up\n"
    "so that all ranks have equal parts. The exit status is 1 if a value was wrong or a rank\n"
    "failed. If TULLE_BENCH_TOKEN is set, ranks accept only other ranks with the same token.\n";
constexpr char calibrate_examples[] =
    "Examples:\n"
    "  tulle calibrate -o here.toml                  profile this machine\n"
    "  tulle compare --workload allreduce:64MiB --gpus 4 --servers here.toml\n"
    "                                                predict what `tulle bench` will measure\n"
    "\n"
    "Defaults are in parentheses. This takes half a minute. It measures only messages and sums,\n"
    "not collectives. The machine should be otherwise idle.\n";

void add_timeout(CLI::App& command, double& seconds) {
  command.add_option("--timeout", seconds, "End the run if a rank is silent for this long (10)")
      ->type_name("SECONDS")
      ->check(from_to(1.0, 3'600.0));
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  static BenchOptions options;
  auto* command = add_simulator_command(app, "bench");
  command
      ->add_option("collective", options.collective,
                   "A collective and its size: allreduce:64MiB, reducescatter:…, allgather:…, "
                   "broadcast:…, alltoall:…")
      ->type_name("NAME:SIZE")
      ->required();
  command->add_option("--ranks,-n", options.ranks, "Number of processes (4)")->type_name("N");
  command
      ->add_option("--per-server", options.per_server,
                   "Number of ranks that trees and hierarchies treat as one server (all)")
      ->type_name("N");
  command
      ->add_option("--algorithm", options.algorithm,
                   "Algorithm: ring, tree, hierarchical, halving-doubling, direct (the usual one "
                   "for the collective)")
      ->type_name("ALGORITHM");
  command->add_option("--channels", options.channels, "Number of channels (1)")
      ->type_name("N")
      ->check(from_to(1, 16));
  command
      ->add_option("--chunk", options.chunk,
                   "Size of the pieces that a tree or chain forwards (512KiB)")
      ->type_name("SIZE");
  command->add_option("--iterations", options.iterations, "Measured iterations (20)")
      ->type_name("N")
      ->check(from_to(1, 1'000'000));
  command->add_option("--warm-up", options.warm_up, "Unmeasured iterations before them (5)")
      ->type_name("N")
      ->check(from_to(0, 1'000'000));
  add_timeout(*command, options.timeout_seconds);
  auto* rank = command->add_option("--rank", options.rank, "Run only this rank; needs --meet");
  rank->type_name("N");
  auto* meet = command->add_option("--meet", options.meet,
                                   "HOST:PORT at which rank 0 listens for the other ranks");
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
                   "Write the profile to this file instead of standard output")
      ->type_name("FILE");
  command->add_option("--ranks,-n", options.ranks, "Processes that share the machine (4)")
      ->type_name("N")
      ->check(from_to(2u, ranks::ranks_max));
  add_timeout(*command, options.timeout_seconds);
  command->footer(calibrate_examples);
  command->callback([&status] { status = calibrate(options); });
}

}  // namespace tulle::cli
