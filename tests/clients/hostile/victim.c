// A user's programs that others attack: a server and a client that exchange messages which only
// they know, and make new connections all the time.
//
//   hostile_victim server PORT PAGE   accepts connections that know the secret
//   hostile_victim client PORT PAGE   works without end, and counts in the page
//   hostile_victim open               opens the device, and prints after how many microseconds of
//                                     its life it had it
//   hostile_victim fields             prints the page's fields
//
// The driver puts the secret into the page, since others can read command lines.

#define _GNU_SOURCE

#include "victim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

volatile uint64_t* page;
uint8_t secret[secret_bytes];
struct rdma_conn_param parameters = {
    .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};

void add(enum field field, uint64_t more) {
  __atomic_store_n(&page[field], page[field] + more, __ATOMIC_RELEASE);
}
void note_longest(enum field field, uint64_t nanoseconds) {
  if (nanoseconds > page[field]) page[field] = nanoseconds;
}

void fill(uint8_t* bytes, int count, uint64_t number) {
  for (int i = 0; i < count; i += block_bytes) {
    const uint64_t own = number + (uint64_t)i;
    memcpy(bytes + i, secret, secret_bytes);
    memcpy(bytes + i + secret_bytes, &own, sizeof own);
  }
}
bool is_filled(const uint8_t* bytes, int count, uint64_t number) {
  uint8_t expected[stripe_bytes];
  fill(expected, count, number);
  return memcmp(bytes, expected, (size_t)count) == 0;
}

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}
void fail(const char* what) {
  fprintf(stderr, "hostile_victim: %s: %s\n", what, strerror(errno));
  exit(1);
}
void check(int result, const char* what) {
  if (result != 0) fail(what);
}
void complain(const char* what, const char* detail) {
  fprintf(stderr, "hostile_victim: unexpected: %s: %s\n", what, detail);
  fflush(stderr);
  add(field_unexpected, 1);
}
struct sockaddr_in address_at(const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return address;
}
void look_for_device_events(struct ibv_context* context) {
  struct pollfd wait = {.fd = context->async_fd, .events = POLLIN};
  while (poll(&wait, 1, 0) > 0) {
    struct ibv_async_event event;
    if (ibv_get_async_event(context, &event) != 0) return;
    complain("the device", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
  }
}

static void open_page(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path);
  void* memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail("mmap");
  page = memory;
  memcpy(secret, (const uint8_t*)memory + secret_offset, secret_bytes);
}

static int open_device(uint64_t began) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) fail("ibv_get_device_list");
  struct ibv_context* context = ibv_open_device(devices[0]);
  if (context == NULL) fail("ibv_open_device");
  printf("%llu\n", (unsigned long long)(now_ns() - began) / 1000);
  ibv_close_device(context);
  ibv_free_device_list(devices);
  return 0;
}

int main(int argc, char** argv) {
  const uint64_t began = now_ns();
  const char* what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "open") == 0) return open_device(began);
  if (strcmp(what, "fields") == 0) {
#define FIELD(name) printf("%s\n", #name);
    PAGE_FIELDS(FIELD)
#undef FIELD
    return 0;
  }
  if (argc == 4) {
    open_page(argv[3]);
    if (strcmp(what, "server") == 0) return serve(argv[2]);
    if (strcmp(what, "client") == 0) return work(argv[2]);
  }
  fprintf(stderr, "hostile_victim: server or client PORT PAGE | open | fields\n");
  return 2;
}
