#pragma once

// The connections to the host agent, and what users other than the agent's own may have of them.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "live/agent/known_devices.h"
#include "live/agent/session.h"
#include "live/device_choice.h"

namespace tulle::live {

class SessionTable {
 public:
  // A process has one connection for its device and one for each event channel.
  static constexpr std::size_t connections_max = 512;

  auto begin() const { return sessions_.begin(); }
  auto end() const { return sessions_.end(); }
  bool empty() const { return sessions_.empty(); }
  void add(std::unique_ptr<Session> session) { sessions_.push_back(std::move(session)); }
  // Removes those that are closing. Returns false if there are none.
  bool remove_closing();

  // Returns the process that has a slot, or null.
  Session* owner_of(std::uint32_t slot) const;
  // Returns the capture that a user runs, or null.
  Session* capture_of(uid_t user) const;
  // Returns the capture that gets the frames of a user's processes, or null. Root's capture comes
  // before the user's own.
  Session* capture_for(uid_t user) const;

  // Returns false if a user has too many connections. Users other than the agent's are limited,
  // because each connection costs descriptors, which the other users need too. `unclosed` are the
  // user's descriptors that are not closed yet.
  bool may_connect(uid_t user, std::size_t unclosed) const;
  // Returns false if the session's device is one more than its user may have. The devices of a user
  // who is limited differ in few ways: the agent reads all of them when an address changes, and
  // when a packet is sent.
  bool may_choose(const Session& session) const;
  // Returns an error if a user may have no further slot. A user that is not the agent's gets at
  // most half of the slots, so that one of them cannot keep others out. All of them together leave
  // some to the agent's own user.
  Result<void> has_place_for(uid_t user) const;

  // Returns which processes use an address of a device that has that version. A process counts as
  // using it until it has said that it does not.
  HeldBy holder_of(const DeviceChoice& key, std::size_t index, std::uint32_t version) const;
  bool is_used(const DeviceChoice& key) const;
  // Notifies all processes that have not been notified of the latest changes of their device.
  void tell_changes(const KnownDevices& devices);
  // Returns true if that failed for some, because their connection was full.
  bool has_untold() const { return has_untold_; }

 private:
  std::vector<std::unique_ptr<Session>> sessions_;
  bool has_untold_ = false;
};

}  // namespace tulle::live
