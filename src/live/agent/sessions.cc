#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/quoted.h"
#include "live/agent/core.h"
#include "live/message/port_attributes.h"
#include "live/path/packets/capture_ring.h"
#include "os/service_process.h"
#include "os/users.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;
using State = Session::State;

constexpr auto publish_time = 30ms;  // time for processes to bring their counters up to date
constexpr auto publish_again_time = 10ms;

// Descriptors of the agent's in messages that a user who is limited has not read. A program that
// reads has a few; a capture gets one of each process at once.
constexpr std::size_t unread_of_connection_max = 8;
constexpr std::size_t unread_of_capture_max = slots;
constexpr std::size_t unread_of_user_max = 512;

// Copies as much of a text as there is room for, without a part of a UTF-8 character at its end.
template <std::size_t n>
void assign(std::array<char, n>& to, const std::string& from) {
  std::size_t bytes = std::min(from.size(), n - 1);
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(from[at]) & 0xC0) == 0x80;
  };
  if (bytes < from.size()) {
    while (bytes > 0 && continues(bytes)) --bytes;
  }
  to = {};
  std::copy_n(from.data(), bytes, to.data());
}

// Names and lists are kept, compared and copied, so that long ones would cost everybody.
constexpr std::size_t text_bytes_max = 255;
bool is_plausible(const Hello& hello) {
  return is_plausible(hello.device) && hello.command.size() <= text_bytes_max &&
         hello.file.size() <= text_bytes_max;
}
bool is_plausible(const Rejoin& rejoin) {
  return is_plausible(rejoin.choice) && rejoin.command.size() <= text_bytes_max;
}
std::string implausible() {
  return fmt::format(
      "the device's name or another text is too long or has other letters: {}, a list of "
      "interfaces up to {} bytes, and other texts up to {}",
      device_name_rule, interfaces_bytes_max, text_bytes_max);
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

void AgentCore::handle_message(Session& session, ReceivedMessage& message) {
  const auto header = peek_header(message.bytes);
  if (!header) return refuse(session, "this is no message of Tulle's");
  if (header->version != protocol_version) {
    return refuse(session, fmt::format("the running agent (process {}) is of another version of "
                                       "Tulle ({}, protocol {}, not {}); stop it, and try again",
                                       getpid(), TULLE_VERSION, protocol_version, header->version));
  }
  Expose expose;
  GidsHeld held;
  if (session.state == State::process && decode(message.bytes, held)) {
    return note_held(session, held);
  }
  if (session.state == State::process && decode(message.bytes, expose) && message.fds.size() == 2) {
    std::swap(session.table, message.fds[0]);
    std::swap(session.doorbell, message.fds[1]);
    return;
  }
  if (session.state == State::channel) return execute(session, message.bytes);
  if (session.state != State::greeting) return;  // clients in other states have nothing more to say
  Membership membership;
  if (decode(message.bytes, membership)) return change_membership(session, membership);
  Hello hello;
  Rejoin rejoin_message;
  if (decode(message.bytes, hello)) {
    if (!is_plausible(hello)) return refuse(session, implausible());
    session.hello = std::move(hello);
    session.hello.command = one_line(session.hello.command);
    greet(session);
  } else if (decode(message.bytes, rejoin_message)) {
    if (!is_plausible(rejoin_message)) return refuse(session, implausible());
    rejoin(session, rejoin_message, message.fds);
  } else {
    refuse(session, "this message is not the first of a conversation");
  }
}

void AgentCore::greet(Session& session) {
  const bool is_early = session.hello.purpose == Purpose::connect && !connections_;
  if (is_recovering() || is_early) {
    const bool is_told = session.state == State::held;
    session.state = State::held;
    if (!is_told) static_cast<void>(send_message(session.connection.get(), encode(Wait{})));
    return;
  }
  switch (session.hello.purpose) {
    case Purpose::list:
      return list(session);
    case Purpose::open:
    case Purpose::connect:
      if (!may_choose(session)) {
        return refuse(session,
                      "programs of this user have devices of 16 kinds, by name and "
                      "interfaces, which is the most for one user");
      }
      return session.hello.purpose == Purpose::open ? open(session) : open_channel(session);
    case Purpose::status:
      return ask_for_status(session);
    case Purpose::capture:
      return start_capture(session);
    case Purpose::find_peer:
      return find_peer(session);
    case Purpose::attribute:
      return answer_attribute(session);
  }
  refuse(session, "this purpose is unknown");
}

// Returns the number of the key that this agent seals with; 0: none.
std::uint16_t AgentCore::seal_key_id() {
  if (seal_ == nullptr) return 0;
  if (connections_) seal_->look_at_file(connections_->now());
  return seal_->key_id();
}

// Datagrams of the connection manager leave and arrive in clear or sealed for a program. One that
// would have it otherwise gets none.
bool AgentCore::seals_like(Session& session, const KeyProof& programs) {
  const bool seals = seal_key_id() != 0;
  if (is_same_proof(programs, seals ? seal_->key_proof() : KeyProof{})) return true;
  const char* reason =
      "the running host agent seals with another key than this program: end it, "
      "and start `tulle agent --secure KEYFILE`";
  if (!seals) {
    reason =
        "the running host agent seals nothing, and this program does: end the agent, or start "
        "`tulle agent --secure KEYFILE`";
  } else if (is_same_proof(programs, KeyProof{})) {
    reason = "the running host agent seals its datagrams: try `tulle run --secure KEYFILE`";
  }
  refuse(session, reason);
  return false;
}

void AgentCore::refuse(Session& session, const std::string& reason) {
  static_cast<void>(send_message(session.connection.get(), encode(Refused{reason})));
  end(session);  // it may have a slot, a channel or a capture
}

// Linux counts the descriptors in unread messages for their sender, and lets the agent send none
// once there are more than it may have open. All users who are limited get a quarter of that.
bool AgentCore::has_room_for_descriptors(const Session& session, std::size_t count) {
  if (session.peer.uid == geteuid()) return true;
  std::size_t of_user = count;
  std::size_t of_all = count;
  const auto add = [&](uid_t user, std::size_t unread) {
    of_all += unread;
    if (user == session.peer.uid) of_user += unread;
  };
  for (const auto& each : sessions_) {
    std::size_t& unread = each->descriptors_unread;
    if (unread > 0 && is_all_read(each->connection.get())) unread = 0;
    add(each->peer.uid, unread);
  }
  for (const LeftUnread& each : left_unread_) add(each.user, each.descriptors);
  const bool is_capture = session.state == State::capture;
  return of_all <= file_limit() / 4 && of_user <= unread_of_user_max &&
         session.descriptors_unread + count <=
             (is_capture ? unread_of_capture_max : unread_of_connection_max);
}

Result<void> AgentCore::send_descriptors(Session& session, std::span<const std::byte> bytes,
                                         std::span<const int> fds) {
  if (!has_room_for_descriptors(session, fds.size())) {
    return Error{"the user's programs have not read the descriptors that they got", EAGAIN};
  }
  auto sent = send_message(session.connection.get(), bytes, fds);
  if (sent && session.peer.uid != geteuid()) session.descriptors_unread += fds.size();
  return sent;
}

void AgentCore::list(Session& session) {
  auto device = devices_.find(session.hello.device);
  if (!device) return refuse(session, device.error().message);
  static_cast<void>(send_message(session.connection.get(), encode(Devices{{(*device)->info}})));
  session.state = State::closing;
}

void AgentCore::answer_attribute(Session& session) {
  auto device = devices_.find(session.hello.device);
  if (!device) return refuse(session, device.error().message);
  const auto text = port_attribute((*device)->info, session.hello.file);
  const Attribute attribute{text.has_value(), text.value_or("")};
  static_cast<void>(send_message(session.connection.get(), encode(attribute)));
  session.state = State::closing;
}

// The devices of a user who is limited differ in few ways: the agent looks at all of them when an
// address changes, and when a packet is sent.
bool AgentCore::may_choose(const Session& session) const {
  constexpr std::size_t choices_max = 16;
  if (session.peer.uid == geteuid()) return true;
  std::set<DeviceChoice> choices = {session.hello.device};
  for (const auto& each : sessions_) {
    const bool is_lasting = each->state == State::process || each->state == State::channel;
    if (is_lasting && each->peer.uid == session.peer.uid) choices.insert(each->hello.device);
    if (choices.size() > choices_max) return false;
  }
  return true;
}

void AgentCore::open(Session& session) {
  auto device = devices_.find(session.hello.device);
  if (!device) return refuse(session, device.error().message);
  auto counters = CountersPage::create();
  if (!counters) return refuse(session, counters.error().message);
  auto lock = take_slot(session);
  if (!lock) return refuse(session, lock.error().message);
  const SlotRecord& record = group_->record(session.slot);
  Opened opened{(*device)->info, session.slot, record.first_qp, qps_per_process, group_->port()};
  opened.seal_key_id = seal_key_id();
  std::vector<int> fds = {group_->socket(session.slot), counters->fd(), lock->get(),
                          group_->vault()};
  UniqueFd process_end;
  // The socket, the lock and the descriptor store would let a process disturb all others.
  if (session.peer.uid != geteuid()) {
    auto relay = Relay::create(group_->socket(session.slot));
    if (!relay) {
      group_->close_gate(session.slot);
      return refuse(session, relay.error().message);
    }
    process_end = relay->take_process_end();
    session.relay.emplace(std::move(*relay));
    session.lock = std::move(*lock);
    watch(session.relay->socket(), nullptr);
    opened.is_relayed = true;
    fds = {process_end.get(), counters->fd()};
  }
  session.counters = std::move(*counters);
  session.state = State::process;
  session.version_told = session.version_noted = (*device)->version;
  if (!send_descriptors(session, encode(opened), fds)) return end(session);
  if (Session* capture = capture_for(session.peer.uid)) join_capture(*capture, session);
}

// A user that is not the agent's gets at most half of the slots, so that one of them cannot keep
// others out. All of them together leave some to the agent's own user.
Result<void> AgentCore::has_place_for(uid_t user) const {
  if (user == geteuid()) return {};
  constexpr std::uint32_t own_users_share = 16;
  std::uint32_t of_user = 0;
  std::uint32_t of_others = 0;
  for (const auto& session : sessions_) {
    if (session->state != State::process) continue;
    of_user += session->peer.uid == user;
    of_others += session->peer.uid != geteuid();
  }
  if (of_user >= slots / 2) {
    return Error{fmt::format("user {} has {} processes with the device open, which is the most "
                             "for one user; end some of them",
                             user, slots / 2),
                 EUSERS};
  }
  if (of_others >= slots - 1 - own_users_share) {
    return Error{fmt::format("users other than {} have {} processes with the device open, which is "
                             "the most for all of them",
                             geteuid(), of_others),
                 EUSERS};
  }
  return {};
}

Result<UniqueFd> AgentCore::take_slot(Session& session) {
  if (auto place = has_place_for(session.peer.uid); !place) return place.error();
  for (std::uint32_t i = 0; i < slots - 1; ++i) {
    const std::uint32_t slot = next_slot_;
    next_slot_ = next_slot_ + 1 == slots ? agent_slot + 1 : next_slot_ + 1;
    UniqueFd lock = group_->lock(slot);
    if (!lock) continue;
    SlotRecord& record = group_->record(slot);
    record.turn = (record.turn + 1) % turns_per_slot;
    record.first_qp = first_qp_of(slot, record.turn);
    record.pid = session.peer.pid;
    record.uid = session.peer.uid;
    assign(record.command, session.hello.command);
    assign(record.device, one_line(session.hello.device.name));
    session.slot = slot;
    return lock;
  }
  return Error{fmt::format("all {} places for processes of this host are taken", slots - 1),
               EUSERS};
}

// The descriptors of a process that is refused stay the caller's.
void AgentCore::rejoin(Session& session, const Rejoin& rejoin, std::vector<UniqueFd>& fds) {
  if (!seals_like(session, rejoin.key_proof)) return;
  const bool is_ours = session.peer.uid == geteuid() && fds.size() == 2 &&
                       rejoin.slot > agent_slot && rejoin.slot < slots;
  if (!is_ours) return refuse(session, "only a process of the agent's own user rejoins");
  if (is_recovering()) {
    auto group = SocketGroup::recover(std::move(fds[0]));
    if (!group) return refuse(session, group.error().message);
    if (group->port() != settings_.port) return refuse(session, "those sockets' port is another");
    group_.emplace(std::move(*group));
    recovering_until_.reset();
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (!group_->is_locked(slot)) group_->close_gate(slot);
    }
  } else if (!same_file(fds[0].get(), group_->vault())) {
    return refuse(session, "those sockets are not of this agent's group");
  }
  const bool is_taken = owner_of(rejoin.slot) != nullptr;
  auto counters = CountersPage::map(std::move(fds[1]));
  if (is_taken || !group_->is_locked(rejoin.slot) || !counters) {
    return refuse(session, "that slot is not the process's");
  }
  session.counters = std::move(*counters);
  session.slot = rejoin.slot;
  session.hello.command = rejoin.command;
  session.hello.device = rejoin.choice;
  group_->open_gate(rejoin.slot);  // it was closed when this agent lost the process
  session.state = State::process;  // version_noted stays 0 until the process reports what it holds
  devices_.adopt(session.hello.device, rejoin.device);
  static_cast<void>(send_message(session.connection.get(), encode(Accepted{})));
  if (Session* capture = capture_for(session.peer.uid)) join_capture(*capture, session);
}

// Joins or leaves a multicast group for a process that has a relay. The asking process must be that
// very process.
void AgentCore::change_membership(Session& session, const Membership& asked) {
  Session* owner = owner_of(asked.slot);
  const bool is_its_own = owner != nullptr && owner->relay &&
                          same_user(owner->peer.uid, session.peer.uid) &&
                          owner->peer.pid == session.peer.pid;
  const auto* device = is_its_own ? devices_.known(owner->hello.device) : nullptr;
  if (device == nullptr) return refuse(session, "that slot is not the process's");
  MembershipChanged changed;
  changed.error = asked.leaves ? owner->relay->leave(asked.group)
                               : owner->relay->join(device->info, asked.group);
  static_cast<void>(send_message(session.connection.get(), encode(changed)));
  session.state = State::closing;
}

void AgentCore::note_held(Session& session, const GidsHeld& held) {
  session.version_noted = held.version;
  for (std::size_t i = 0; i < gids_max; ++i) {
    session.gids_held[i] = (held.indices[i / 64] >> i % 64 & 1) != 0;
  }
}

// Returns which processes or endpoints of the connection manager use the address. A process counts
// as using it until it has said that it does not.
HeldBy AgentCore::holder_of(const DeviceChoice& key, std::size_t index) const {
  HeldBy holder = connections_ ? connections_->holder_of(key, index) : HeldBy::nobody;
  const std::uint32_t version = devices_.known(key)->version;
  for (const auto& session : sessions_) {
    const bool has_it = session->state == State::process && session->hello.device == key;
    if (!has_it || (session->version_noted == version && !session->gids_held[index])) continue;
    const bool is_limited = session->peer.uid != geteuid();
    holder = std::max(holder, is_limited ? HeldBy::limited_users : HeldBy::own_user);
  }
  return holder;
}

bool AgentCore::is_used(const DeviceChoice& key) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& session) {
    const bool is_lasting = session->state == State::process || session->state == State::channel;
    return is_lasting && session->hello.device == key;
  });
}

// Tells all processes that have not yet been told of the latest changes.
void AgentCore::tell_changes() {
  has_untold_ = false;
  for (auto& session : sessions_) {
    if (session->state != State::process) continue;
    const auto* device = devices_.known(session->hello.device);
    if (device == nullptr || device->version == session->version_told) continue;
    const DeviceChanged changed{device->version, device->info};
    if (send_message(session->connection.get(), encode(changed))) {
      session->version_told = changed.version;
    } else {
      has_untold_ = true;
    }
  }
}

// Answers only for processes of the same user, since the table gives access to the owner's memory.
void AgentCore::find_peer(Session& session) {
  const Session* owner = owner_of(session.hello.slot);
  if (owner == nullptr || !owner->table || !owner->doorbell ||
      !same_user(owner->peer.uid, session.peer.uid)) {
    return refuse(session, "there is no such process of yours on this host");
  }
  const std::array<int, 2> fds = {owner->table.get(), owner->doorbell.get()};
  static_cast<void>(send_descriptors(session, encode(PeerProcess{owner->peer.pid}), fds));
  session.state = State::closing;
}

void AgentCore::ask_for_status(Session& session) {
  session.state = State::status;
  // Questions that come at once share the publishing, so that they do not keep the processes busy.
  const auto now = Clock::now();
  const bool is_asked = now < publish_asked_at_ + publish_again_time;
  if (!is_asked) publish_asked_at_ = now;
  session.due = publish_asked_at_ + publish_time;
  if (is_asked) return;
  for (auto& process : sessions_) {
    if (process->state != State::process) continue;
    static_cast<void>(send_message(process->connection.get(), encode(Publish{})));
  }
}

void AgentCore::answer_status(Session& session) {
  const int connection = session.connection.get();
  AgentStatus agent;
  agent.version = TULLE_VERSION;
  agent.address = settings_.agent;
  agent.pid = getpid();
  agent.uid = geteuid();
  agent.port = settings_.port;
  agent.slots = slots - 1;
  if (connections_) agent.listeners = connections_->listener_count();
  agent.uptime_seconds = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - started_).count());
  agent.counters = counters();
  static_cast<void>(send_message(connection, encode(agent)));
  std::array<const Session*, slots> owners{};
  for (const auto& each : sessions_) {
    if (each->state == State::process) owners[each->slot] = each.get();
  }
  for (std::uint32_t slot = agent_slot + 1; slot < slots; ++slot) {
    if (const Session* owner = owners[slot]) {
      static_cast<void>(send_message(connection, encode(status_of(*owner))));
    } else if (group_->is_locked(slot)) {
      Session absent;
      absent.slot = slot;
      static_cast<void>(send_message(connection, encode(status_of(absent))));
    }
  }
  static_cast<void>(send_message(connection, encode(End{})));
  session.state = State::closing;
}

ProcessStatus AgentCore::status_of(const Session& session) {
  const SlotRecord& record = group_->record(session.slot);
  ProcessStatus status;
  status.pid = record.pid;
  status.uid = record.uid;
  status.command = std::string(record.command.data(), strnlen(record.command.data(), 31));
  status.device = std::string(record.device.data(), strnlen(record.device.data(), 31));
  status.slot = session.slot;
  status.first_qp = record.first_qp;
  status.qp_count = qps_per_process;
  status.connected = session.state == State::process;
  status.counters = session.counters.read();
  status.refusal = session.counters.read_refusal();
  return status;
}

Session* AgentCore::owner_of(std::uint32_t slot) {
  const auto found = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& other) {
    return other->state == State::process && other->slot == slot;
  });
  return found == sessions_.end() ? nullptr : found->get();
}

// Returns the capture that a user runs, or null.
Session* AgentCore::capture_of(uid_t user) {
  const auto found = std::ranges::find_if(sessions_, [user](const auto& other) {
    return other->state == State::capture && other->peer.uid == user;
  });
  return found == sessions_.end() ? nullptr : found->get();
}

// Returns the capture that gets the frames of a user's processes, or null. Root's capture comes
// before the user's own.
Session* AgentCore::capture_for(uid_t user) {
  Session* of_root = capture_of(0);
  return of_root != nullptr ? of_root : capture_of(user);
}

void AgentCore::open_channel(Session& session) {
  if (!seals_like(session, session.hello.key_proof)) return;
  const ConnectionService::Owner owner{session.peer.pid, session.peer.uid,
                                       session.peer.uid != geteuid()};
  // Frames are sent with the agent's rights, and another user may have none.
  if (owner.is_limited && session.hello.device.roce == RoceVersions::v1) {
    return refuse(session, "connections by RoCE v1 are for the host agent's own user");
  }
  if (!owner.is_limited) {
    for (const int fd : network_->open_roce_v1(session.hello.device)) watch(fd, nullptr);
  }
  auto events = connections_->open_channel(owner, session.hello.device, session.channel);
  if (!events) return refuse(session, events.error().message);
  session.state = State::channel;
  const int fd = events->get();
  if (!send_descriptors(session, encode(ChannelOpened{session.channel, seal_key_id()}), {&fd, 1})) {
    return end(session);
  }
  if (Session* capture = capture_for(geteuid())) capture_connections(*capture);
}

// Messages of a connection that names a queue pair let the peer end that queue pair's connection.
// A user who is limited names only those of the user's own processes; 0 is nobody's.
bool AgentCore::names_own_queue_pairs(const Session& session, const ConnectionCommand& command) {
  const ConnectionParameters* parameters = nullptr;
  if (const auto* connect = std::get_if<command::Connect>(&command)) {
    parameters = &connect->parameters;
  } else if (const auto* accept = std::get_if<command::Accept>(&command)) {
    parameters = &accept->parameters;
  }
  if (parameters == nullptr || session.peer.uid == geteuid()) return true;
  const QpNumber number{parameters->qp_number & qp_number_max};
  if (number.value == 0) return true;
  const Session* owner = owner_of(slot_of(number));
  return owner != nullptr && same_user(owner->peer.uid, session.peer.uid) &&
         number.value - group_->record(owner->slot).first_qp < qps_per_process;
}

void AgentCore::execute(Session& session, std::span<const std::byte> bytes) {
  CommandMessage message;
  if (!decode(bytes, message)) return end(session);  // a program of this version sends nothing else
  ReplyMessage answer;
  if (names_own_queue_pairs(session, message.command)) {
    answer.reply = connections_->execute(session.channel, std::move(message));
  } else {
    answer.reply = reply::Failed{EPERM};
  }
  tell_changes();  // must precede a reply that names a new GID index
  if (!send_message(session.connection.get(), encode(answer))) end(session);
}

// Captures the agent's own traffic: connections being made, not any process's data. Starts only
// once a program has opened a channel.
void AgentCore::capture_connections(Session& capture) {
  const uid_t who = capture.peer.uid;
  if (who != 0 && who != geteuid()) return;  // the connections belong to other users
  if (network_->tap().is_open()) return;
  auto ring = CaptureRing::create(capture.hello.ring_bytes);
  if (!ring) return;
  const int fd = ring->fd();
  const CaptureSource source{getpid(), "agent", settings_.device.name};
  if (!send_descriptors(capture, encode(source), {&fd, 1})) return;
  network_->tap().open(std::move(*ring), capture.hello.snap_length);
  connections_captured_by_ = &capture;
}

// Each user may run one capture, of the user's own processes. Root's is of all processes, and takes
// them over while it runs.
void AgentCore::start_capture(Session& session) {
  if (!is_known_user(session.peer.uid)) {
    return refuse(session, fmt::format("the agent cannot tell which programs belong to {}",
                                       user_text(session.peer.uid)));
  }
  if (const Session* other = capture_for(session.peer.uid)) {
    return refuse(session, fmt::format("process {} is capturing already", other->peer.pid));
  }
  session.state = State::capture;
  static_cast<void>(send_message(session.connection.get(), encode(Accepted{})));
  for (auto& process : sessions_) {
    if (process->state == State::process) join_capture(session, *process);
  }
  const auto is_channel = [](const auto& other) { return other->state == State::channel; };
  if (std::any_of(sessions_.begin(), sessions_.end(), is_channel)) capture_connections(session);
}

void AgentCore::join_capture(Session& capture, Session& process) {
  const uid_t who = capture.peer.uid;
  // The traffic belongs to another user.
  if (who != 0 && !same_user(who, process.peer.uid)) return;
  if (!has_room_for_descriptors(process, 1)) return;  // it reads nothing
  auto ring = CaptureRing::create(capture.hello.ring_bytes);
  if (!ring) return;
  const int fd = ring->fd();
  const CaptureSource source{process.peer.pid, process.hello.command,
                             one_line(process.hello.device.name)};
  const StartCapture start{capture.hello.snap_length};
  if (!send_descriptors(capture, encode(source), {&fd, 1})) return;
  process.captured_by = &capture;
  static_cast<void>(send_descriptors(process, encode(start), {&fd, 1}));
}

// Ends a capture. Processes that root's capture had taken over go back to their user's.
void AgentCore::end_capture(Session& capture) {
  capture.state = State::closing;  // from here on it is not found
  if (connections_captured_by_ == &capture) {
    network_->tap().close();
    connections_captured_by_ = nullptr;
  }
  for (auto& process : sessions_) {
    if (process->state != State::process || process->captured_by != &capture) continue;
    process->captured_by = nullptr;
    static_cast<void>(send_message(process->connection.get(), encode(StopCapture{})));
    if (Session* other = capture_for(process->peer.uid)) join_capture(*other, *process);
  }
}

void AgentCore::end(Session& session) {
  if (session.state == State::process) group_->close_gate(session.slot);
  if (session.relay) loop_.forget(session.relay->socket());
  if (session.state == State::channel) connections_->close_channel(session.channel);
  if (session.state == State::capture) end_capture(session);
  session.state = State::closing;
}

}  // namespace tulle::live
