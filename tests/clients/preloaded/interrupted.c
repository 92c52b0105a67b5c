/* A program of sockets whose calls end in other ways than by returning: its thread is cancelled, or
   a signal handler comes, closes a socket or jumps out. Other threads replace a socket that is in
   use, and a child is made that no handler prepares. Usage: interrupted CASE PORT */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static int port;

struct ends {
  int near, far;
};

static void* connect_to(void* out) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(made, (const struct sockaddr*)&address, sizeof address) == 0);
  *(int*)out = made;
  return NULL;
}

static int listen_at(void) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (const struct sockaddr*)&address, sizeof address) == 0);
  CHECK(listen(listener, 8) == 0);
  return listener;
}

static struct ends pair(int listener) {
  struct ends out;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, connect_to, &out.far) == 0);
  out.near = accept(listener, NULL, NULL);
  CHECK(out.near >= 0);
  CHECK(pthread_join(thread, NULL) == 0);
  return out;
}

static int is_tcp(void) {
  char line[256], wanted[8];
  FILE* table = fopen("/proc/self/net/tcp", "r");
  CHECK(table != NULL);
  int found = 0;
  snprintf(wanted, sizeof wanted, ":%04X", port);
  while (fgets(line, sizeof line, table) != NULL) found |= strstr(line, wanted) != NULL;
  fclose(table);
  return found;
}

/* Opens a file under a number that was a socket's, writes to it, and sees it there. */
static void write_file_at(int number) {
  char name[] = "/tmp/tulle-interrupted-XXXXXX", text[16] = "";
  int file = mkstemp(name);
  CHECK(file >= 0);
  while (file < number) file = open(name, O_WRONLY);
  CHECK(file == number);
  CHECK(write(file, "secret", 6) == 6);
  const int again = open(name, O_RDONLY);
  CHECK(again >= 0 && unlink(name) == 0);
  CHECK(read(again, text, sizeof text) == 6 && memcmp(text, "secret", 6) == 0);
  close(again);
  close(file);
}

static void expect_end(int socket) {
  char bytes[16];
  CHECK(recv(socket, bytes, sizeof bytes, 0) <= 0);
}

static void expect_byte(int from, int to) {
  char byte = 0;
  CHECK(send(from, "b", 1, 0) == 1);
  CHECK(recv(to, &byte, 1, 0) == 1 && byte == 'b');
}

/* --- a thread that is cancelled --- */

static void close_it(void* socket) { close(*(int*)socket); }

static void* wait_for_data(void* socket) {
  char byte;
  pthread_cleanup_push(close_it, socket);
  recv(*(int*)socket, &byte, 1, 0);
  pthread_cleanup_pop(0);
  return NULL;
}

static void cancel(int listener) {
  struct ends ends = pair(listener);
  pthread_t thread;
  void* result;
  CHECK(pthread_create(&thread, NULL, wait_for_data, &ends.near) == 0);
  usleep(100000);
  CHECK(pthread_cancel(thread) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  write_file_at(ends.near);
  expect_end(ends.far);
}

/* --- a thread that is to be cancelled when it comes to a call --- */

static atomic_int calls_made;

static void* close_while_cancelled(void* socket) {
  pthread_cancel(pthread_self());
  close(*(int*)socket);
  return NULL;
}

/* None of these but the last is a cancellation point. */
static void* call_while_cancelled(void* out) {
  const int yes = 1;
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  pthread_cancel(pthread_self());
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(made >= 0 && ++calls_made);
  CHECK(setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 && ++calls_made);
  CHECK(bind(made, (const struct sockaddr*)&any, sizeof any) == 0 && ++calls_made);
  CHECK(listen(made, 1) == 0 && ++calls_made);
  recv(*(int*)out, out, 1, MSG_DONTWAIT);
  return NULL;
}

static void expect_cancelled(void* (*run)(void*), int* socket) {
  pthread_t thread;
  void* result;
  CHECK(pthread_create(&thread, NULL, run, socket) == 0);
  CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void pend(int listener) {
  struct ends closed = pair(listener), kept = pair(listener);
  expect_cancelled(close_while_cancelled, &closed.near);
  expect_end(closed.far);
  expect_cancelled(call_while_cancelled, &kept.near);
  CHECK(calls_made == 4);
  expect_byte(kept.near, kept.far);
}

/* --- a thread that is cancelled anywhere in calls that make and end sockets --- */

static void* make_and_close(void* unused) {
  (void)unused;
  for (;;) {
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(made >= 0);
    close(made);
  }
}

static void sweep(int listener) {
  (void)listener;
  for (int i = 0; i < 200; ++i) {
    pthread_t thread;
    void* result;
    CHECK(pthread_create(&thread, NULL, make_and_close, NULL) == 0);
    usleep(200 + i * 37 % 500);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  }
}

/* --- a socket in use that another replaces --- */

static atomic_int ends_use, waits_for_room;

static void* use(void* socket) {
  const int fd = *(int*)socket;
  static const char bytes[4096];
  while (!ends_use) {
    const ssize_t sent = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    CHECK(sent > 0 || errno == EAGAIN);
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    CHECK(poll(&out, 1, 1) >= 0 && (out.revents & (POLLNVAL | POLLHUP | POLLERR)) == 0);
    waits_for_room = sent < 0;
  }
  return NULL;
}

/* The peers read nothing, so that the end of each socket takes a while. */
static void replace(int listener) {
  struct ends used = pair(listener);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use, &used.near) == 0);
  for (int i = 0; i < 20; ++i) {
    const struct ends next = pair(listener);
    while (i < 3 && !waits_for_room) usleep(1000);
    waits_for_room = 0;
    CHECK(dup2(next.near, used.near) == used.near);
    CHECK(close(next.near) == 0);
  }
  ends_use = 1;
  CHECK(pthread_join(thread, NULL) == 0);
}

/* --- a child of the system call, which runs none of the C library's handlers --- */

static int has_no_connection(int socket) {
  char byte;
  const int sends = send(socket, "b", 1, MSG_NOSIGNAL) >= 0;
  const int tells = errno == ENOTCONN || errno == EPIPE;
  const int receives = recv(socket, &byte, 1, MSG_DONTWAIT) >= 0;
  return !sends && tells && !receives && close(socket) == 0;
}

static void clone_alone(int listener) {
  const struct ends ends = pair(listener);
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  CHECK(child >= 0);
  if (child == 0) {
    alarm(10);
    _exit(has_no_connection(ends.near) ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  expect_byte(ends.near, ends.far);
  expect_byte(ends.far, ends.near);
}

/* --- a signal handler that closes another socket --- */

static int to_close, asks, from_handler;

static void close_another(int signal) {
  (void)signal;
  close(to_close);
  if (asks) from_handler = socket(AF_INET, SOCK_DGRAM, 0);
}

static void interrupt(pthread_t thread, void (*handler)(int)) {
  const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  usleep(100000);
  CHECK(pthread_kill(thread, SIGUSR1) == 0);
  usleep(100000);
}

struct interrupter {
  pthread_t thread;
  struct ends of;
  void (*handler)(int);
};

static void* interrupt_and_send(void* its) {
  struct interrupter* self = its;
  interrupt(self->thread, self->handler);
  CHECK(send(self->of.far, "b", 1, 0) == 1);
  return NULL;
}

static void receive_interrupted(struct interrupter* by) {
  char byte = 0;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, interrupt_and_send, by) == 0);
  ssize_t bytes;
  do {
    bytes = recv(by->of.near, &byte, 1, 0);
  } while (bytes < 0 && errno == EINTR);
  CHECK(bytes == 1 && byte == 'b');
  CHECK(pthread_join(thread, NULL) == 0);
}

static void handle(int listener) {
  const struct ends waiting = pair(listener), closed = pair(listener);
  to_close = closed.near;
  struct interrupter by = {pthread_self(), waiting, close_another};
  receive_interrupted(&by);
  expect_end(closed.far);
  write_file_at(closed.near);
  expect_byte(waiting.near, waiting.far);
}

/* --- signals anywhere in a thread that allocates and sends --- */

enum { ticks = 400, closed_max = 40 };
static int busy_socket, to_close_each[closed_max];
static atomic_int ticks_made, sent_in_handler, closed_in_handler, first_error;

static void check_in_handler(ssize_t result) {
  if (result < 0 && errno != EAGAIN && first_error == 0) first_error = errno;
}

/* What a handler may call, by signal-safety(7). */
static void use_sockets(int signal) {
  (void)signal;
  const int error = errno;
  const ssize_t sent = send(busy_socket, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  char byte;
  check_in_handler(sent);
  if (sent > 0) ++sent_in_handler;
  check_in_handler(recv(busy_socket, &byte, 1, MSG_DONTWAIT));
  struct pollfd asked = {.fd = busy_socket, .events = POLLIN};
  check_in_handler(poll(&asked, 1, 0));
  if (ticks_made % 10 == 0 && closed_in_handler < closed_max) {
    check_in_handler(close(to_close_each[closed_in_handler++]));
  }
  ++ticks_made;
  errno = error;
}

static void* take_all(void* socket) {
  static char bytes[4096];
  size_t total = 0;
  ssize_t got;
  while ((got = recv(*(int*)socket, bytes, sizeof bytes, 0)) > 0) total += (size_t)got;
  *(size_t*)bytes = total;
  return bytes;
}

/* Allocates memory of the arena that the main thread uses, too. */
static void* allocate_always(void* unused) {
  for (unsigned i = 0; ticks_made < ticks; ++i) free(malloc(100 + i * 997 % 5000));
  return unused;
}

static size_t allocate_and_send(void) {
  static void* blocks[512];
  size_t sent = 0;
  for (unsigned turn = 0; ticks_made < ticks; ++turn) {
    for (unsigned i = 0; i < 512; ++i) {
      free(blocks[i]);
      blocks[i] = malloc(16 + (turn * 31 + i * 997) % 3000);
    }
    if (turn % 4 != 0) continue;
    CHECK(send(busy_socket, "m", 1, 0) == 1);
    ++sent;
  }
  return sent;
}

static void tick(int listener) {
  const struct ends ends = pair(listener);
  struct ends closed[closed_max];
  for (int i = 0; i < closed_max; ++i) {
    /* Half of them are connected. */
    closed[i] = i % 2 == 0 ? pair(listener) : (struct ends){socket(AF_INET, SOCK_STREAM, 0), -1};
    to_close_each[i] = closed[i].near;
  }
  busy_socket = ends.near;
  const struct sigaction action = {.sa_handler = use_sockets, .sa_flags = SA_RESTART};
  const struct itimerval often = {{0, 700}, {0, 700}}, never = {{0, 0}, {0, 0}};
  sigset_t alarms;
  pthread_t taker, allocator;
  void* taken;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarms, NULL);
  CHECK(pthread_create(&taker, NULL, take_all, (void*)&ends.far) == 0);
  CHECK(pthread_create(&allocator, NULL, allocate_always, NULL) == 0);
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
  pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
  const size_t sent = allocate_and_send();
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
  errno = first_error;
  CHECK(first_error == 0);
  CHECK(sent > 0 && sent_in_handler > 0 && closed_in_handler == closed_max);
  for (int i = 0; i < closed_max; i += 2) expect_end(closed[i].far);
  CHECK(shutdown(ends.near, SHUT_WR) == 0);
  CHECK(pthread_join(taker, &taken) == 0 && pthread_join(allocator, NULL) == 0);
  CHECK(*(size_t*)taken == sent + (size_t)sent_in_handler);
}

/* --- a signal handler that interrupts a call on the socket that it uses itself --- */

static atomic_int handler_answers[8];

static void use_the_same(int signal) {
  (void)signal;
  char byte;
  struct pollfd asked = {.fd = busy_socket, .events = POLLIN};
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  int at = 0;
#define EXPECT_BUSY(call) handler_answers[at++] = (call) == -1 && errno == EAGAIN
  EXPECT_BUSY(send(busy_socket, "b", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
  EXPECT_BUSY(write(busy_socket, "b", 1));
  EXPECT_BUSY(recv(busy_socket, &byte, 1, MSG_DONTWAIT));
  EXPECT_BUSY(read(busy_socket, &byte, 1));
  EXPECT_BUSY(poll(&asked, 1, 0));
  EXPECT_BUSY(connect(busy_socket, (const struct sockaddr*)&address, sizeof address));
  EXPECT_BUSY(accept(busy_socket, NULL, NULL));
  handler_answers[7] = shutdown(busy_socket, SHUT_WR) == 0;
}

/* The call itself continues, and the socket's other end learns of the shutdown. */
static void same(int listener) {
  const struct ends ends = pair(listener);
  busy_socket = ends.near;
  struct interrupter by = {pthread_self(), ends, use_the_same};
  receive_interrupted(&by);
  for (int i = 0; i < 8; ++i) CHECK(handler_answers[i]);
  expect_end(ends.far);
}

/* --- a signal handler that jumps out of the call --- */

static sigjmp_buf before;

static void jump(int signal) {
  (void)signal;
  siglongjmp(before, 1);
}

static void* interrupt_main(void* thread) {
  interrupt(*(pthread_t*)thread, jump);
  return NULL;
}

static void jump_out_of_accept(int listener) {
  pthread_t self = pthread_self(), thread;
  const int next = dup(STDIN_FILENO);
  close(next);
  if (sigsetjmp(before, 1) == 0) {
    CHECK(pthread_create(&thread, NULL, interrupt_main, &self) == 0);
    accept(listener, NULL, NULL);
    CHECK(!"nobody jumped");
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(dup(STDIN_FILENO) == next && close(next) == 0);
}

static void leap(int listener) {
  jump_out_of_accept(listener);
  const struct ends ends = pair(listener);
  struct interrupter by = {pthread_self(), ends, jump};
  pthread_t thread;
  char byte;
  if (sigsetjmp(before, 1) == 0) {
    CHECK(pthread_create(&thread, NULL, interrupt_and_send, &by) == 0);
    recv(ends.near, &byte, 1, 0);
    CHECK(!"nobody jumped");
  }
  CHECK(recv(ends.near, &byte, 1, 0) == 1);
  const struct ends later = pair(listener);
  expect_byte(later.near, later.far);
  CHECK(close(later.near) == 0);
  write_file_at(later.near);
  expect_end(later.far);
}

/* --- a program that seals what it sends, whose handler asks for a socket --- */

/* The descriptor itself, without the library: a program that inherits it has no more. */
static void expect_no_connection(int socket) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(1), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const long result = syscall(SYS_connect, socket, &address, sizeof address);
  CHECK(result == -1 && errno != ECONNREFUSED);
  const long sent =
      syscall(SYS_sendto, socket, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, &address, sizeof address);
  CHECK(sent == -1 && errno != ECONNREFUSED && errno != EINPROGRESS);
}

static void seal(int listener) {
  const int fresh = socket(AF_INET, SOCK_STREAM, 0);
  const struct ends ends = pair(listener);
  expect_no_connection(fresh);
  expect_no_connection(ends.near);
  expect_no_connection(ends.far);
  asks = 1;
  handle(listener);
  CHECK(from_handler == -1);
  CHECK(socket(AF_INET, SOCK_RAW, IPPROTO_UDP) == -1 && errno == EOPNOTSUPP);
}

/* --- a signal that is let through in a wait alone, and comes before it or in it --- */

static atomic_int signals;

static void count_signal(int signal) {
  (void)signal;
  ++signals;
}

static int wait_by(int way, int fd, int milliseconds, const sigset_t* mask) {
  const struct timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  struct pollfd asked = {.fd = fd, .events = POLLIN};
  if (way == 0) return ppoll(&asked, 1, &limit, mask);
  if (way == 1) {
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    return pselect(fd + 1, &readable, NULL, NULL, &limit, mask);
  }
  struct epoll_event event = {.events = EPOLLIN};
  const int epoll = epoll_create1(0);
  CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
  const int result = epoll_pwait(epoll, &event, 1, milliseconds, mask);
  const int error = errno;
  close(epoll);
  errno = error;
  return result;
}

static void* signal_later(void* thread) {
  usleep(100000);
  pthread_kill(*(pthread_t*)thread, SIGUSR1);
  return NULL;
}

static void mask(int listener) {
  const struct ends ends = pair(listener);
  const struct sigaction action = {.sa_handler = count_signal};
  sigset_t usr1, let_through, now;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  CHECK(pthread_sigmask(SIG_BLOCK, &usr1, &let_through) == 0);
  pthread_t self = pthread_self(), thread;
  for (int way = 0; way < 3; ++way) {
    const int before = signals;
    raise(SIGUSR1);
    CHECK(wait_by(way, ends.near, 10000, &let_through) == -1 && errno == EINTR);
    raise(SIGUSR1);
    CHECK(wait_by(way, ends.near, 0, &let_through) == -1 && errno == EINTR);
    CHECK(pthread_create(&thread, NULL, signal_later, &self) == 0);
    CHECK(wait_by(way, ends.near, 10000, &let_through) == -1 && errno == EINTR);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(signals == before + 3);
    /* What the mask keeps back comes later. */
    raise(SIGUSR1);
    CHECK(wait_by(way, ends.near, 50, &usr1) == 0 && signals == before + 3);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) == 0 && signals == before + 4);
    CHECK(pthread_create(&thread, NULL, signal_later, &self) == 0);
    CHECK(wait_by(way, ends.near, 300, &usr1) == 0 && signals == before + 5);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &usr1, &now) == 0 && !sigismember(&now, SIGUSR1));
    expect_byte(ends.far, ends.near);
  }
}

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    void (*run)(int listener);
  } cases[] = {{"cancel", cancel}, {"clone", clone_alone}, {"handle", handle},   {"leap", leap},
               {"mask", mask},     {"pend", pend},         {"replace", replace}, {"same", same},
               {"seal", seal},     {"sweep", sweep},       {"tick", tick}};
  CHECK(count == 3);
  port = atoi(arguments[2]);
  const int listener = listen_at();
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(cases[i].name, arguments[1]) != 0) continue;
    cases[i].run(listener);
    CHECK(!is_tcp());
    puts("ok");
    return 0;
  }
  return 2;
}
