#pragma once

// The parts of the host agent: one session for each connection, and the service that each session
// gets.

#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "live/agent/ip_network.h"
#include "live/agent/known_devices.h"
#include "live/connections/connection_service.h"
#include "live/message/closer.h"
#include "live/message/counters_page.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/path/packets/relay.h"
#include "live/path/packets/socket_group.h"
#include "live/settings.h"
#include "os/event_loop.h"

namespace tulle::live {

using Clock = std::chrono::steady_clock;

struct Session {
  enum class State : std::uint8_t {
    greeting,  // no message received yet
    held,      // said hello before the agent could serve it
    process,   // owns a slot
    status,    // answered a moment after the processes were asked to publish
    capture,
    channel,  // a program's channel to the connection manager
    closing,
  };
  State state = State::greeting;
  UniqueFd connection;
  std::size_t descriptors_unread = 0;  // at most, of those sent to a user who is limited
  UniqueFd process;                    // pidfd, since a forked child may keep the connection open
  Peer peer;
  Hello hello;
  // Set in the state `process`.
  std::uint32_t slot = agent_slot;
  CountersPage counters;
  // A process of another user than the agent's has a relay, and the agent holds its slot's lock.
  std::optional<Relay> relay;
  UniqueFd lock;
  const Session* captured_by = nullptr;  // state `process`: the capture that gets its frames
  ConnectionService::ChannelNumber channel = 0;
  // State `process`: what it exposes to peers on this host (live/path/memory).
  UniqueFd table;
  UniqueFd doorbell;
  // State `process`: the version of its device that the process was told of, the version that it
  // has taken note of, and the withdrawn addresses that it still used then.
  std::uint32_t version_told = 0;
  std::uint32_t version_noted = 0;
  std::bitset<gids_max> gids_held;
  // State `greeting`: the latest time for a hello. State `status`: the time to answer.
  Clock::time_point due;
};

class AgentCore {
 public:
  explicit AgentCore(const Settings& settings);

  // Binds the port. If the port is taken, the agent recovers: it waits for a process that survived
  // an earlier agent to bring the descriptor store. It also tries again now and then, because an
  // agent that exits, or was killed, releases its address a moment before its port.
  Result<void> open_port();
  bool is_recovering() const { return recovering_until_.has_value(); }

  // Serves until the agent is idle (if idle_exit), is stopped, or fails.
  Result<void> serve(UniqueFd listener, bool idle_exit, void (*ready)());

 private:
  // agent.cc: the loop
  Result<void> turn();
  Time time_to_wait() const;
  void accept_all();
  bool may_connect(uid_t user) const;
  void watch(int fd, Session* session);
  void handle_or_end(Session& session);
  void handle(Session& session);
  void discard(const Session& session, UniqueFd fd);
  void discard(const Session& session, std::vector<UniqueFd> fds);
  void close_finished();
  void close_connection(Session& session);
  void close_read();
  void close_shut(uid_t user, UniqueFd connection);
  bool is_idle_too_long() const;
  std::array<std::uint64_t, counter_count> counters() const;
  void refuse_all(const std::string& reason);

  void start_connections();
  void progress_connections();

  // sessions.cc: the messages
  bool has_room_for_descriptors(const Session& session, std::size_t count);
  Result<void> send_descriptors(Session& session, std::span<const std::byte> bytes,
                                std::span<const int> fds);
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
  Result<void> has_place_for(uid_t user) const;
  bool may_choose(const Session& session) const;
  void note_held(Session& session, const GidsHeld& held);
  void tell_changes();
  HeldBy holder_of(const DeviceChoice& key, std::size_t index) const;
  bool is_used(const DeviceChoice& key) const;
  void ask_for_status(Session& session);
  void answer_status(Session& session);
  void start_capture(Session& session);
  void join_capture(Session& capture, Session& process);
  void end_capture(Session& capture);
  void open_channel(Session& session);
  bool names_own_queue_pairs(const Session& session, const ConnectionCommand& command);
  void execute(Session& session, std::span<const std::byte> bytes);
  void capture_connections(Session& capture);
  void end(Session& session);
  Result<UniqueFd> take_slot(Session& session);
  ProcessStatus status_of(const Session& session);
  Session* capture_of(uid_t user);
  Session* capture_for(uid_t user);
  Session* owner_of(std::uint32_t slot);

  Settings settings_;
  // More users than these come only from somebody who has many numbers.
  static constexpr std::size_t closing_threads_max = 512;
  Closer connection_closer_{closing_threads_max, Closer::Way::by_exiting};
  Closer closer_{closing_threads_max};
  Clock::time_point started_ = Clock::now();
  Clock::time_point idle_since_ = Clock::now();
  std::optional<Clock::time_point> recovering_until_;
  Clock::time_point retry_port_at_;
  std::optional<SocketGroup> group_;
  std::uint32_t next_slot_ = agent_slot + 1;
  WatchedListener listener_;
  EventLoop loop_;
  UniqueFd signals_;
  bool stopped_ = false;
  bool exits_when_idle_ = false;
  KnownDevices devices_;
  // True if some process has not been told of a change because its connection was full.
  bool has_untold_ = false;
  bool has_unforwarded_ = false;        // datagrams may wait in a slot with a relay
  Clock::time_point publish_asked_at_;  // when the processes were last asked to publish counters
  std::unique_ptr<Seal> seal_;          // null: datagrams are plain
  std::unique_ptr<IpNetwork> network_;  // of the connections
  std::unique_ptr<ConnectionService> connections_;
  const Session* connections_captured_by_ = nullptr;
  std::vector<ConnectionService::ChannelNumber> blocked_channels_;
  std::vector<std::unique_ptr<Session>> sessions_;
  // Connections of sessions that have ended, whose programs have not read all descriptors.
  struct LeftUnread {
    uid_t user = 0;
    std::size_t descriptors = 0;
    UniqueFd connection;
  };
  std::vector<LeftUnread> left_unread_;
  // Final counters of processes that have gone.
  std::array<std::uint64_t, counter_count> departed_{};
};

}  // namespace tulle::live
