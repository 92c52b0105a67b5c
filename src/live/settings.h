#pragma once

// What the environment says, which `tulle run` sets for the program it starts. Read once a process.

#include <cstdint>
#include <string>

namespace tulle::live {

struct Settings {
  std::string agent = "@tulle";   // TULLE_AGENT: abstract "@name", or a path
  std::string device = "tulle0";  // TULLE_DEVICE
  std::string interfaces;  // TULLE_INTERFACE: names with commas between; empty: the agent chooses
  std::string faults;      // TULLE_FAULTS; empty: none
  std::string executable;  // TULLE_EXECUTABLE: the `tulle` to start an agent with
  std::string agent_log;   // TULLE_AGENT_LOG: where a detached agent writes; empty: nowhere
  std::uint16_t port = 4791;   // TULLE_PORT: another UDP port, for tests
  bool offload = true;         // TULLE_OFFLOAD=off: no segmentation offload
  bool direct = true;          // TULLE_DIRECT=off: packets even between processes of one host
  int idle_exit_seconds = 10;  // TULLE_IDLE_EXIT: an agent without clients leaves after this
};

Settings read_settings();

}  // namespace tulle::live
