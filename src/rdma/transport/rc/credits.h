#pragma once

// End-to-end credits (IBTA 9.7.7.2): how many receive requests the responder has, as it told in its
// last acknowledgement. They are counted in receive requests that this side's messages consume.

#include <cstdint>

namespace tulle::transport::rc {

// Converts a number of receive requests to an AETH credit code (IBTA 9.7.5.1.2, table 44), and
// back. Code 31 means that no credits are given.
inline constexpr std::uint8_t no_credits_code = 31;
std::uint8_t credit_code(std::uint32_t receives);
std::uint32_t credits_of_code(std::uint8_t code);

class Credits {
 public:
  void message_started() { ++started_; }
  void message_done() { ++done_; }
  // The responder has acknowledged all messages that are done, with this code.
  void update(std::uint8_t code) {
    are_known_ = code != no_credits_code;
    limit_ = done_ + credits_of_code(code);
  }
  // Returns true if the responder has no receive request for the next message, as far as it told.
  bool are_used_up() const {
    return are_known_ && static_cast<std::int32_t>(started_ - limit_) >= 0;
  }

 private:
  std::uint32_t started_ = 0;
  std::uint32_t done_ = 0;
  std::uint32_t limit_ = 0;  // of started_
  bool are_known_ = false;
};

}  // namespace tulle::transport::rc
