#include "live/agent/agent_captures.h"

#include <unistd.h>

#include <algorithm>

#include "base/quoted.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/path/packets/capture_ring.h"
#include "os/users.h"

namespace tulle::live {

using State = Session::State;

void AgentCaptures::begin(Session& capture, CaptureTap* connections) {
  capture.state = State::capture;
  static_cast<void>(send_message(capture.connection.get(), encode(Accepted{})));
  for (auto& process : sessions_) {
    if (process->state == State::process) join(capture, *process);
  }
  const auto is_channel = [](const auto& other) { return other->state == State::channel; };
  if (connections != nullptr && std::ranges::any_of(sessions_, is_channel)) {
    capture_connections(capture, *connections);
  }
}

void AgentCaptures::end(Session& capture, CaptureTap* connections) {
  capture.state = State::closing;  // from here on it is not found
  if (connections_captured_by_ == &capture) {
    if (connections != nullptr) connections->close();
    connections_captured_by_ = nullptr;
  }
  for (auto& process : sessions_) {
    if (process->state != State::process || process->captured_by != &capture) continue;
    process->captured_by = nullptr;
    static_cast<void>(send_message(process->connection.get(), encode(StopCapture{})));
    join(*process);
  }
}

void AgentCaptures::join(Session& process) {
  if (Session* capture = sessions_.capture_for(process.peer.uid)) join(*capture, process);
}

void AgentCaptures::join_connections(CaptureTap& connections) {
  Session* const capture = sessions_.capture_for(geteuid());
  if (capture != nullptr) capture_connections(*capture, connections);
}

void AgentCaptures::capture_connections(Session& capture, CaptureTap& connections) {
  const uid_t who = capture.peer.uid;
  if (who != 0 && who != geteuid()) return;  // the connections belong to other users
  if (connections.is_open()) return;
  auto ring = CaptureRing::create(capture.hello.ring_bytes);
  if (!ring) return;
  const int fd = ring->fd();
  const CaptureSource source{getpid(), "agent", device_};
  if (!descriptors_.send(capture, encode(source), {&fd, 1})) return;
  connections.open(std::move(*ring), capture.hello.snap_length);
  connections_captured_by_ = &capture;
}

void AgentCaptures::join(Session& capture, Session& process) {
  const uid_t who = capture.peer.uid;
  // The traffic belongs to another user.
  if (who != 0 && !same_user(who, process.peer.uid)) return;
  if (!descriptors_.has_room(process, 1)) return;  // it reads nothing
  auto ring = CaptureRing::create(capture.hello.ring_bytes);
  if (!ring) return;
  const int fd = ring->fd();
  const CaptureSource source{process.peer.pid, process.hello.command,
                             one_line(process.hello.device.name)};
  const StartCapture start{capture.hello.snap_length};
  if (!descriptors_.send(capture, encode(source), {&fd, 1})) return;
  process.captured_by = &capture;
  static_cast<void>(descriptors_.send(process, encode(start), {&fd, 1}));
}

}  // namespace tulle::live
