#include "live/message/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "live/message/codec.h"
#include "os/system_error.h"

namespace tulle::live {
namespace {

constexpr int backlog = 128;
constexpr int turn_looks_max = 50;  // one every 10 ms

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

Result<Address> parse(const std::string& text) {
  Address address;
  address.name.sun_family = AF_UNIX;
  if (text.size() < 2 || text.size() >= sizeof(address.name.sun_path)) {
    return Error{fmt::format("the agent's address \"{}\" is neither @name nor a path of less than "
                             "{} bytes",
                             text, sizeof(address.name.sun_path)),
                 EINVAL};
  }
  std::memcpy(address.name.sun_path, text.data(), text.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  if (text[0] == '@') {
    address.name.sun_path[0] = '\0';
  } else {
    ++address.bytes;  // the terminating zero
  }
  return address;
}

UniqueFd new_socket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The place of a path: its folder, which is opened once, and the name in it. A user who may write
// above the folder can move it, and cannot lead this process elsewhere.
struct Place {
  UniqueFd folder;
  std::string name;
  std::string given;

  // Returns the path by which system calls reach the place: the given one where there is no /proc.
  std::string path() const {
    if (access("/proc/self/fd", X_OK) != 0) return given;
    return fmt::format("/proc/self/fd/{}/{}", folder.get(), name);
  }
};

// Opens the folder, and locks it where its reader may, so that agents that start at one path take
// turns. Otherwise the second agent would find the first one's path bound but not yet listening,
// take that agent for dead, and remove its path.
Place take_turn(const std::string& address) {
  const std::size_t slash = address.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : address.substr(0, slash + 1);
  Place place{UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
              slash == std::string::npos ? address : address.substr(slash + 1), address};
  if (!place.folder) {
    place.folder.reset(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return place;
  }
  // An agent needs a moment only. Any user who may read the folder may lock it for longer.
  for (int i = 0; i < turn_looks_max; ++i) {
    if (flock(place.folder.get(), LOCK_EX | LOCK_NB) == 0) break;
    usleep(10'000);
  }
  return place;
}

// Removes a socket at which no process listens any more, since it is in the way of the next agent.
bool remove_stale(const Place& place) {
  struct stat status {};
  const bool is_socket =
      fstatat(place.folder.get(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISSOCK(status.st_mode);
  if (!is_socket) return false;
  const auto connection = connect_to(place.path());
  if (connection || connection.error().error_number != ECONNREFUSED) return false;
  return unlinkat(place.folder.get(), place.name.c_str(), 0) == 0;
}

// Lets everybody connect, whatever the process's umask. Links are not followed: the mode is that of
// a socket of this user, whatever has come to the place.
void open_to_all(const Place& place) {
  const UniqueFd found(
      openat(place.folder.get(), place.name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!found || fstat(found.get(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode) || status.st_uid != geteuid()) return;
  chmod(fmt::format("/proc/self/fd/{}", found.get()).c_str(), 0666);
}

// Binds a socket to a path, in the place of one that a dead agent left behind.
Result<void> bind_to_path(int socket, const std::string& text) {
  const Place place = take_turn(text);
  if (!place.folder) return system_error("cannot listen at " + text);
  auto address = parse(place.path());
  if (!address) return address.error();
  const auto* name = reinterpret_cast<const sockaddr*>(&address->name);
  fchmod(socket, 0600);  // the mode that the file begins with
  int failed = bind(socket, name, address->bytes);
  if (failed != 0 && errno == EADDRINUSE && remove_stale(place)) {
    failed = bind(socket, name, address->bytes);
  }
  if (failed != 0) return system_error("cannot listen at " + text);
  if (geteuid() == 0) open_to_all(place);
  if (listen(socket, backlog) != 0) return system_error("cannot listen");
  return {};
}

enum class Descriptors : std::uint8_t { received, left_out };

Result<ReceivedMessage> receive(int socket, int flags, Descriptors descriptors,
                                std::vector<UniqueFd>* of_no_message = nullptr) {
  ReceivedMessage message;
  // Looks at the message's size first, because room for the largest message would cost more than
  // most messages.
  ssize_t bytes;
  do {
    bytes = recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return system_error("cannot receive from the agent's socket");
  message.bytes.resize(std::min(static_cast<std::size_t>(bytes), message_bytes_max));
  RoomForDescriptors room;
  iovec piece{message.bytes.data(), message.bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (descriptors == Descriptors::received) {
    header.msg_control = room.bytes;
    header.msg_controllen = sizeof(room.bytes);
  }
  ssize_t received;
  do {
    received = recvmsg(socket, &header, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return system_error("cannot receive from the agent's socket");
  message.fds = descriptors_of(header);
  const bool is_cut = (header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
  if ((received == 0 || is_cut) && of_no_message != nullptr)
    *of_no_message = std::move(message.fds);
  if (received == 0) return Error{"the other end has closed the connection", ECONNRESET};
  message.bytes.resize(static_cast<std::size_t>(received));
  if (is_cut) {
    return Error{"a message of the agent's was cut short: too many open files?", EMFILE};
  }
  return message;
}

// The kernel reports an error once, before the messages that are there.
ssize_t look(int socket, msghdr& header) {
  const ssize_t bytes = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
  return bytes < 0 ? recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT) : bytes;
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& text) {
  auto address = parse(text);
  if (!address) return address.error();
  UniqueFd fd = new_socket();
  if (!fd) return system_error("cannot make a socket");
  if (text[0] != '@') {
    if (auto bound = bind_to_path(fd.get(), text); !bound) return bound.error();
    return fd;
  }
  const auto* name = reinterpret_cast<const sockaddr*>(&address->name);
  if (bind(fd.get(), name, address->bytes) != 0) return system_error("cannot listen at " + text);
  if (listen(fd.get(), backlog) != 0) return system_error("cannot listen");
  return fd;
}

Result<UniqueFd> connect_to(const std::string& text) {
  auto address = parse(text);
  if (!address) return address.error();
  UniqueFd fd = new_socket();
  if (!fd) return system_error("cannot make a socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address->name), address->bytes) != 0) {
    return system_error("cannot connect to " + text);
  }
  return fd;
}

Result<UniqueFd> connect_patiently(const std::string& text, int milliseconds) {
  constexpr int pause_milliseconds = 10;
  auto connection = connect_to(text);
  for (int waited = 0;
       !connection && connection.error().error_number == EAGAIN && waited < milliseconds;
       waited += pause_milliseconds) {
    usleep(pause_milliseconds * 1'000);
    connection = connect_to(text);
  }
  return connection;
}

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return system_error("cannot find out who is at the other end");
  }
  return Peer{credentials.pid, credentials.uid};
}

pid_t process_at(int socket) {
  auto peer = peer_of(socket);
  return peer ? peer->pid : 0;
}

Result<UniqueFd> watched_process(int socket) {
  constexpr int so_peerpidfd = 77;  // SO_PEERPIDFD, which some headers lack
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, so_peerpidfd, &fd, &size) == 0) return UniqueFd(fd);
  if (errno != ENOPROTOOPT) return system_error("cannot watch the process at the other end");
  // Another process of the system may have got the number by now.
  const pid_t process = process_at(socket);
  if (process <= 0) return UniqueFd();
  fd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (fd < 0) return system_error("cannot watch the process at the other end");
  return UniqueFd(fd);
}

std::vector<UniqueFd> descriptors_of(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Result<void> send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  TULLE_CHECK(fds.size() <= fds_max);
  alignas(cmsghdr) std::byte control[CMSG_SPACE(fds_max * sizeof(int))] = {};
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return system_error("cannot send to the agent's socket");
  return {};
}

Result<ReceivedMessage> receive_message(int socket, std::vector<UniqueFd>* of_no_message) {
  return receive(socket, 0, Descriptors::received, of_no_message);
}
Result<ReceivedMessage> receive_bytes(int socket) {
  return receive(socket, 0, Descriptors::left_out);
}
Result<ReceivedMessage> peek_message(int socket) {
  return receive(socket, MSG_PEEK, Descriptors::received);
}

// A look without room for descriptors makes none, and says that some are missing.
Result<bool> next_has_descriptors(int socket) {
  msghdr header{};
  if (look(socket, header) < 0) return system_error("cannot receive from the agent's socket");
  return (header.msg_flags & MSG_CTRUNC) != 0;
}

bool is_all_read(int socket) {
  int unread_bytes = 0;
  return ioctl(socket, SIOCOUTQ, &unread_bytes) == 0 && unread_bytes == 0;
}

// Credentials tell an empty message from the end. They leave no room for descriptors.
bool drop_messages(int socket) {
  constexpr int messages_max = 4'096;
  const int yes = 1;
  if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0) return false;
  for (int i = 0; i < messages_max; ++i) {
    alignas(cmsghdr) std::byte credentials[CMSG_SPACE(sizeof(ucred))];
    msghdr header{};
    const auto look_once = [&] {
      header.msg_control = credentials;
      header.msg_controllen = sizeof credentials;
      return recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
    };
    // The kernel reports an error once, before the messages that are there.
    if (look_once() < 0 && look_once() < 0) return errno == EAGAIN;
    if ((header.msg_flags & MSG_CTRUNC) != 0) return false;
    if (header.msg_controllen == 0) return true;
    recv(socket, nullptr, 0, MSG_DONTWAIT | MSG_TRUNC);
  }
  return false;
}

Result<ReceivedMessage> await_message(int socket, int timeout_milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_milliseconds);
  for (;;) {
    auto message = receive_message(socket);
    if (message || message.error().error_number != EAGAIN) return message;
    // Not less than the time-out: callers tell by the time whether there was an answer.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Error{"no answer in time", ETIMEDOUT};
    pollfd readable{socket, POLLIN, 0};
    poll(&readable, 1, static_cast<int>(left));
  }
}

}  // namespace tulle::live
