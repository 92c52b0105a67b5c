#pragma once

#include <cstdint>

#include "base/time.h"

namespace tulle::sim {

// The programs on the hosts of a network. Each function is called in the turn of the host that it
// names, and may act on that host alone. Hosts of different parts have their turns at the same
// time, on several threads or in several processes.
class Application {
 public:
  virtual ~Application() = default;
  // A host has new completions.
  virtual void handle_completions(Time now, std::uint32_t host) = 0;
  // The time of an alarm has come (Network::alarm()).
  virtual void handle_alarm(Time now, std::uint32_t host, std::uint32_t token) = 0;
  // A request to this host is to be met (Network::request()). The token and the note are those of
  // the host that asks, and all that it says: the two hosts may be in different processes.
  virtual void meet_request(std::uint32_t host, std::uint32_t token, std::uint32_t note) = 0;
  // Another process sends an alarm or a request for a host of this one. Return false if no process
  // of this application would, and the alarm or the request could not be handled.
  virtual bool accepts_alarm(std::uint32_t host, std::uint32_t token) const = 0;
  virtual bool accepts_request(std::uint32_t host, std::uint32_t token,
                               std::uint32_t note) const = 0;
  // Called between rounds, now and then, while no host has its turn. Returns false to stop, in all
  // processes.
  virtual bool goes_on() = 0;
};

}  // namespace tulle::sim
