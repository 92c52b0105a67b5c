#pragma once

/* A stranger on the network: sends forged RoCE v2 datagrams of many kinds, from addresses of its
   own and from those of somebody else, and holds what is answered against what it sent. It knows
   the wire format alone, and shares no code with Tulle. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROCE_PORT 4791
#define LONGEST_IPV4 65507u /* bytes of a UDP payload */
#define LONGEST_IPV6 65527u

/* The stranger's addresses end in 22 bits that it draws. The upper five say the kind, so that an
   answer's destination tells what it answers. */
#define ADDRESS_BITS 22
#define KIND_BITS 17

enum family { ipv4, ipv6 };

/* --- the kinds of datagrams, in the order of `kinds` in make.c --- */

struct draw {
  uint64_t state;
};
uint64_t draw_bits(struct draw* draw);
uint32_t draw_below(struct draw* draw, uint32_t bound);

struct queue_pairs {
  uint32_t numbers[256];
  unsigned count;
};

/* Datagrams that somebody overheard. */
struct samples {
  uint8_t* bytes; /* each: 2 bytes of length, most significant first, and the datagram */
  size_t* begins;
  unsigned count;
};

struct knowledge {
  struct queue_pairs all;   /* of programs of the target */
  struct queue_pairs peers; /* those that are connected to the peer whose address is forged */
  struct samples samples;
  uint8_t target[2][16]; /* by family; an IPv4 address in the first four bytes */
  uint8_t peer[2][16];
  uint16_t ports[16]; /* of librdmacm's listeners */
  unsigned port_count;
  /* True: the datagrams of connections are sealed, and the forger need not spare any. False: what
     it sends from the peer's address avoids the PSNs that honest connections use. */
  bool is_sealed;
};

/* The addresses of a datagram, as the ICRC covers them. */
struct route {
  enum family family;
  const uint8_t* source;
  const uint8_t* target;
  uint16_t source_port;
};

enum { batch_segments = 8 };

struct kind {
  const char* name;
  bool is_from_peer;
  bool is_batch; /* the kernel cuts it up (UDP_SEGMENT) */
  /* Writes a datagram and returns its length. A right ICRC is put in later if it asks for one. */
  size_t (*make)(struct draw* draw, const struct knowledge* knowledge, const struct route* route,
                 uint8_t* out);
};
extern const struct kind kinds[];
extern const unsigned kind_count;

/* Writes the ICRC at the end of a datagram of `bytes` bytes, the ICRC among them. */
void put_icrc(const struct route* route, uint8_t* datagram, size_t bytes);

/* --- answers.c: who got how much for what --- */

struct tally {
  uint32_t sent_bytes, answered_bytes;
  uint16_t longest_sent, longest_answer;
};

struct totals {
  uint64_t datagrams, bytes;
};

/* Watches the interface for datagrams to the stranger's addresses from now on. The prefixes are 16
   bytes; of IPv4's the first four count. */
void answers_open(const char* interface, const uint8_t* prefix4, const uint8_t* prefix6);
/* Ends the watch. Returns how many answers the kernel could not hold. */
unsigned answers_close(void);
struct tally* tally_of(enum family family, uint32_t address);
void print_answers(const struct totals (*sent)[2]);

void die(const char* format, ...) __attribute__((noreturn, format(printf, 1, 2)));
