#pragma once

#include <sys/epoll.h>

#include <span>

namespace tulle::rsockets {

// Sets of sockets over RDMA and of descriptors of any other kind, which work like epoll's.
// Functions return 0 or an errno: EBADF if `fd` is no descriptor, EINVAL if it is one of another
// kind.
//
// Where a program asks for edges (EPOLLET), an event of a socket is reported once, and again once
// more data has come, or a call has taken from the socket, or has found no room to send, if the
// event holds then. Other descriptors report levels.
int create_poll_set(bool closes_on_exec, int& fd);
int control_poll_set(int fd, int operation, int member, const epoll_event* event);
int wait_poll_set(int fd, std::span<epoll_event> events, int timeout_milliseconds, int& count);
// Returns false if the descriptor is not a set's.
bool close_poll_set(int fd);

// The socket is closed, and leaves all sets.
void leave_poll_sets(int socket);

}  // namespace tulle::rsockets
