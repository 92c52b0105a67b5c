#include "live/agent/session_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "live/message/protocol.h"
#include "live/message/socket.h"
#include "live/slots.h"

namespace tulle::live {

using State = Session::State;

bool SessionTable::remove_closing() {
  const auto is_closing = [](const auto& each) { return each->state == State::closing; };
  return std::erase_if(sessions_, is_closing) > 0;
}

Session* SessionTable::owner_of(std::uint32_t slot) const {
  const auto found = std::ranges::find_if(sessions_, [&](const auto& other) {
    return other->state == State::process && other->slot == slot;
  });
  return found == sessions_.end() ? nullptr : found->get();
}

Session* SessionTable::capture_of(uid_t user) const {
  const auto found = std::ranges::find_if(sessions_, [user](const auto& other) {
    return other->state == State::capture && other->peer.uid == user;
  });
  return found == sessions_.end() ? nullptr : found->get();
}

Session* SessionTable::capture_for(uid_t user) const {
  Session* of_root = capture_of(0);
  return of_root != nullptr ? of_root : capture_of(user);
}

bool SessionTable::may_connect(uid_t user, std::size_t unclosed) const {
  if (user == geteuid()) return true;
  const auto own = std::ranges::count_if(
      sessions_, [&](const auto& session) { return session->peer.uid == user; });
  return static_cast<std::size_t>(own) + unclosed < connections_max;
}

bool SessionTable::may_choose(const Session& session) const {
  constexpr std::size_t choices_max = 16;
  if (session.peer.uid == geteuid()) return true;
  std::set<DeviceChoice> choices = {session.hello.device};
  for (const auto& each : sessions_) {
    const bool is_lasting = each->state == State::process || each->state == State::channel;
    if (is_lasting && each->peer.uid == session.peer.uid) choices.insert(each->hello.device);
    if (choices.size() > choices_max) return false;
  }
  return true;
}

Result<void> SessionTable::has_place_for(uid_t user) const {
  if (user == geteuid()) return {};
  constexpr std::uint32_t own_users_share = 16;
  std::uint32_t of_user = 0;
  std::uint32_t of_others = 0;
  for (const auto& session : sessions_) {
    if (session->state != State::process) continue;
    of_user += session->peer.uid == user;
    of_others += session->peer.uid != geteuid();
  }
  if (of_user >= slots / 2) {
    return Error{fmt::format("user {} has {} processes with the device open, which is the most "
                             "for one user; end some of them",
                             user, slots / 2),
                 EUSERS};
  }
  if (of_others >= slots - 1 - own_users_share) {
    return Error{fmt::format("users other than {} have {} processes with the device open, which is "
                             "the most for all of them",
                             geteuid(), of_others),
                 EUSERS};
  }
  return {};
}

HeldBy SessionTable::holder_of(const DeviceChoice& key, std::size_t index,
                               std::uint32_t version) const {
  HeldBy holder = HeldBy::nobody;
  for (const auto& session : sessions_) {
    const bool has_it = session->state == State::process && session->hello.device == key;
    if (!has_it || (session->version_noted == version && !session->gids_held[index])) continue;
    const bool is_limited = session->peer.uid != geteuid();
    holder = std::max(holder, is_limited ? HeldBy::limited_users : HeldBy::own_user);
  }
  return holder;
}

bool SessionTable::is_used(const DeviceChoice& key) const {
  return std::ranges::any_of(sessions_, [&](const auto& session) {
    const bool is_lasting = session->state == State::process || session->state == State::channel;
    return is_lasting && session->hello.device == key;
  });
}

void SessionTable::tell_changes(const KnownDevices& devices) {
  has_untold_ = false;
  for (auto& session : sessions_) {
    if (session->state != State::process) continue;
    const auto* device = devices.known(session->hello.device);
    if (device == nullptr || device->version == session->version_told) continue;
    const DeviceChanged changed{device->version, device->info};
    if (send_message(session->connection.get(), encode(changed))) {
      session->version_told = changed.version;
    } else {
      has_untold_ = true;
    }
  }
}

}  // namespace tulle::live
