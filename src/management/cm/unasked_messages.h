#pragma once

// Limits what a host sends to addresses that have proven nothing.
//
// A request for a connection may have a false source. The answer to each copy of it is no longer
// than the request itself, but a REP that is repeated until an RTU comes, and the REJ that gives it
// up, would make the owner of that address receive many times what the forger sent. An address has
// proven that its messages come from it once it has named a random ID that was sent there. Others
// get a few messages that they have not asked for, so that a lost RTU is noticed between hosts that
// have never spoken, and no more.

#include <cstddef>
#include <cstdint>
#include <set>

#include "base/ids.h"
#include "base/time.h"

namespace tulle::management::cm {

class UnaskedMessages {
 public:
  static constexpr std::uint32_t at_once_max = 64;
  static constexpr Time interval = Time::seconds(1);
  static constexpr std::size_t addresses_max = 2'048;  // remembered, and as many older ones

  void prove(const Gid& address);
  bool is_proven(const Gid& address) const;
  // Counts a message to this address. Returns false if it must not be sent.
  bool may_send(Time now, const Gid& address);
  void rebase(Time by) { tulle::rebase(by, counted_until_); }

 private:
  std::set<Gid> proven_;
  std::set<Gid> proven_before_;
  std::uint32_t left_ = at_once_max;
  Time counted_until_ = Time::zero();
};

}  // namespace tulle::management::cm
