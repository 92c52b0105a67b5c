#pragma once

// The captures that users run. Each user may run one, of the user's own processes. Root's is of all
// processes, and takes them over while it runs.

#include <string>
#include <utility>

#include "live/agent/session.h"
#include "live/agent/session_table.h"
#include "live/agent/user_descriptors.h"
#include "live/path/packets/capture_tap.h"

namespace tulle::live {

class AgentCaptures {
 public:
  // What it is given must outlive it. `device` names what the agent's own traffic is of.
  AgentCaptures(const SessionTable& sessions, const UserDescriptors& descriptors,
                std::string device)
      : sessions_(sessions), descriptors_(descriptors), device_(std::move(device)) {}

  // Begins a capture of all processes that its user may capture. `connections` is the tap of the
  // agent's own traffic if there is any, and null if not.
  void begin(Session& capture, CaptureTap* connections);
  // Ends a capture. Processes that root's capture had taken over go back to their user's.
  void end(Session& capture, CaptureTap* connections);
  // A process is there: the capture that there is for it gets its frames.
  void join(Session& process);
  // A program has opened a channel: the capture that there is gets the agent's own traffic, which
  // is connections being made, and not any process's data.
  void join_connections(CaptureTap& connections);

 private:
  void join(Session& capture, Session& process);
  void capture_connections(Session& capture, CaptureTap& connections);

  const SessionTable& sessions_;
  const UserDescriptors& descriptors_;
  std::string device_;
  const Session* connections_captured_by_ = nullptr;
};

}  // namespace tulle::live
