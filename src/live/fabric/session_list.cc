#include "live/fabric/session_list.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "live/fabric/datagrams.h"

namespace tulle::live {
namespace {

static_assert(SessionList::sessions_max == 1'024, "the text says it");
constexpr char too_many_text[] = "the fabric has 1024 connections, which is the most";

}  // namespace

FabricSession* SessionList::find(std::uint32_t id) const {
  const auto found =
      std::ranges::find_if(sessions_, [id](const auto& each) { return each->id == id; });
  return found == sessions_.end() ? nullptr : found->get();
}

std::uint32_t SessionList::unused_id() {
  do {
    next_id_ = next_id_ + 1 < HostClients::numbers_begin ? next_id_ + 1 : 1;
  } while (find(next_id_) != nullptr);
  return next_id_;
}

void SessionList::end_silent() {
  const auto is_silent = [](const auto& each) {
    constexpr int look = MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT;
    return !each->has_said && !each->is_over && recv(each->connection.get(), nullptr, 0, look) <= 0;
  };
  const auto silent = std::ranges::count_if(sessions_, is_silent);
  if (static_cast<std::size_t>(silent) <= silent_max) return;
  (*std::ranges::find_if(sessions_, is_silent))->is_over = true;
}

std::string SessionList::no_place_for(const FabricSession& session, bool is_command) const {
  const auto all = left_unread_.size() + static_cast<std::size_t>(std::ranges::count_if(
                                             sessions_, [](const auto& s) { return s->has_said; }));
  const auto open = std::ranges::count_if(sessions_, [&](const auto& each) {
    return each->has_said && !each->is_over && each->process == session.process;
  });
  const auto left = std::ranges::count(left_unread_, session.process, &LeftUnread::process);
  const auto own = static_cast<std::size_t>(open + left);
  if (all > sessions_max + (is_command ? commands_max : 0)) return too_many_text;
  if (own <= (session.process > 0 ? sessions_of_process_max : sessions_of_unknown_max)) return {};
  if (session.process <= 0) {
    return fmt::format(
        "programs of other PID namespaces have {} connections to the fabric, which "
        "is the most for them",
        sessions_of_unknown_max);
  }
  return fmt::format(
      "process {} has {} connections to the fabric, which is the most for one process",
      session.process, sessions_of_process_max);
}

bool SessionList::has_room_for_file(const FabricSession& session, std::size_t bytes) {
  std::size_t own = bytes;
  std::size_t all = bytes;
  const auto add = [&](pid_t process, std::size_t unread) {
    all += unread;
    if (process == session.process) own += unread;
  };
  for (const auto& each : sessions_) {
    std::size_t& unread = each->unread_file_bytes;
    if (unread > 0 && is_all_read(each->datagrams.get())) unread = 0;
    add(each->process, unread);
  }
  for (const LeftUnread& each : left_unread_) {
    if (!is_all_read(each.datagrams.get())) add(each.process, each.file_bytes);
  }
  return has_room_for_files(own, all);
}

void SessionList::leave_unread(FabricSession& session) {
  left_unread_.push_back(
      {session.sender(), session.process, session.unread_file_bytes, std::move(session.datagrams)});
}

}  // namespace tulle::live
