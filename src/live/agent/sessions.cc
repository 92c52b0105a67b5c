#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/quoted.h"
#include "live/agent/core.h"
#include "live/bell.h"
#include "live/message/port_attributes.h"
#include "os/shared_memory.h"
#include "os/users.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;
using State = Session::State;

constexpr auto publish_time = 30ms;  // time for processes to bring their counters up to date
constexpr auto publish_again_time = 10ms;

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

// Returns what a command says of a connection; null: nothing.
const ConnectionParameters* parameters_of(const ConnectionCommand& command) {
  if (const auto* connect = std::get_if<command::Connect>(&command)) return &connect->parameters;
  if (const auto* accept = std::get_if<command::Accept>(&command)) return &accept->parameters;
  return nullptr;
}

bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Messages of a connection that names a queue pair let the peer end that queue pair's connection.
// A user who is limited names only those of the user's own processes; 0 is nobody's.
bool names_own_queue_pairs(const Session& session, const ConnectionCommand& command,
                           SessionTable& sessions, const SocketGroup& group) {
  const ConnectionParameters* parameters = parameters_of(command);
  if (parameters == nullptr || session.peer.uid == geteuid()) return true;
  const QpNumber number{parameters->qp_number & qp_number_max};
  if (number.value == 0) return true;
  const Session* owner = sessions.owner_of(slot_of(number));
  return owner != nullptr && same_user(owner->peer.uid, session.peer.uid) &&
         group.numbers_of(owner->slot).contains(number);
}

void note_held(Session& session, const GidsHeld& held) {
  session.version_noted = held.version;
  for (std::size_t i = 0; i < gids_max; ++i) {
    session.gids_held[i] = (held.indices[i / 64] >> i % 64 & 1) != 0;
  }
}

// Returns true if this is what a process exposes: a table whose size nobody changes, and the button
// of a bell.
bool is_exposed(const std::vector<UniqueFd>& fds) {
  return fds.size() == 2 && size_of_shared_memory(fds[0].get()) && is_button(fds[1].get());
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
  if (session.state == State::process && decode(message.bytes, expose) && is_exposed(message.fds)) {
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
  if (slots_.is_recovering() || is_early) {
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
      if (!sessions_.may_choose(session)) {
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

void AgentCore::open(Session& session) {
  auto device = devices_.find(session.hello.device);
  if (!device) return refuse(session, device.error().message);
  auto counters = CountersPage::create();
  if (!counters) return refuse(session, counters.error().message);
  if (auto place = sessions_.has_place_for(session.peer.uid); !place) {
    return refuse(session, place.error().message);
  }
  SocketGroup& group = slots_.group();
  auto lock = slots_.take(session);
  if (!lock) return refuse(session, lock.error().message);
  const SlotRecord& record = group.record(session.slot);
  Opened opened{(*device)->info, session.slot, record.first_qp, qps_per_process, group.port()};
  opened.seal_key_id = seal_key_id();
  std::vector<int> fds = {group.socket(session.slot), counters->fd(), lock->get(), group.vault()};
  std::optional<GivenDescriptor> process_end;
  // The socket, the lock and the descriptor store would let a process disturb all others.
  if (session.peer.uid != geteuid()) {
    auto relay = Relay::create(group.socket(session.slot), group.numbers_of(session.slot));
    if (!relay) {
      group.close_gate(session.slot);
      return refuse(session, relay.error().message);
    }
    process_end.emplace(descriptors_.given(session, relay->take_process_end()));
    session.relay.emplace(std::move(*relay));
    session.lock = std::move(*lock);
    watch(session.relay->socket(), nullptr);
    opened.is_relayed = true;
    fds = {process_end->get(), counters->fd()};
  }
  session.counters = std::move(*counters);
  session.state = State::process;
  session.version_told = session.version_noted = (*device)->version;
  if (!descriptors_.send(session, encode(opened), fds)) return end(session);
  captures_.join(session);
}

// The descriptors of a process that is refused stay the caller's.
void AgentCore::rejoin(Session& session, const Rejoin& rejoin, std::vector<UniqueFd>& fds) {
  if (!seals_like(session, rejoin.key_proof)) return;
  const bool is_ours = session.peer.uid == geteuid() && fds.size() == 2 &&
                       rejoin.slot > agent_slot && rejoin.slot < slots;
  if (!is_ours) return refuse(session, "only a process of the agent's own user rejoins");
  if (slots_.is_recovering()) {
    if (auto recovered = slots_.recover(std::move(fds[0])); !recovered) {
      return refuse(session, recovered.error().message);
    }
  } else if (!same_file(fds[0].get(), slots_.group().vault())) {
    return refuse(session, "those sockets are not of this agent's group");
  }
  const bool is_taken = sessions_.owner_of(rejoin.slot) != nullptr;
  auto counters = CountersPage::map(std::move(fds[1]));
  if (is_taken || !slots_.group().is_locked(rejoin.slot) || !counters) {
    return refuse(session, "that slot is not the process's");
  }
  session.counters = std::move(*counters);
  session.slot = rejoin.slot;
  session.hello.command = rejoin.command;
  session.hello.device = rejoin.choice;
  // It was closed when this agent lost the process.
  slots_.group().open_gate(rejoin.slot, slots_.group().numbers_of(rejoin.slot));
  session.state = State::process;  // version_noted stays 0 until the process reports what it holds
  devices_.adopt(session.hello.device, rejoin.device);
  static_cast<void>(send_message(session.connection.get(), encode(Accepted{})));
  captures_.join(session);
}

// Joins or leaves a multicast group for a process that has a relay. The asking process must be that
// very process.
void AgentCore::change_membership(Session& session, const Membership& asked) {
  Session* owner = sessions_.owner_of(asked.slot);
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

// Returns which processes or endpoints of the connection manager use the address.
HeldBy AgentCore::holder_of(const DeviceChoice& key, std::size_t index) const {
  const HeldBy holder = connections_ ? connections_->holder_of(key, index) : HeldBy::nobody;
  return std::max(holder, sessions_.holder_of(key, index, devices_.known(key)->version));
}

// Answers only for processes of the same user, since the table gives access to the owner's memory.
void AgentCore::find_peer(Session& session) {
  const Session* owner = sessions_.owner_of(session.hello.slot);
  if (owner == nullptr || !owner->table || !owner->doorbell ||
      !same_user(owner->peer.uid, session.peer.uid)) {
    return refuse(session, "there is no such process of yours on this host");
  }
  const std::array<int, 2> fds = {owner->table.get(), owner->doorbell.get()};
  static_cast<void>(descriptors_.send(session, encode(PeerProcess{owner->peer.pid}), fds));
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
      static_cast<void>(send_message(connection, encode(slots_.status_of(*owner))));
    } else if (slots_.group().is_locked(slot)) {
      Session absent;
      absent.slot = slot;
      static_cast<void>(send_message(connection, encode(slots_.status_of(absent))));
    }
  }
  static_cast<void>(send_message(connection, encode(End{})));
  session.state = State::closing;
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
  const GivenDescriptor given = descriptors_.given(session, std::move(*events));
  const int fd = given.get();
  if (!descriptors_.send(session, encode(ChannelOpened{session.channel, seal_key_id()}),
                         {&fd, 1})) {
    return end(session);
  }
  captures_.join_connections(network_->tap());
}

void AgentCore::execute(Session& session, std::span<const std::byte> bytes) {
  CommandMessage message;
  if (!decode(bytes, message)) return end(session);  // a program of this version sends nothing else
  ReplyMessage answer{reply::Failed{EPERM}};
  if (names_own_queue_pairs(session, message.command, sessions_, slots_.group())) {
    answer.reply = connections_->execute(session.channel, message);
  }
  sessions_.tell_changes(devices_);  // must precede a reply that names a new GID index
  if (!send_message(session.connection.get(), encode(answer))) end(session);
}

void AgentCore::start_capture(Session& session) {
  if (!is_known_user(session.peer.uid)) {
    return refuse(session, fmt::format("the agent cannot tell which programs belong to {}",
                                       user_text(session.peer.uid)));
  }
  if (const Session* other = sessions_.capture_for(session.peer.uid)) {
    return refuse(session, fmt::format("process {} is capturing already", other->peer.pid));
  }
  captures_.begin(session, tap());
}

void AgentCore::end(Session& session) {
  if (session.state == State::process) {
    slots_.group().close_gate(session.slot);
    // The numbers may be another user's next.
    const bool is_limited = session.relay.has_value();
    if (is_limited && connections_) {
      connections_->end_connections_of(slots_.group().numbers_of(session.slot));
    }
  }
  if (session.relay) loop_.forget(session.relay->socket());
  if (session.state == State::channel) connections_->close_channel(session.channel);
  if (session.state == State::capture) captures_.end(session, tap());
  session.state = State::closing;
}

}  // namespace tulle::live
