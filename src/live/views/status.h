#pragma once

// A host agent and the programs that it serves.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/message/protocol.h"
#include "live/settings.h"

namespace tulle::live {

struct HostStatus {
  AgentStatus agent;
  std::vector<ProcessStatus> processes;
};

// Asks the host agent, and starts none. Returns nothing if none is running: no program uses the
// network. `command` names the caller to the agent.
Result<std::optional<HostStatus>> ask_status(const Settings& settings, const std::string& command);

// Returns tables for people, with counters. `address` is that at which no agent may be running.
std::string status_text(const std::optional<HostStatus>& status, const std::string& address);
// Returns the same as JSON, with all counters. Without an agent, "agent" is null.
std::string status_json(const std::optional<HostStatus>& status);

}  // namespace tulle::live
