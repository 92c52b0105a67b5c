#pragma once

// Settings from the environment variables that `tulle run` sets for the program it starts.

#include <cstdint>
#include <string>
#include <string_view>

#include "live/device_choice.h"
#include "rdma/transport/recovery.h"

namespace tulle::live {

// A caller that looks for longer than this keeps a program from its other descriptors.
inline constexpr std::uint32_t busy_poll_max = 1'000;  // microseconds

struct Settings {
  std::string agent = "@tulle";  // TULLE_AGENT: abstract "@name", or a path
  // TULLE_DEVICE, TULLE_INTERFACE, TULLE_ROCE=v1 or both, and TULLE_GID_ORDER=link-local. A device
  // that is like an adapter has that order too.
  DeviceChoice device{.name = "tulle0", .interfaces = {}};
  std::string faults;      // TULLE_FAULTS; empty means none
  std::string executable;  // TULLE_EXECUTABLE: the `tulle` that starts a host agent
  // TULLE_SECURE, now or as the program began: file of keys to seal datagrams with; empty: plain
  // packets
  std::string secure;
  std::string agent_log;      // TULLE_AGENT_LOG: log file of a detached agent; empty: none
  std::uint16_t port = 4791;  // TULLE_PORT: another UDP port, for tests
  bool offload = true;        // TULLE_OFFLOAD=off switches segmentation offload off
  bool direct = true;         // TULLE_DIRECT=off: packets even between processes of one host
  // TULLE_BUSY_POLL: how long a caller looks for packets before it sleeps; 0: not at all,
  // and more than `busy_poll_max` counts as that
  std::uint32_t busy_poll_microseconds = 50;
  bool explain = false;       // TULLE_EXPLAIN=1: say on standard error why a verb is refused
  bool strict = false;        // TULLE_STRICT=1: as strict as hardware (docs/strict.md)
  std::string like;           // TULLE_LIKE: an adapter with these limits (live/likeness.h)
  bool share_memory = false;  // TULLE_SHARE_MEMORY=on: registered memory moves to shared files
  // TULLE_RECOVERY=selective-repeat sets the other kind. Both ends of a connection should be set
  // alike (decision 006).
  transport::Recovery recovery = transport::Recovery::go_back_n;
  // The program runs on a host of a software fabric: TULLE_FABRIC is the socket of the fabric's
  // process, and TULLE_HOST the host's name. Empty: it runs on this machine's own network.
  std::string fabric;
  std::string host;
  int idle_exit_seconds = 10;  // TULLE_IDLE_EXIT: a host agent without clients leaves after this
};

// Returns what is wrong with these variables, in one line, or nothing. `tulle` refuses to begin
// with such settings. Programs that are started otherwise go by the defaults in their place.
std::string wrong_setting();

// Any other text than "v1" and "both" is RoCE v2.
RoceVersions roce_versions(std::string_view text);

Settings read_settings();

}  // namespace tulle::live
