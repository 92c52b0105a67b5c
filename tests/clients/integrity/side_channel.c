#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "integrity.h"

static int channel = -1;
static bool is_server;

static int listen_and_accept(const char* port) {
  const struct addrinfo hints = {
      .ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  struct addrinfo* found;
  if (getaddrinfo(NULL, port, &hints, &found) != 0) die("port %s?", port);
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1, no = 0;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (bind(listener, found->ai_addr, found->ai_addrlen) != 0 || listen(listener, 1) != 0) {
    die("cannot listen on TCP port %s: %s", port, strerror(errno));
  }
  freeaddrinfo(found);
  const int connection = accept(listener, NULL, NULL);
  close(listener);
  return connection;
}

static int connect_to(const char* host, const char* port) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct addrinfo* found;
  if (getaddrinfo(host, port, &hints, &found) != 0) die("no such host: %s", host);
  const int connection = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(connection, found->ai_addr, found->ai_addrlen) != 0) {
    die("cannot connect to %s port %s: %s", host, port, strerror(errno));
  }
  freeaddrinfo(found);
  return connection;
}

void side_channel_open(const struct options* options) {
  is_server = options->server == NULL;
  channel =
      is_server ? listen_and_accept(options->port) : connect_to(options->server, options->port);
  if (channel < 0) die("no connection: %s", strerror(errno));
  const int yes = 1;
  setsockopt(channel, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void side_channel_swap(const void* ours, void* theirs, size_t bytes) {
  for (size_t sent = 0; sent < bytes;) {
    const ssize_t n = send(channel, (const char*)ours + sent, bytes - sent, MSG_NOSIGNAL);
    if (n <= 0) die("the peer closed the side channel");
    sent += (size_t)n;
  }
  for (size_t received = 0; received < bytes;) {
    const ssize_t n = recv(channel, (char*)theirs + received, bytes - received, 0);
    if (n <= 0) die("the peer closed the side channel");
    received += (size_t)n;
  }
}

uint64_t side_channel_agree(uint64_t value) {
  uint64_t theirs;
  side_channel_swap(&value, &theirs, sizeof value);
  return is_server ? value : theirs;
}
