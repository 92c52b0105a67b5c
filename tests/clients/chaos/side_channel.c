#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "chaos.h"

static int listener = -1;
static int channel = -1;

static struct sockaddr_un address(void) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  strncpy(at.sun_path, options.socket, sizeof at.sun_path - 1);
  return at;
}

static void listen_if_needed(void) {
  if (listener >= 0) return;
  const struct sockaddr_un at = address();
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return;
  unlink(options.socket);
  if (bind(made, (const struct sockaddr*)&at, sizeof at) == 0 && listen(made, 4) == 0)
    listener = made;
  else
    close(made);
}

static bool accept_one(void) {
  listen_if_needed();
  struct pollfd waiting = {.fd = listener, .events = POLLIN};
  if (listener < 0 || poll(&waiting, 1, 5) <= 0) return false;
  for (int next; (next = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    if (channel >= 0) close(channel); /* only the last one who came is still there */
    channel = next;
  }
  return channel >= 0;
}

static bool connect_once(void) {
  const struct sockaddr_un at = address();
  channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (channel < 0) return false;
  if (connect(channel, (const struct sockaddr*)&at, sizeof at) == 0) return true;
  side_channel_close();
  return false;
}

bool side_channel_open(void) { return options.is_server ? accept_one() : connect_once(); }

void side_channel_close(void) {
  if (channel >= 0) close(channel);
  channel = -1;
}

void side_channel_leave(void) {
  side_channel_close();
  if (listener >= 0) close(listener);
  listener = -1;
}

bool side_channel_swap(const void* ours, void* theirs, size_t bytes) {
  size_t sent = 0, received = 0;
  while (sent < bytes || received < bytes) {
    obey();
    if (asked_to_close()) return false;
    struct pollfd waiting = {.fd = channel,
                             .events = (short)(POLLIN | (sent < bytes ? POLLOUT : 0))};
    if (poll(&waiting, 1, 2) <= 0) continue;
    ssize_t n =
        sent < bytes ? send(channel, (const char*)ours + sent, bytes - sent, MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n > 0) sent += (size_t)n;
    if (received == bytes) continue;
    n = recv(channel, (char*)theirs + received, bytes - received, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (n > 0) received += (size_t)n;
  }
  return true;
}
