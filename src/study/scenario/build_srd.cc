// Reads the part of [host] about the scalable reliable datagram.

#include <utility>

#include "study/scenario/build.h"

namespace tulle::scenario {

void read_srd(TableReader table, Setup& setup) {
  transport::srd::Settings& srd = setup.network.host.srd;
  srd.paths =
      static_cast<std::uint32_t>(table.integer("paths", srd.paths, 1, transport::srd::paths_max));
  srd.initial_packets = static_cast<std::uint32_t>(
      table.integer("initial_packets", srd.initial_packets, 1, transport::srd::window_packets));
  srd.target_delay = table.time("target_delay", srd.target_delay);
  srd.timeout_margin = table.time("timeout_margin", srd.timeout_margin);
  srd.timeout_first = table.time("timeout_first", srd.timeout_first);
  srd.give_up = table.time("give_up", srd.give_up);
  for (const auto& [key, time] : {std::pair{"timeout_margin", srd.timeout_margin},
                                  {"timeout_first", srd.timeout_first},
                                  {"give_up", srd.give_up}}) {
    if (time <= Time::zero()) table.wrong(key, "must be more than zero");
  }
  table.finish();
}

}  // namespace tulle::scenario
