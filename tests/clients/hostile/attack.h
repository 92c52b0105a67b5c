// Attacks by a user of a host on root's host agent and on other users' programs. Each is a row of a
// table: a name, what it does, and what it expects. The driver (tests/hostile/user.py) judges the
// rest: that agent and victims live, that their bytes are right, and that they go on.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "live/message/connection.h"
#include "live/message/socket.h"

namespace hostile {

using tulle::Gid;
using tulle::UniqueFd;
using tulle::live::ReceivedMessage;
using Bytes = std::vector<std::byte>;

// An attack's context is what the attacker knows, and what comes of the attack.
class Context {
 public:
  Context(std::uint64_t seed, std::vector<std::string> secrets)
      : random(seed), secrets_(std::move(secrets)) {}

  tulle::Random random;
  // All of these are no secrets: any user of the host can find them out.
  pid_t agent = 0;
  std::vector<pid_t> victims;
  std::vector<std::uint16_t> listeners;  // the victims' ports in librdmacm's TCP port space

  // Notes hostile deeds, of which each attack must do at least one.
  void did(std::uint64_t deeds = 1) { deeds_ += deeds; }
  // Notes a violation unless it holds.
  void expect(bool holds, std::string_view what);
  // Notes that the system does not let the attack be tried.
  void skip(std::string_view why) { skipped_ = why; }
  // Looks for the victims' secrets in what the attacker got.
  void scan(std::span<const std::byte> bytes);
  void scan_file(int fd);  // all of it that can be mapped
  void scan_a_secret();    // as if a victim's had come
  // Waits until the driver has looked at what the attacker holds now.
  void hold();

  // Prints what came of the attack in one line.
  void print(std::string_view name, double seconds) const;
  bool looks_from_outside = false;  // a driver answers hold()

 private:
  std::vector<std::string> secrets_;
  std::vector<std::string> violations_;
  std::string skipped_;
  std::uint64_t deeds_ = 0;
  std::uint64_t scanned_ = 0;
  std::uint64_t foreign_ = 0;
};

struct Attack {
  std::string name;
  void (*run)(Context& context, int argument);
  int argument = 0;
  // True if it fills what is limited, or takes the processor, for its effect: it does not count
  // among the attacks under which the victims' rate is measured.
  bool is_flood = false;
};

// The tables.
std::vector<Attack> message_attacks();     // messages.cc: messages of any kind, in any state
std::vector<Attack> descriptor_attacks();  // descriptors.cc: descriptors that the agent hands out
std::vector<Attack> attached_attacks();    // attached.cc: descriptors that the agent is handed
std::vector<Attack> command_attacks();     // commands.cc: commands to the connection manager
std::vector<Attack> quota_attacks();       // quotas.cc: all there is of something
std::vector<Attack> address_attacks();     // addresses.cc: the agent's address, the port, datagrams
std::vector<Attack> process_attacks();     // processes.cc: the victims' processes and files
std::vector<Attack> control_attacks();     // main.cc: what the driver must notice

// --- conversations with the agent ---

UniqueFd to_agent();
// Sends bytes and descriptors as they are, however wrong.
bool send_raw(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
// Returns the next message, which has been searched for secrets, or nothing if none comes.
std::optional<ReceivedMessage> next(Context& context, int socket, int milliseconds = 1'000);
// Takes what waits, without waiting longer.
void drain(Context& context, int socket);
bool is_refused(const std::optional<ReceivedMessage>& message);

tulle::live::Hello hello(tulle::live::Purpose purpose);

// A process with a slot, as libibverbs would have it.
struct Process {
  UniqueFd connection;
  tulle::live::Opened opened;
  std::vector<UniqueFd> fds;  // the relay and the page of counters
};
std::optional<Process> open_process(Context& context);

// A channel to the connection manager.
struct Channel {
  UniqueFd connection;
  UniqueFd events;
  std::uint32_t number = 0;
  std::uint32_t events_taken = 0;

  // Gives a command, and returns the reply. Failed with EPIPE stands for a channel that has ended.
  tulle::live::ConnectionReply say(Context& context, tulle::live::ConnectionCommand command);
  tulle::live::EndpointId create(Context& context,
                                 tulle::live::PortSpace space = tulle::live::PortSpace::tcp);
  void take_events(Context& context);
};
std::optional<Channel> open_channel(Context& context);
bool has_failed(const tulle::live::ConnectionReply& reply);
int error_of(const tulle::live::ConnectionReply& reply);
tulle::live::SocketAddress loopback(std::uint16_t port);
// Resolves an address and a route, so that the endpoint may connect.
bool resolve(Context& context, Channel& channel, tulle::live::EndpointId id,
             const tulle::live::SocketAddress& to);

}  // namespace hostile
