/* A program of sockets that expects of each call what Linux does over TCP. It passes without any
   library in between, too. Usage: like_tcp CASE PORT */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)
#define CHECK_FAILS(call, error) CHECK((call) == -1 && errno == (error))

static int port, listener;
/* The ends of a connection. */
static int near, far;

static struct sockaddr_in address_of(int number) {
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(number), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static void listen_at(int number) {
  const struct sockaddr_in address = address_of(number);
  const int yes = 1;
  listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
  CHECK(bind(listener, (const struct sockaddr*)&address, sizeof address) == 0);
  CHECK(listen(listener, 8) == 0);
}

static void connect_ends(void) {
  const struct sockaddr_in address = address_of(port);
  near = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(near, (const struct sockaddr*)&address, sizeof address) == 0);
  far = accept(listener, NULL, NULL);
  CHECK(far >= 0);
}

static int file_of(size_t bytes) {
  char name[] = "/tmp/tulle-like-tcp-XXXXXX";
  const int file = mkstemp(name);
  CHECK(file >= 0 && unlink(name) == 0);
  for (size_t i = 0; i < bytes; i += sizeof(unsigned)) {
    const unsigned number = (unsigned)i;
    CHECK(write(file, &number, sizeof number) == sizeof number);
  }
  CHECK(lseek(file, 0, SEEK_SET) == 0);
  return file;
}

/* --- what a socket is, and the end of its writing --- */

static int domain_of(int socket) {
  int domain = -1;
  socklen_t bytes = sizeof domain;
  CHECK(getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && bytes == sizeof domain);
  return domain;
}

static int pipes;

static void count_pipe(int signal) {
  (void)signal;
  ++pipes;
}

static void shut_writing(void) {
  const struct iovec one = {"x", 1};
  CHECK(domain_of(near) == AF_INET && domain_of(far) == AF_INET && domain_of(listener) == AF_INET);
  CHECK(domain_of(socket(AF_INET, SOCK_STREAM, 0)) == AF_INET);
  CHECK(domain_of(socket(AF_INET6, SOCK_STREAM, 0)) == AF_INET6);
  CHECK(domain_of(socket(AF_INET, SOCK_DGRAM, 0)) == AF_INET);
  CHECK(signal(SIGPIPE, count_pipe) != SIG_ERR);
  CHECK(shutdown(near, SHUT_WR) == 0);
  CHECK_FAILS(send(near, "x", 1, MSG_NOSIGNAL), EPIPE);
  CHECK(pipes == 0);
  CHECK_FAILS(send(near, "x", 1, 0), EPIPE);
  CHECK_FAILS(write(near, "x", 1), EPIPE);
  CHECK_FAILS(writev(near, &one, 1), EPIPE);
  CHECK(pipes == 3);
  char byte;
  CHECK(recv(far, &byte, 1, 0) == 0);
  CHECK(send(far, "y", 1, 0) == 1 && recv(near, &byte, 1, 0) == 1 && byte == 'y');
}

/* --- sendfile() --- */

static size_t receive_numbers(size_t at) {
  unsigned numbers[1024];
  size_t bytes = 0;
  ssize_t got;
  while ((got = recv(far, (char*)numbers + bytes % sizeof numbers,
                     sizeof numbers - bytes % sizeof numbers, MSG_DONTWAIT)) > 0) {
    for (size_t i = 0; i < (size_t)got; ++i) {
      const size_t position = at + bytes + i;
      const unsigned expected = (unsigned)(position / sizeof expected * sizeof expected);
      CHECK(((const char*)numbers)[(bytes + i) % sizeof numbers] ==
            ((const char*)&expected)[position % sizeof expected]);
    }
    bytes += (size_t)got;
  }
  return bytes;
}

static void send_file(void) {
  enum { total = 3000000 };
  int ends[2];
  char byte;
  CHECK(pipe(ends) == 0 && write(ends[1], "kept", 4) == 4);
  off_t offset = 0;
  CHECK_FAILS(sendfile(near, ends[0], NULL, 4), EINVAL);
  CHECK_FAILS(sendfile(near, ends[0], &offset, 4), ESPIPE);
  CHECK(read(ends[0], &byte, 1) == 1 && byte == 'k');
  CHECK_FAILS(sendfile(near, far, NULL, 4), EINVAL);
  CHECK_FAILS(sendfile(near, 1 << 20, NULL, 4), EBADF);

  const int file = file_of(total);
  CHECK(fcntl(near, F_SETFL, O_NONBLOCK) == 0);
  size_t received = 0;
  off_t at = 0;
  while (received < total) {
    const int has_offset = received % 2 == 0;
    const off_t position = lseek(file, at, SEEK_SET);
    const ssize_t sent = sendfile(near, file, has_offset ? &at : NULL, 1 << 16);
    CHECK(sent >= 0 || errno == EAGAIN);
    CHECK(lseek(file, 0, SEEK_CUR) == (has_offset || sent < 0 ? position : position + sent));
    if (!has_offset && sent > 0) at += sent;
    CHECK(at == position + (sent > 0 ? sent : 0));
    if (sent <= 0) received += receive_numbers(received);
  }
  CHECK(sendfile(near, file, NULL, 0) == 0);
}

/* --- a process without descriptors for what it accepts --- */

static int connect_one(void) {
  const struct sockaddr_in address = address_of(port);
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(made, (const struct sockaddr*)&address, sizeof address) == 0);
  CHECK(send(made, "hello", 5, 0) == 5);
  return made;
}

/* Returns how many descriptors were made, which are copies of standard input. */
static int fill_descriptors(int* copies) {
  int count = 0;
  while ((copies[count] = dup(STDIN_FILENO)) >= 0) ++count;
  CHECK(errno == EMFILE);
  return count;
}

static void accept_without_descriptors(void) {
  const struct rlimit limit = {256, 256};
  static int copies[256];
  char bytes[8];
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const int client = connect_one();
  struct pollfd asked = {.fd = listener, .events = POLLIN};
  CHECK(poll(&asked, 1, 10000) == 1);
  int count = fill_descriptors(copies);
  for (int i = 0; i < 3; ++i) CHECK_FAILS(accept(listener, NULL, NULL), EMFILE);
  CHECK(poll(&asked, 1, 0) == 1);
  while (count > 0) close(copies[--count]);
  const int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  CHECK(server >= 0);
  CHECK(fcntl(server, F_GETFD) == FD_CLOEXEC && (fcntl(server, F_GETFL) & O_NONBLOCK) != 0);
  asked.fd = server;
  CHECK(poll(&asked, 1, 10000) == 1);
  CHECK(recv(server, bytes, sizeof bytes, 0) == 5 && memcmp(bytes, "hello", 5) == 0);
  close(client);
  /* A call that accepts nothing keeps no descriptor. */
  CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
  const int next = dup(STDIN_FILENO);
  close(next);
  CHECK_FAILS(accept(listener, NULL, NULL), EAGAIN);
  CHECK(dup(STDIN_FILENO) == next);
  const int client_again = connect_one();
  CHECK(fcntl(listener, F_SETFL, 0) == 0);
  CHECK(fcntl(accept(listener, NULL, NULL), F_GETFD) == 0);
  close(client_again);
}

/* --- the flags of calls that move data --- */

static void* send_later(void* text) {
  usleep(200000);
  CHECK(send(near, text, strlen(text), 0) == (ssize_t)strlen(text));
  return NULL;
}

static int waiting_bytes(int socket) {
  int count = -1;
  CHECK(ioctl(socket, FIONREAD, &count) == 0);
  return count;
}

static void send_and_await(const char* text) {
  const int before = waiting_bytes(far);
  CHECK(send(near, text, strlen(text), MSG_NOSIGNAL | MSG_MORE | MSG_DONTWAIT) ==
        (ssize_t)strlen(text));
  CHECK(send(near, "", 0, 0) == 0);
  while (waiting_bytes(far) < before + (int)strlen(text)) usleep(1000);
}

static void expect_text(const char* text) {
  char bytes[64] = "";
  CHECK(recv(far, bytes, sizeof bytes, MSG_DONTWAIT) == (ssize_t)strlen(text));
  CHECK(strcmp(bytes, text) == 0);
}

static void use_flags(void) {
  char bytes[64] = "";
  struct iovec none = {bytes, 0}, few = {bytes, 2};
  struct msghdr message = {.msg_iov = &few, .msg_iovlen = 1, .msg_flags = -1};
  pthread_t thread;
  CHECK(read(far, bytes, 0) == 0 && readv(far, &none, 1) == 0 && write(far, bytes, 0) == 0);
  CHECK_FAILS(recv(far, bytes, 0, MSG_DONTWAIT), EAGAIN);
  CHECK_FAILS(recv(far, NULL, 4, MSG_TRUNC | MSG_DONTWAIT), EAGAIN);

  send_and_await("data");
  CHECK(read(far, bytes, 0) == 0 && recv(far, bytes, 0, 0) == 0);
  CHECK_FAILS(recv(far, bytes, 4, MSG_ERRQUEUE), EAGAIN);
  CHECK_FAILS(recv(far, bytes, 4, MSG_OOB | MSG_DONTWAIT), EINVAL);
  CHECK(recv(far, NULL, 3, MSG_PEEK | MSG_TRUNC) == 3);
  CHECK(recv(far, bytes, 64, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT) == 4);
  expect_text("data");

  send_and_await("discarded");
  CHECK(recv(far, NULL, 7, MSG_TRUNC | MSG_NOSIGNAL) == 7);
  CHECK(recvmsg(far, &message, MSG_CMSG_CLOEXEC) == 2 && (message.msg_flags & MSG_TRUNC) == 0);
  CHECK(memcmp(bytes, "ed", 2) == 0);

  send_and_await("half");
  CHECK(pthread_create(&thread, NULL, send_later, "rest") == 0);
  CHECK(recv(far, bytes, 8, MSG_PEEK | MSG_WAITALL) == 8 && memcmp(bytes, "halfrest", 8) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  expect_text("halfrest");
  CHECK(pthread_create(&thread, NULL, send_later, "last") == 0);
  CHECK(recv(far, NULL, 4, MSG_TRUNC | MSG_WAITALL) == 4);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void use_flags_of_datagrams(void) {
  const int sender = socket(AF_INET, SOCK_DGRAM, 0), receiver = socket(AF_INET, SOCK_DGRAM, 0);
  const struct sockaddr_in address = address_of(port + 1);
  const struct sockaddr* to = (const struct sockaddr*)&address;
  char bytes[64];
  struct iovec few = {bytes, 4};
  struct msghdr message = {.msg_iov = &few, .msg_iovlen = 1};
  CHECK(bind(receiver, to, sizeof address) == 0);
  CHECK_FAILS(sendto(sender, "!", 1, MSG_OOB, to, sizeof address), EOPNOTSUPP);
  CHECK_FAILS(recv(receiver, bytes, 4, MSG_ERRQUEUE), EAGAIN);
  for (int i = 0; i < 5; ++i) CHECK(sendto(sender, "0123456789", 10, 0, to, sizeof address) == 10);
  CHECK(recv(receiver, bytes, 4, MSG_PEEK) == 4);
  CHECK(read(receiver, bytes, 0) == 0);
  CHECK(waiting_bytes(receiver) == 10);
  CHECK(recv(receiver, bytes, 4, 0) == 4);
  CHECK(recv(receiver, bytes, 4, MSG_TRUNC) == 10);
  CHECK(recvmsg(receiver, &message, 0) == 4 && message.msg_flags == MSG_TRUNC);
  CHECK(recvmsg(receiver, &message, MSG_TRUNC) == 10 && message.msg_flags == MSG_TRUNC);
  few.iov_len = sizeof bytes;
  CHECK(recvmsg(receiver, &message, MSG_TRUNC) == 10 && message.msg_flags == 0);
  CHECK_FAILS(recv(receiver, bytes, 4, MSG_DONTWAIT), EAGAIN);
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  for (int i = 0; i < 3; ++i) {
    CHECK(connect(sender, to, sizeof address) == 0);
    CHECK(send(sender, "0123", 4, 0) == 4);
    CHECK(recv(receiver, bytes, 8, 0) == 4);
    CHECK(connect(sender, &nobody, sizeof nobody) == 0);
    CHECK_FAILS(send(sender, "0123", 4, 0), EDESTADDRREQ);
  }
}

/* --- calls that a signal interrupts --- */

static pthread_t waiting_thread;
static atomic_int signals_taken;

static void count_signal(int signal) {
  (void)signal;
  ++signals_taken;
}

static void set_handlers(int flags_of_usr1, int flags_of_usr2) {
  const struct sigaction first = {.sa_handler = count_signal, .sa_flags = flags_of_usr1};
  const struct sigaction second = {.sa_handler = count_signal, .sa_flags = flags_of_usr2};
  CHECK(sigaction(SIGUSR1, &first, NULL) == 0 && sigaction(SIGUSR2, &second, NULL) == 0);
  usleep(150000);
}

/* Interrupts the main thread three times, and then gives it what it waits for. */
static void* interrupt_and(void* function) {
  void (*const give)(void) = *(void (**)(void))function;
  for (int i = 0; i < 3; ++i) {
    usleep(50000);
    pthread_kill(waiting_thread, SIGUSR1);
  }
  usleep(50000);
  if (give != NULL) give();
  return NULL;
}

static void send_data(void) { CHECK(send(near, "data", 4, 0) == 4); }

static void connect_another(void) {
  const struct sockaddr_in address = address_of(port);
  const int made = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(made, (const struct sockaddr*)&address, sizeof address) == 0);
}

static void drain_near(void) {
  static char bytes[1 << 16];
  size_t total = 0;
  while (total < 8 << 20) {
    const ssize_t got = recv(near, bytes, sizeof bytes, 0);
    CHECK(got > 0);
    total += (size_t)got;
  }
}

static void send_datagram(void) {
  const struct sockaddr_in address = address_of(port + 1);
  const int sender = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(sendto(sender, "data", 4, 0, (const struct sockaddr*)&address, sizeof address) == 4);
}

/* `call` is made while it is interrupted. */
#define EXPECT_RESTARTED(give, call, expected)                                  \
  do {                                                                          \
    void (*const function)(void) = give;                                        \
    pthread_t thread;                                                           \
    signals_taken = 0;                                                          \
    CHECK(pthread_create(&thread, NULL, interrupt_and, (void*)&function) == 0); \
    CHECK((call) == (expected));                                                \
    CHECK(pthread_join(thread, NULL) == 0);                                     \
    CHECK(signals_taken == 3);                                                  \
  } while (0)

static void expect_interrupted(int datagrams) {
  pthread_t thread;
  char bytes[8];
  void (*const none)(void) = NULL;
  for (int way = 0; way < 3; ++way) {
    CHECK(pthread_create(&thread, NULL, interrupt_and, (void*)&none) == 0);
    if (way == 0) CHECK_FAILS(recv(far, bytes, 4, 0), EINTR);
    if (way == 1) CHECK_FAILS(accept(listener, NULL, NULL), EINTR);
    if (way == 2) CHECK_FAILS(recv(datagrams, bytes, 4, 0), EINTR);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

/* A signal ends a call that has sent something already. */
static size_t send_all(int socket) {
  static char many[8 << 20];
  size_t done = 0;
  while (done < sizeof many) {
    const ssize_t sent = send(socket, many + done, sizeof many - done, 0);
    CHECK(sent > 0);
    done += (size_t)sent;
  }
  return done;
}

static void expect_restarted(int datagrams) {
  char bytes[8];
  struct pollfd asked = {.fd = far, .events = POLLIN};
  EXPECT_RESTARTED(send_data, recv(far, bytes, 4, 0), 4);
  EXPECT_RESTARTED(send_data, read(far, bytes, 4), 4);
  EXPECT_RESTARTED(send_datagram, recv(datagrams, bytes, 4, 0), 4);
  EXPECT_RESTARTED(connect_another, accept(listener, NULL, NULL) >= 0, 1);
  EXPECT_RESTARTED(drain_near, send_all(far), 8 << 20);
  pthread_t thread;
  void (*const none)(void) = NULL;
  CHECK(pthread_create(&thread, NULL, interrupt_and, (void*)&none) == 0);
  CHECK_FAILS(poll(&asked, 1, 10000), EINTR);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void be_interrupted(void) {
  const struct sockaddr_in address = address_of(port + 1);
  const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(bind(datagrams, (const struct sockaddr*)&address, sizeof address) == 0);
  waiting_thread = pthread_self();
  set_handlers(SA_RESTART, SA_RESTART);
  expect_restarted(datagrams);
  set_handlers(0, SA_RESTART);
  expect_interrupted(datagrams);
  set_handlers(0, 0);
  expect_interrupted(datagrams);
}

static void connect_oddly(void) {
  const struct sockaddr_in address = address_of(port);
  const struct sockaddr* to = (const struct sockaddr*)&address;
  const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
  const int idle = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(idle, &nobody, sizeof nobody) == 0);
  CHECK_FAILS(connect(listener, to, sizeof address), EISCONN);
  CHECK(connect(idle, to, sizeof address) == 0);
  const int accepted = accept(listener, NULL, NULL);
  char byte = 'x';
  CHECK(accepted >= 0 && send(idle, &byte, 1, 0) == 1 && recv(accepted, &byte, 1, 0) == 1);
  CHECK_FAILS(connect(idle, to, sizeof address), EISCONN);
}

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"accept", accept_without_descriptors},
               {"connect", connect_oddly},
               {"datagrams", use_flags_of_datagrams},
               {"flags", use_flags},
               {"interrupted", be_interrupted},
               {"sendfile", send_file},
               {"shut", shut_writing}};
  CHECK(count == 3);
  port = atoi(arguments[2]);
  listen_at(port);
  connect_ends();
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(cases[i].name, arguments[1]) != 0) continue;
    cases[i].run();
    puts("ok");
    return 0;
  }
  return 2;
}
