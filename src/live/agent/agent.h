#pragma once

// The host agent: one a network namespace, like the UDP port it owns. It hands out devices, places
// in the group of sockets and queue pair numbers, and tells how processes fare; their data never
// passes through it. Started by the first program that finds none, it leaves when it has had no
// client for a while.

#include <string>

#include "live/settings.h"

namespace tulle::live {

struct AgentOptions {
  Settings settings;
  bool foreground = false;  // stay on the terminal and say what happens
  // Started by a program: detaches itself, and says on standard output either "ready" or, in one
  // line, why not.
  bool on_demand = false;
  bool idle_exit = true;
};

// Runs until told to stop (SIGTERM, SIGINT) or idle; returns the exit status.
int run_agent(const AgentOptions& options);

}  // namespace tulle::live
