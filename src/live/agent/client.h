#pragma once

// A program's side of the agent: finds it, starts it if there is none, and asks.

#include <array>
#include <span>
#include <string>

#include "base/result.h"
#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/settings.h"

namespace tulle::live {

// Only connects, to an agent that this user trusts; the error_number is ECONNREFUSED where there is
// none.
Result<UniqueFd> connect_to_agent(const Settings& settings);

enum class IfAbsent : std::uint8_t { start, fail };

struct Answer {
  UniqueFd connection;
  ReceivedMessage message;
};
// Says hello and waits for the first answer, which is no refusal.
Result<Answer> ask_agent(const Settings& settings, const Hello& hello, IfAbsent if_absent);

Error unexpected_answer();  // to what was asked

// What has been counted on this host since its agent began, by all processes together; nothing
// where there is no agent. Takes some 30 ms, in which processes bring their counters up to date.
Result<std::array<std::uint64_t, counter_count>> host_counters();

// Starts an agent and waits until it is ready.
Result<void> start_agent(const Settings& settings);
// The `tulle` executable: TULLE_EXECUTABLE, else beside this library or program, else on the PATH.
Result<std::string> find_executable(const Settings& settings);

// This program's name, for `tulle status`.
std::string program_name();

}  // namespace tulle::live
