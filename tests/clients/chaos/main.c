#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "chaos.h"

struct options options;
volatile struct page* page;

static const char usage[] =
    "chaos server|client|watch-server|watch-client|probe SOCKET PAGE GID-INDEX SEED\n"
    "  watch-ROLE keeps that role's memory without a device, and checks that nobody writes to it;\n"
    "  probe opens the device and ends\n"
    "chaos stalls FILE\n"
    "  notes in the file when a processor stands still\n";

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pause_ms(long milliseconds) {
  const struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&span, NULL);
}

void note(const char* format, ...) {
  char line[400];
  const uint64_t now = now_ns();
  int n = snprintf(line, sizeof line, "%llu.%06llu %d ", (long long)(now / 1000000000u),
                   (long long)(now / 1000 % 1000000), (int)getpid());
  va_list arguments;
  va_start(arguments, format);
  n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, arguments);
  va_end(arguments);
  if (n > (int)sizeof line - 2) n = sizeof line - 2;
  line[n++] = '\n';
  if (write(STDERR_FILENO, line, (size_t)n) < 0) return; /* nobody is left to tell */
}

static void open_page(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* at =
      file < 0 ? MAP_FAILED : mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) {
    fprintf(stderr, "chaos: cannot map %s: %s\n", path, strerror(errno));
    exit(2);
  }
  close(file);
  page = at;
}

/* A program may end in a signal handler, wherever the signal meets it. */
static void end_now(int number) {
  (void)number;
  exit(0);
}

static int probe(void) {
  for (int tries = 0; tries < 100; ++tries, pause_ms(20)) {
    if (!device_open()) continue;
    struct ibv_port_attr port;
    const bool active =
        ibv_query_port(device.context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE;
    device_close(EVERYTHING);
    return active ? 0 : 1;
  }
  return 1;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "stalls") == 0) return stalls_watch(argv[2]);
  if (argc != 6) {
    fputs(usage, stderr);
    return 2;
  }
  const char* role = argv[1];
  options = (struct options){.is_server = strstr(role, "server") != NULL,
                             .socket = argv[2],
                             .gid_index = atoi(argv[4]),
                             .seed = strtoull(argv[5], NULL, 0)};
  open_page(argv[3]);
  signal(SIGUSR1, end_now);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN); /* the kernel collects the children */
  memory_open();
  if (strcmp(role, "probe") == 0) return probe();
  page->pid = (uint64_t)getpid();
  if (strncmp(role, "watch-", 6) == 0) memory_watch();
  struct random random = {options.seed ^ page->sessions * 0x9E3779B97F4A7C15ull};
  for (;;) {
    obey();
    session_run(&random);
  }
}
