#pragma once

// The traps of a node (IBTA 14.2.5.1): each is sent again and again, slowly, until the subnet
// manager represses it.

#include <array>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/time.h"
#include "management/answer.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {

class TrapSender {
 public:
  enum class Kind : std::uint8_t { link_state, capability, bad_key };
  static constexpr std::size_t kinds = 3;
  // A trap that nobody represses is sent so often, which bounds what a lost manager costs.
  static constexpr int sendings_max = 10;
  static constexpr Time pause = Time::seconds(1);

  // A notice takes the place of an older one of its kind.
  void raise(Time now, Kind kind, std::uint8_t port, const wire::Notice& notice);
  // Ends the sending of the trap that the manager answers. Returns false if it is none of these.
  bool repress(const wire::MadHeader& header);
  // Returns when the next trap is due; never if there is none.
  Time next() const;
  void rebase(Time by) {
    for (Trap& trap : traps_) tulle::rebase(by, trap.due, trap.earliest);
  }

  // Writes the next trap that is due, without the manager's key. Returns its port, if there is one.
  std::optional<std::uint8_t> take(Time now, Answer packet);

 private:
  struct Trap {
    wire::Notice notice;
    std::uint64_t transaction = 0;
    Time due = Time::never();
    Time earliest;
    int sendings_left = 0;
    std::uint8_t port = 0;
  };

  std::array<Trap, kinds> traps_;
  std::uint64_t next_transaction_ = 1;
};

}  // namespace tulle::management::subnet
