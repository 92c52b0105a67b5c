// What a program has asked of sockets that are not connected: a socket that becomes an ordinary one
// gets the same address and options.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "preload.h"

enum { options_max = 24, value_max = 16, memory_buckets = 1024 };

struct option {
  int level;
  int option;
  socklen_t bytes;
  char value[value_max];
};

struct memory {
  int socket;
  int domain;
  int is_complete;  // has all options
  int count;
  struct option options[options_max];
  struct sockaddr_storage address;
  socklen_t address_bytes;
  struct memory* next;
};
static struct memory* memories[memory_buckets];
static pthread_mutex_t memories_mutex = PTHREAD_MUTEX_INITIALIZER;

// The caller holds the mutex.
static struct memory** memory_at(int socket) {
  struct memory** place = &memories[(unsigned)socket % memory_buckets];
  while (*place != NULL && (*place)->socket != socket) place = &(*place)->next;
  return place;
}

// The entry stays for the number's next socket: a signal handler may set options, and must not
// allocate.
int begin_memory(int socket, int domain) {
  sigset_t before;
  lock(&memories_mutex, &before);
  struct memory** place = memory_at(socket);
  if (*place == NULL) *place = calloc(1, sizeof **place);
  struct memory* its = *place;
  if (its != NULL) {
    *its = (struct memory){.socket = socket, .domain = domain, .is_complete = 1, .next = its->next};
  }
  unlock(&memories_mutex, &before);
  return its != NULL;
}

// Values of memberships add to one another. Of other options, the last one holds.
static int adds_up(const struct option* given) {
  switch (given->level) {
    case IPPROTO_IP:
      return (given->option >= IP_ADD_MEMBERSHIP && given->option <= IP_DROP_SOURCE_MEMBERSHIP) ||
             (given->option >= IP_BLOCK_SOURCE && given->option <= MCAST_MSFILTER);
    case IPPROTO_IPV6:
      return given->option == IPV6_ADD_MEMBERSHIP || given->option == IPV6_DROP_MEMBERSHIP ||
             (given->option >= MCAST_JOIN_GROUP && given->option <= MCAST_MSFILTER);
    default:
      return 0;
  }
}

static void add_option(struct memory* its, const struct option* given) {
  const int adds = adds_up(given);
  int at = 0;
  while (at < its->count && (adds || its->options[at].level != given->level ||
                             its->options[at].option != given->option)) {
    ++at;
  }
  if (at == options_max) {
    its->is_complete = 0;
    return;
  }
  its->options[at] = *given;
  if (at == its->count) ++its->count;
}

void remember_option(int socket, int level, int option, const void* value, socklen_t bytes) {
  if (level == SOL_RDMA) return;
  struct option given = {level, option, bytes, {0}};
  if (bytes <= value_max) memcpy(given.value, value, bytes);
  sigset_t before;
  lock(&memories_mutex, &before);
  struct memory* its = *memory_at(socket);
  if (its != NULL && bytes > value_max) its->is_complete = 0;
  if (its != NULL && bytes <= value_max) add_option(its, &given);
  unlock(&memories_mutex, &before);
}

static in_port_t* port_of(struct sockaddr_storage* address) {
  if (address->ss_family == AF_INET6) return &((struct sockaddr_in6*)address)->sin6_port;
  return &((struct sockaddr_in*)address)->sin_port;
}

// The program may know the port that it was given.
void remember_address(int socket, const struct sockaddr* address, socklen_t bytes) {
  struct sockaddr_storage given = {0}, found = {0};
  socklen_t found_bytes = sizeof found;
  if (bytes > sizeof given) bytes = sizeof given;
  memcpy(&given, address, bytes);
  if (INSIDE(int, rgetsockname(socket, (struct sockaddr*)&found, &found_bytes)) == 0) {
    *port_of(&given) = *port_of(&found);
  }
  sigset_t before;
  lock(&memories_mutex, &before);
  struct memory* its = *memory_at(socket);
  if (its != NULL) its->address = given, its->address_bytes = bytes;
  unlock(&memories_mutex, &before);
}

int recall_address(int socket, struct sockaddr_storage* address, socklen_t* bytes) {
  sigset_t before;
  lock(&memories_mutex, &before);
  const struct memory* its = *memory_at(socket);
  const int domain = its != NULL && its->is_complete ? its->domain : -1;
  if (domain >= 0) *address = its->address, *bytes = its->address_bytes;
  unlock(&memories_mutex, &before);
  return domain;
}

// An option that the kernel refuses is one that it would have refused the program.
void repeat_options(int socket, int fd) {
  struct option options[options_max];
  sigset_t before;
  lock(&memories_mutex, &before);
  const struct memory* its = *memory_at(socket);
  const int count = its != NULL ? its->count : 0;
  if (count > 0) memcpy(options, its->options, (size_t)count * sizeof *options);
  unlock(&memories_mutex, &before);
  for (int i = 0; i < count; ++i) {
    const struct option* each = &options[i];
    setsockopt(fd, each->level, each->option, each->value, each->bytes);
  }
}

// An rsocket holds its port a moment longer if another thread uses it.
int bind_again(int fd, const struct sockaddr_storage* address, socklen_t bytes, int milliseconds) {
  const int64_t due = now_milliseconds() + milliseconds;
  const struct timespec a_moment = {0, 1000000};
  while (bytes > 0 && bind(fd, (const struct sockaddr*)address, bytes) != 0) {
    if (errno != EADDRINUSE || now_milliseconds() >= due) return -1;
    nanosleep(&a_moment, NULL);
  }
  return 0;
}

void lock_memories(void) { pthread_mutex_lock(&memories_mutex); }
void unlock_memories(void) { pthread_mutex_unlock(&memories_mutex); }
