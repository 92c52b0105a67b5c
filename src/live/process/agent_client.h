#pragma once

// A program's side of the host agent: finds it, starts it if there is none, and asks it.

#include <array>
#include <span>
#include <string>

#include "base/result.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/settings.h"

namespace tulle::live {

// A program waits for an agent for so long. The agent may be stopped, or asked by many at once.
struct Patience {
  int connect_milliseconds = 1'000;
  int answer_milliseconds = 2'000;
};

// Connects to an agent that this user trusts, and starts none. The error_number is ECONNREFUSED if
// there is none.
Result<UniqueFd> connect_to_agent(const Settings& settings, const Patience& patience = {});

enum class IfAbsent : std::uint8_t { start, fail };

struct Answer {
  UniqueFd connection;
  ReceivedMessage message;
};
// Says hello and waits for the first answer. A refusal is returned as an error.
Result<Answer> ask_agent(const Settings& settings, const Hello& hello, IfAbsent if_absent,
                         const Patience& patience = {});

// Returns the error for an answer that does not match the question.
Error unexpected_answer();

// Returns the counters of all processes of this host together since its agent began; zeros if there
// is no agent. Takes about 30 ms, in which processes bring their counters up to date.
Result<std::array<std::uint64_t, counter_count>> host_counters();

// Starts an agent and waits until it is ready.
Result<void> start_agent(const Settings& settings);
// Returns the path of the `tulle` executable: TULLE_EXECUTABLE, else next to this library or
// program, else on the PATH.
Result<std::string> find_executable(const Settings& settings);

// Returns the name of this program, for `tulle status`.
std::string program_name();

}  // namespace tulle::live
