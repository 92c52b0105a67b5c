#include "live/process/agent_client.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

#include "os/users.h"

namespace tulle::live {
namespace {

constexpr int attempts = 5;
// An agent that waits for survivors of an earlier agent says so, and takes longer to answer.
constexpr int recovery_milliseconds = 5'000;

// An agent that is stopped, or on a machine that has much else to do, is not damaged.
Error silent(const Settings& settings, int socket, int milliseconds) {
  return {fmt::format("process {} at the agent socket {} did not answer within {} ms; it may be "
                      "stopped, or the machine busy: try again, or end it",
                      process_at(socket), settings.agent, milliseconds),
          ETIMEDOUT};
}

Error no_agent(const Settings& settings, int socket) {
  return {fmt::format("process {} at the agent socket {} does not speak as a Tulle agent does; end "
                      "it, or set TULLE_AGENT to another name",
                      process_at(socket), settings.agent),
          EPROTO};
}

// Returns the first answer that is not a Wait.
Result<ReceivedMessage> await_answer(const Settings& settings, int socket, int timeout) {
  for (;;) {
    auto message = await_message(socket, timeout);
    if (!message) {
      if (message.error().error_number != ETIMEDOUT) return message;
      return silent(settings, socket, timeout);
    }
    const auto header = peek_header(message->bytes);
    if (!header) return no_agent(settings, socket);
    Refused refused;
    if (decode(message->bytes, refused)) return Error{refused.reason, EPERM};
    if (header->version != protocol_version) {
      return Error{fmt::format("the running agent at {} is of another version of Tulle (protocol "
                               "{}, not {}); stop it, and try again",
                               settings.agent, header->version, protocol_version),
                   EPROTO};
    }
    if (header->kind != static_cast<std::uint16_t>(MessageKind::wait)) return message;
    timeout = recovery_milliseconds;
  }
}

}  // namespace

Result<UniqueFd> connect_to_agent(const Settings& settings, const Patience& patience) {
  // Many programs may connect at once, and the agent accepts them in turns.
  auto connection = connect_patiently(settings.agent, patience.connect_milliseconds);
  if (!connection) {
    const int number = connection.error().error_number;
    if (number == ENOENT) return Error{connection.error().message, ECONNREFUSED};
    if (number == EAGAIN) {
      return Error{
          fmt::format("the process at the agent socket {} accepted no connection within {} ms; "
                      "it may be stopped, or the machine busy: try again, or end that process",
                      settings.agent, patience.connect_milliseconds),
          ETIMEDOUT};
    }
    return connection;
  }
  auto owner = peer_of(connection->get());
  if (!owner) return owner.error();
  if (!is_trusted(owner->uid)) {
    return Error{fmt::format("the Tulle agent of this network namespace belongs to {}, and "
                             "serves that user alone. It ends {} seconds after that user's last "
                             "program. Wait for that, use another network namespace, or let root "
                             "start `tulle agent`, which serves all users",
                             user_text(owner->uid), Settings{}.idle_exit_seconds),
                 EPERM};
  }
  return connection;
}

Result<Answer> ask_agent(const Settings& settings, const Hello& hello, IfAbsent if_absent,
                         const Patience& patience) {
  Error error;
  for (int i = 0; i < attempts; ++i) {
    auto connection = connect_to_agent(settings, patience);
    if (!connection) {
      error = connection.error();
      if (error.error_number != ECONNREFUSED) return error;
      if (if_absent == IfAbsent::fail) {
        return Error{fmt::format("no Tulle agent is running at {}", settings.agent), ECONNREFUSED};
      }
      if (auto started = start_agent(settings); !started) return started.error();
      continue;
    }
    Result<void> said = send_message(connection->get(), encode(hello));
    if (said) {
      auto message = await_answer(settings, connection->get(), patience.answer_milliseconds);
      if (message) return Answer{std::move(*connection), std::move(*message)};
      error = message.error();
    } else {
      error = said.error();
    }
    // The agent was just leaving, so this program starts the next one.
    if (error.error_number != ECONNRESET && error.error_number != EPIPE) return error;
  }
  return Error{fmt::format("the Tulle agent at {} ends as soon as it has begun: {}", settings.agent,
                           error.message),
               error.error_number};
}

Error unexpected_answer() {
  return {"the Tulle agent answered with something else than it was asked for", EPROTO};
}

Result<std::array<std::uint64_t, counter_count>> host_counters() {
  Hello hello;
  hello.purpose = Purpose::status;
  hello.command = program_name();
  auto answer = ask_agent(read_settings(), hello, IfAbsent::fail);
  AgentStatus status;
  if (!answer && answer.error().error_number == ECONNREFUSED) return status.counters;
  if (!answer) return answer.error();
  if (!decode(answer->message.bytes, status)) {
    return unexpected_answer();
  }
  return status.counters;
}

std::string program_name() {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  return name;
}

}  // namespace tulle::live
