#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/packed.h"
#include "base/result.h"

namespace tulle::sim {

// The bytes of one message, which are in several places. Their order counts.
using Pieces = std::vector<std::span<const std::byte>>;

// The processes that simulate one network together. Each has its own parts of it (sim/part.h) in
// its memory, and sends the others what crosses. This room sends nothing: who runs a simulation has
// the processes.
class Processes {
 public:
  virtual ~Processes() = default;

  // Returns the number of this process, which is less than count().
  virtual std::uint32_t number() const = 0;
  // Returns how many processes there are, at least 1.
  virtual std::uint32_t count() const = 0;
  // Sends to[n] to process n, and puts what that has sent into from[n]. All processes call this as
  // often as each other, and each waits for the others. Both lists have count() elements, of which
  // this process's own is not used. A message has at most pieces_max pieces, and comes in one.
  // Throws std::runtime_error, with one line, if a process cannot be reached.
  virtual void exchange_pieces(const std::vector<Pieces>& to, std::vector<Bytes>& from) = 0;
  static constexpr std::size_t pieces_max = 32;

  // Does the same with messages of one piece each.
  void exchange(const std::vector<Bytes>& to, std::vector<Bytes>& from);
};

// Returns what each process says. All of them call this as often as each other.
std::vector<std::string> ask_all(Processes& processes, const std::string& says);
// Fails in all processes if it fails in one, with the error of the first one in which it does. All
// of them call this as often as each other.
Result<void> agree(Processes& processes, const Result<void>& own);

// Returns the line that says that a process has sent what none of this build sends.
std::string damaged_message(std::uint32_t process);
// Throws it as std::runtime_error.
[[noreturn]] void fail_at(std::uint32_t process);

}  // namespace tulle::sim
