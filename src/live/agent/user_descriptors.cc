#include "live/agent/user_descriptors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "live/message/socket.h"
#include "live/slots.h"
#include "os/service_process.h"

namespace tulle::live {
namespace {

constexpr std::size_t closing_max = 1'024;  // connections of all users
constexpr std::size_t unread_of_capture_max = slots;

}  // namespace

void UserDescriptors::close(const Session& session, UniqueFd fd) {
  if (session.peer.uid != geteuid()) closers_.close(session.peer.uid, std::move(fd));
}

void UserDescriptors::close(const Session& session, std::vector<UniqueFd> fds) {
  if (session.peer.uid != geteuid()) closers_.close(session.peer.uid, std::move(fds));
}

Result<ReceivedMessage> UserDescriptors::receive(const Session& session,
                                                 std::vector<UniqueFd>& of_no_message) {
  const int socket = session.connection.get();
  if (session.peer.uid == geteuid()) return receive_message(socket, &of_no_message);
  return closers_.receive(session.peer.uid, socket, &of_no_message);
}

GivenDescriptor UserDescriptors::given(const Session& session, UniqueFd fd) {
  const bool is_own = session.peer.uid == geteuid();
  return {is_own ? nullptr : &closers_, session.peer.uid, std::move(fd)};
}

void UserDescriptors::finish(UniqueFd listener) {
  closers_.close_socket(geteuid(), std::move(listener));
  for (const auto& session : sessions_) {
    close_connection(*session);
    close(*session, std::move(session->table));
    close(*session, std::move(session->doorbell));
  }
  for (LeftUnread& each : left_unread_) closers_.close_shut(each.user, std::move(each.connection));
  left_unread_.clear();
  closers_.finish();
}

void UserDescriptors::close_connection(Session& session) {
  if (session.peer.uid == geteuid()) return;
  shutdown(session.connection.get(), SHUT_RDWR);
  if (session.descriptors_unread > 0 && !is_all_read(session.connection.get())) {
    left_unread_.push_back(
        {session.peer.uid, session.descriptors_unread, std::move(session.connection)});
  } else {
    closers_.close_shut(session.peer.uid, std::move(session.connection));
  }
}

void UserDescriptors::close_read() {
  for (LeftUnread& each : left_unread_) {
    if (!is_all_read(each.connection.get())) continue;
    closers_.close_shut(each.user, std::move(each.connection));
  }
  std::erase_if(left_unread_, [](const LeftUnread& each) { return !each.connection; });
}

std::size_t UserDescriptors::unclosed(uid_t user) const {
  const auto unread = std::ranges::count(left_unread_, user, &LeftUnread::user);
  return static_cast<std::size_t>(unread) + waiting(user) + closers_.sockets().waiting(user);
}

bool UserDescriptors::has_many_connections() const {
  return closers_.sockets().waiting() >= closing_max;
}

bool UserDescriptors::has_room(const Session& session, std::size_t count) const {
  if (session.peer.uid == geteuid()) return true;
  std::size_t of_user = count;
  std::size_t of_all = count;
  const auto add = [&](uid_t user, std::size_t unread) {
    of_all += unread;
    if (user == session.peer.uid) of_user += unread;
  };
  for (const auto& each : sessions_) {
    std::size_t& unread = each->descriptors_unread;
    if (unread > 0 && is_all_read(each->connection.get())) unread = 0;
    add(each->peer.uid, unread);
  }
  for (const LeftUnread& each : left_unread_) add(each.user, each.descriptors);
  const bool is_capture = session.state == Session::State::capture;
  return of_all <= file_limit() / 4 && of_user <= unread_of_user_max &&
         session.descriptors_unread + count <=
             (is_capture ? unread_of_capture_max : unread_of_connection_max);
}

Result<void> UserDescriptors::send(Session& session, std::span<const std::byte> bytes,
                                   std::span<const int> fds) const {
  if (!has_room(session, fds.size())) {
    return Error{"the user's programs have not read the descriptors that they got", EAGAIN};
  }
  auto sent = send_message(session.connection.get(), bytes, fds);
  if (sent && session.peer.uid != geteuid()) session.descriptors_unread += fds.size();
  return sent;
}

}  // namespace tulle::live
