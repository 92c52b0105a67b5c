#pragma once

// The host agent. Each network namespace has one, since the agent owns the UDP port. It hands out
// devices, slots in the socket group and queue pair numbers, and reports how processes fare. Their
// data never passes through it. The first program that finds no agent starts one; it leaves after
// some time without clients.

#include <string>

#include "live/settings.h"

namespace tulle::live {

struct AgentOptions {
  Settings settings;
  bool foreground = false;  // stay on the terminal and report progress
  // Set by a program that starts the agent. The agent detaches itself and writes to standard output
  // either "ready" or one line with the reason why it failed.
  bool on_demand = false;
  bool idle_exit = true;
};

// Runs until it receives SIGTERM or SIGINT, or is idle. Returns the exit status.
int run_agent(const AgentOptions& options);

}  // namespace tulle::live
