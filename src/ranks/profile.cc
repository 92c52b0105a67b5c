#include "ranks/profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <ctime>

namespace tulle::ranks {
namespace {

std::string rate(double bytes_per_second) {
  return fmt::format("\"{:.3f}Gbps\"", bytes_per_second * 8 * 1e-9);
}
std::string span(double seconds) { return fmt::format("\"{:.0f}ns\"", seconds * 1e9); }

std::string heading(const Calibration& calibration) {
  utsname machine{};
  uname(&machine);
  std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format(
      "# This profile is one machine whose processes are the ranks of a collective. `tulle "
      "calibrate`\n"
      "# measured it on {:%Y-%m-%d at %H:%M} UTC: {} {}, {}, {} cores. Simulate it with\n"
      "#   tulle compare --workload allreduce:64MiB --gpus {} --servers THIS-FILE.toml\n"
      "# Each time is the median of five rounds, and in each the median of three iterations.\n"
      "title = \"{} processes on {} cores, calibrated\"\n",
      utc, machine.sysname, machine.release, machine.machine, calibration.cores, calibration.ranks,
      calibration.ranks, calibration.cores);
}

std::string table(const Calibration& calibration) {
  std::string text =
      "\n# What a message takes: alone from one process to another, and the processor time for it\n"
      "# while each of all processes sends to the next one, and the receiver stores or adds.\n"
      "#     bytes    alone us     GB/s   stored us    added us  cores busy\n";
  for (const auto& each : calibration.sizes) {
    text += fmt::format("# {:>9} {:>11.1f} {:>8.2f} {:>11.1f} {:>11.1f} {:>11.2f}\n", each.bytes,
                        each.alone * 1e6, static_cast<double>(each.bytes) / each.alone * 1e-9,
                        each.stored * 1e6, each.added * 1e6, each.busy);
  }
  return text;
}

}  // namespace

std::string profile_of(const Calibration& calibration) {
  return heading(calibration) + table(calibration) +
         fmt::format(
             "\n# The processes represent the GPUs of one server. It has an adapter, which nothing "
             "uses.\n"
             "gpus = {}\nadapters = 1\n\n"
             "# The processors that the processes may use (sched_getaffinity(2)).\n"
             "cores = {}\n\n"
             "# What a core moves while all cores work: the slope of a line through \"stored\", "
             "fitted by\n"
             "# least squares of the relative errors. The processes had {:.0f} % of the cores' "
             "time while all\n"
             "# sent. Other work had the rest, or nobody; this and the next two numbers count it "
             "in.\n"
             "scale_up_rate = {}\n\n"
             "# Half of that line at zero bytes: the time of a core at each end of a message.\n"
             "message_work = {}\n\n"
             "# What a core adds: the slope of such a line through \"added\", less the one through "
             "\"stored\".\n"
             "reduce_rate = {}\n\n"
             "# A message of 8 bytes goes round the processes, which sleep meanwhile: {:.1f} us a "
             "hop. This is\n"
             "# what is left without the work at both ends.\n"
             "scale_up_latency = {}\n",
             calibration.ranks, calibration.cores, calibration.share * 100,
             rate(calibration.bytes_per_second), span(calibration.message_work),
             rate(calibration.added_bytes_per_second), calibration.hop * 1e6,
             span(calibration.latency));
}

}  // namespace tulle::ranks
