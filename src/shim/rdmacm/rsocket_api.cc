// The calls of rsockets. Each works like its namesake in the C library.

#include <pthread.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstring>

#include "live/settings.h"
#include "os/cancellation.h"
#include "shim/rdmacm/newer.h"
#include "shim/rdmacm/objects.h"
#include "shim/rdmacm/rsocket_device.h"
#include "shim/rsockets/protocol/vectors.h"
#include "shim/rsockets/sockets/call_flags.h"
#include "shim/rsockets/sockets/poll_set.h"
#include "shim/rsockets/sockets/stream.h"

namespace tulle::shim::rdmacm {

using rsockets::find_socket;
using rsockets::Socket;
using rsockets::Stream;

namespace {

// Copies an address that a program gave.
int translate(const sockaddr* from, socklen_t bytes, sockaddr_storage& to) {
  if (from == nullptr || bytes < sizeof(sa_family_t)) return EINVAL;
  if (length_of(from) == 0) return EAFNOSUPPORT;
  if (bytes < length_of(from)) return EINVAL;
  std::memcpy(&to, from, length_of(from));
  return 0;
}

void copy_name(const sockaddr_storage& from, sockaddr* to, socklen_t* bytes) {
  const auto* address = reinterpret_cast<const sockaddr*>(&from);
  const socklen_t length = std::max<socklen_t>(length_of(address), sizeof(sa_family_t));
  if (to != nullptr) std::memcpy(to, &from, std::min(length, *bytes));
  *bytes = length;
}

// What recvmsg(2) and recvfrom(2) tell besides the data. Each may be null.
struct Told {
  sockaddr* from = nullptr;
  socklen_t* from_bytes = nullptr;
  int* flags = nullptr;
};

ssize_t receive(int fd, std::span<const iovec> into, int flags, const Told& told = {}) try {
  pthread_testcancel();
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  sockaddr_storage sender = {};
  std::size_t bytes = 0;
  int error = rsockets::check_receive_flags(flags);
  if (error == 0) error = socket->receive(into, flags, &sender, bytes);
  if ((flags & MSG_PEEK) == 0) rsockets::note_edge(*socket, EPOLLIN);
  if (error != 0) return answer(error);
  if (told.from != nullptr && told.from_bytes != nullptr) {
    copy_name(sender, told.from, told.from_bytes);
  }
  const std::size_t room = rsockets::total_bytes(into);
  if (told.flags != nullptr) *told.flags = bytes > room ? MSG_TRUNC : 0;
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? bytes : std::min(bytes, room));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

// read(2) and readv(2) of no bytes take and await nothing, also where a recv(2) would wait.
ssize_t read(int fd, std::span<const iovec> into) {
  if (rsockets::total_bytes(into) > 0) return receive(fd, into, 0);
  return find_socket(fd) != nullptr ? 0 : answer(EBADF);
}

ssize_t send(int fd, std::span<const iovec> from, int flags, const sockaddr* to,
             socklen_t to_bytes) try {
  pthread_testcancel();
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  std::size_t bytes = 0;
  sockaddr_storage address = {};
  int error = rsockets::check_send_flags(flags);
  if (error == 0 && to != nullptr) error = translate(to, to_bytes, address);
  if (error == 0) error = socket->send(from, flags, to != nullptr ? &address : nullptr, bytes);
  if (error == EAGAIN || (error == 0 && bytes < rsockets::total_bytes(from))) {
    rsockets::note_edge(*socket, EPOLLOUT);
  }
  if (error != 0) return answer(error);
  return static_cast<ssize_t>(bytes);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

iovec vector_of(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

bool is_valid(const iovec* vectors, int count) {
  return count >= 0 && (vectors != nullptr || count == 0);
}

// Callers refuse control messages, which have no meaning over RDMA.
bool is_valid(const msghdr* message) {
  return message != nullptr && (message->msg_iov != nullptr || message->msg_iovlen == 0);
}

using NameOf = int (Socket::*)(sockaddr_storage&);

int name(int fd, sockaddr* address, socklen_t* bytes, NameOf name_of) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  // A null address and a length of 0 ask for the length alone: so librspreload learns the family.
  if (bytes == nullptr || (address == nullptr && *bytes > 0)) return answer(EFAULT);
  sockaddr_storage found = {};
  const int error = ((*socket).*name_of)(found);
  if (error == 0) copy_name(found, address, bytes);
  return answer(error);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

std::shared_ptr<Stream> find_stream(int fd) {
  return std::dynamic_pointer_cast<Stream>(find_socket(fd));
}

}  // namespace

extern "C" {

int rsocket(int domain, int type, int protocol) try {
  const NoCancellation guard;
  if (domain != AF_INET && domain != AF_INET6 && domain != AF_IB) return answer(ENOTSUP);
  const bool is_stream = type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  // The header of datagrams has room for addresses of IP alone.
  const bool is_datagram =
      domain != AF_IB && type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  if (!is_stream && !is_datagram) return answer(ENOTSUP);
  // Sockets for datagrams find one another by UDP, in clear.
  if (is_datagram && !live::read_settings().secure.empty()) return answer(EOPNOTSUPP);
  std::shared_ptr<Socket> socket;
  const int error = is_stream ? rsockets::create_stream(rsocket_device(), domain, socket)
                              : rsockets::create_datagram(rsocket_device(), domain, socket);
  if (error != 0) return answer(error);
  const int fd = socket->fd();
  rsockets::add_socket(std::move(socket));
  return fd;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rbind(int fd, const sockaddr* address, socklen_t bytes) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  sockaddr_storage translated = {};
  const int error = translate(address, bytes, translated);
  return answer(error != 0 ? error : socket->bind(translated));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rlisten(int fd, int backlog) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  return answer(socket != nullptr ? socket->listen(backlog) : EBADF);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int raccept(int fd, sockaddr* address, socklen_t* bytes) try {
  pthread_testcancel();
  const NoCancellation guard;
  const auto listener = find_socket(fd);
  if (listener == nullptr) return answer(EBADF);
  std::shared_ptr<Socket> socket;
  const int error = listener->accept(socket);
  rsockets::note_edge(*listener, EPOLLIN);
  if (error != 0) return answer(error);
  if (address != nullptr && bytes != nullptr) {
    sockaddr_storage peer = {};
    socket->peer_name(peer);
    copy_name(peer, address, bytes);
  }
  const int accepted = socket->fd();
  rsockets::add_socket(std::move(socket));
  return accepted;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rconnect(int fd, const sockaddr* address, socklen_t bytes) try {
  pthread_testcancel();
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  sockaddr_storage translated = {};
  // connect(2): AF_UNSPEC dissolves what an earlier call made.
  const bool dissolves =
      address != nullptr && bytes >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC;
  const int error = dissolves ? 0 : translate(address, bytes, translated);
  return answer(error != 0 ? error : socket->connect(translated));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rshutdown(int fd, int how) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  return answer(socket != nullptr ? socket->shutdown(how) : EBADF);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rclose(int fd) try {
  const NoCancellation guard;
  const auto socket = rsockets::remove_socket(fd);
  if (socket == nullptr) return rsockets::close_poll_set(fd) ? 0 : answer(EBADF);
  rsockets::leave_poll_sets(fd);
  socket->close();
  return 0;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

ssize_t rrecv(int fd, void* data, std::size_t bytes, int flags) {
  const iovec into = vector_of(data, bytes);
  return receive(fd, {&into, 1}, flags);
}

ssize_t rrecvfrom(int fd, void* data, std::size_t bytes, int flags, sockaddr* from,
                  socklen_t* from_bytes) {
  const iovec into = vector_of(data, bytes);
  return receive(fd, {&into, 1}, flags, {.from = from, .from_bytes = from_bytes});
}

ssize_t rrecvmsg(int fd, msghdr* message, int flags) {
  if (!is_valid(message)) return answer(EINVAL);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return answer(ENOTSUP);
  Told told = {.flags = &message->msg_flags};
  if (message->msg_name != nullptr) {
    told.from = static_cast<sockaddr*>(message->msg_name);
    told.from_bytes = &message->msg_namelen;
  }
  return receive(fd, {message->msg_iov, message->msg_iovlen}, flags, told);
}

ssize_t rread(int fd, void* data, std::size_t bytes) {
  const iovec into = vector_of(data, bytes);
  return rdmacm::read(fd, {&into, 1});
}

ssize_t rreadv(int fd, const iovec* vectors, int count) {
  if (!is_valid(vectors, count)) return answer(EINVAL);
  return rdmacm::read(fd, {vectors, static_cast<std::size_t>(count)});
}

ssize_t rsend(int fd, const void* data, std::size_t bytes, int flags) {
  const iovec from = vector_of(data, bytes);
  return send(fd, {&from, 1}, flags, nullptr, 0);
}

ssize_t rsendto(int fd, const void* data, std::size_t bytes, int flags, const sockaddr* to,
                socklen_t to_bytes) {
  const iovec from = vector_of(data, bytes);
  return send(fd, {&from, 1}, flags, to, to_bytes);
}

ssize_t rsendmsg(int fd, const msghdr* message, int flags) {
  if (!is_valid(message)) return answer(EINVAL);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return answer(ENOTSUP);
  return send(fd, {message->msg_iov, message->msg_iovlen}, flags,
              static_cast<const sockaddr*>(message->msg_name), message->msg_namelen);
}

ssize_t rwrite(int fd, const void* data, std::size_t bytes) { return rsend(fd, data, bytes, 0); }

ssize_t rwritev(int fd, const iovec* vectors, int count) {
  if (!is_valid(vectors, count)) return answer(EINVAL);
  return send(fd, {vectors, static_cast<std::size_t>(count)}, 0, nullptr, 0);
}

int rgetpeername(int fd, sockaddr* address, socklen_t* bytes) {
  return name(fd, address, bytes, &Socket::peer_name);
}

int rgetsockname(int fd, sockaddr* address, socklen_t* bytes) {
  return name(fd, address, bytes, &Socket::local_name);
}

int rsetsockopt(int fd, int level, int option, const void* value, socklen_t bytes) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  return answer(socket != nullptr ? socket->set_option(level, option, value, bytes) : EBADF);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rgetsockopt(int fd, int level, int option, void* value, socklen_t* bytes) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  if (value == nullptr || bytes == nullptr) return answer(EFAULT);
  return answer(socket->get_option(level, option, value, *bytes));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rfcntl(int fd, int command, ...) try {
  const NoCancellation guard;
  const auto socket = find_socket(fd);
  if (socket == nullptr) return answer(EBADF);
  if (command == F_GETFL) return socket->flags();
  if (command != F_SETFL) return answer(ENOTSUP);
  va_list arguments;
  va_start(arguments, command);
  const int flags = va_arg(arguments, int);
  va_end(arguments);
  return answer(socket->set_flags(flags));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

off_t riomap(int fd, void* buffer, std::size_t bytes, int protection, int, off_t offset) try {
  const NoCancellation guard;
  const auto stream = find_stream(fd);
  if (stream == nullptr) return answer(EBADF);
  std::int64_t at = offset;
  const int error = stream->map(buffer, bytes, protection, at);
  return error == 0 ? at : answer(error);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int riounmap(int fd, void* buffer, std::size_t bytes) try {
  const NoCancellation guard;
  const auto stream = find_stream(fd);
  return answer(stream != nullptr ? stream->unmap(buffer, bytes) : EBADF);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

std::size_t riowrite(int fd, const void* data, std::size_t count, off_t offset, int flags) try {
  const NoCancellation guard;
  const auto stream = find_stream(fd);
  std::size_t bytes = 0;
  const int error = stream != nullptr ? stream->write_mapped(static_cast<const std::byte*>(data),
                                                             count, offset, flags, bytes)
                                      : EBADF;
  return error == 0 ? bytes : static_cast<std::size_t>(answer(error));
} catch (const std::bad_alloc&) {
  return static_cast<std::size_t>(answer(ENOMEM));
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
