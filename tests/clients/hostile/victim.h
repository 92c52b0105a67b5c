// The two roles of the victim share this.

#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

// The page that a victim shares with the driver: 64-bit words under these names.
#define PAGE_FIELDS(FIELD)                                            \
  FIELD(ready)                                                        \
  FIELD(paused)     /* set by the driver: do nothing for now */       \
  FIELD(messages)   /* exchanged and found right */                   \
  FIELD(message_ns) /* time that these took */                        \
  FIELD(longest_message_ns)                                           \
  FIELD(wrong)       /* messages with wrong bytes */                  \
  FIELD(unexpected)  /* events and errors that nobody should cause */ \
  FIELD(connections) /* new ones, each with one message */            \
  FIELD(connect_ns)                                                   \
  FIELD(longest_connect_ns)                                           \
  FIELD(failed_connections)                                           \
  FIELD(strangers) /* requests of programs without the secret */
enum field {
#define FIELD(name) field_##name,
  PAGE_FIELDS(FIELD)
#undef FIELD
      fields
};
extern volatile uint64_t* page;
void add(enum field field, uint64_t more);
void note_longest(enum field field, uint64_t nanoseconds);

enum {
  block_bytes = 16,
  message_bytes = 1024,
  stripe_bytes = 4096,
  secret_bytes = 8,
  secret_offset = 2048  // in the page
};
extern uint8_t secret[secret_bytes];

// A message is blocks of the secret and a number. Whoever sees a block of it has read what is not
// his.
void fill(uint8_t* bytes, int count, uint64_t number);
bool is_filled(const uint8_t* bytes, int count, uint64_t number);

// The server tells this in its private data: where the client may write and read.
struct welcome {
  uint64_t address;
  uint32_t rkey;
};

uint64_t now_ns(void);
void fail(const char* what);
void check(int result, const char* what);
// Prints what is unexpected, and counts it.
void complain(const char* what, const char* detail);
struct sockaddr_in address_at(const char* port);
extern struct rdma_conn_param parameters;
// Counts the asynchronous events of the device, of which none is expected.
void look_for_device_events(struct ibv_context* context);

int serve(const char* port);
int work(const char* port);
