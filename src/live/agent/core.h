#pragma once

// The host agent: the service that the session of each connection gets.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/agent/agent_captures.h"
#include "live/agent/ip_network.h"
#include "live/agent/known_devices.h"
#include "live/agent/port_slots.h"
#include "live/agent/session.h"
#include "live/agent/session_table.h"
#include "live/agent/user_descriptors.h"
#include "live/connections/connection_service.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/settings.h"
#include "os/event_loop.h"

namespace tulle::live {

class AgentCore {
 public:
  explicit AgentCore(const Settings& settings);

  // Serves until the agent is idle (if idle_exit), is stopped, or fails.
  Result<void> serve(UniqueFd listener, bool idle_exit, void (*ready)());

 private:
  // agent.cc: the loop
  Result<void> turn();
  Time time_to_wait() const;
  void accept_all();
  void watch(int fd, Session* session);
  void handle_or_end(Session& session);
  void handle(Session& session);
  void close_finished();
  bool is_idle_too_long() const;
  std::array<std::uint64_t, counter_count> counters() const;
  void refuse_all(const std::string& reason);
  void leave();

  void start_connections();
  void progress_connections();

  // sessions.cc: the messages
  void handle_message(Session& session, ReceivedMessage& message);
  void greet(Session& session);
  void refuse(Session& session, const std::string& reason);
  std::uint16_t seal_key_id();
  [[nodiscard]] bool seals_like(Session& session, const KeyProof& programs);
  void list(Session& session);
  void answer_attribute(Session& session);
  void open(Session& session);
  void rejoin(Session& session, const Rejoin& rejoin, std::vector<UniqueFd>& fds);
  void find_peer(Session& session);
  void change_membership(Session& session, const Membership& asked);
  void forward();
  HeldBy holder_of(const DeviceChoice& key, std::size_t index) const;
  void ask_for_status(Session& session);
  void answer_status(Session& session);
  void start_capture(Session& session);
  void open_channel(Session& session);
  void execute(Session& session, std::span<const std::byte> bytes);
  CaptureTap* tap() { return network_ != nullptr ? &network_->tap() : nullptr; }
  void end(Session& session);

  Settings settings_;
  UserDescriptors descriptors_{sessions_};  // before all that has descriptors
  Clock::time_point started_ = Clock::now();
  Clock::time_point idle_since_ = Clock::now();
  PortSlots slots_;
  WatchedListener listener_;
  EventLoop loop_;
  UniqueFd signals_;
  bool stopped_ = false;
  bool exits_when_idle_ = false;
  KnownDevices devices_;
  bool has_unforwarded_ = false;        // datagrams may wait in a slot with a relay
  Clock::time_point publish_asked_at_;  // when the processes were last asked to publish counters
  std::unique_ptr<Seal> seal_;          // null: datagrams are plain
  std::unique_ptr<IpNetwork> network_;  // of the connections
  std::unique_ptr<ConnectionService> connections_;
  std::vector<ConnectionService::ChannelNumber> blocked_channels_;
  SessionTable sessions_;
  AgentCaptures captures_{sessions_, descriptors_, settings_.device.name};
  // Final counters of processes that have gone.
  std::array<std::uint64_t, counter_count> departed_{};
};

}  // namespace tulle::live
