#pragma once

#include <sys/epoll.h>

#include <span>

namespace tulle::rsockets {

// Sets of sockets over RDMA and of descriptors of any other kind, which work like epoll's. They
// report levels, also where a program asks for edges (EPOLLET). Functions return 0 or an errno:
// EBADF if `fd` is no descriptor, EINVAL if it is one of another kind.
int create_poll_set(bool closes_on_exec, int& fd);
int control_poll_set(int fd, int operation, int member, const epoll_event* event);
int wait_poll_set(int fd, std::span<epoll_event> events, int timeout_milliseconds, int& count);
// Returns false if the descriptor is not a set's.
bool close_poll_set(int fd);

}  // namespace tulle::rsockets
