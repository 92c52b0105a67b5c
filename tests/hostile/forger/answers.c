/* Watches what comes back to the stranger, and holds it against what the stranger sent. */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "forger.h"

enum { front_bytes = 64, messages = 64, buffer_bytes = 64 << 20 };

static struct {
  struct tally* tallies[2];
  uint8_t prefix[2][16];
  int socket;
  volatile bool is_over;
  pthread_t thread;
  struct totals foreign; /* from port 4791 to none of the stranger's addresses */
} watch;

static uint32_t number(const uint8_t* at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_ours(enum family family, const uint8_t* address) {
  const unsigned bytes = family == ipv4 ? 4 : 16;
  uint8_t upper[16];
  memcpy(upper, address, bytes);
  upper[bytes - 3] &= (uint8_t)~0x3Fu;
  upper[bytes - 2] = upper[bytes - 1] = 0;
  return memcmp(upper, watch.prefix[family], bytes) == 0;
}

static uint32_t index_of(enum family family, const uint8_t* address) {
  return number(address + (family == ipv4 ? 0 : 12)) & ((1u << ADDRESS_BITS) - 1);
}

struct tally* tally_of(enum family family, uint32_t address) {
  return &watch.tallies[family][address & ((1u << ADDRESS_BITS) - 1)];
}

/* Counts one packet, of which the first bytes are at hand. */
static void count(const uint8_t* ip, size_t bytes) {
  if (bytes < 20) return;
  const enum family family = ip[0] >> 4 == 4 ? ipv4 : ipv6;
  const size_t ip_bytes = family == ipv4 ? (size_t)(ip[0] & 15) * 4 : 40;
  const uint8_t protocol = family == ipv4 ? ip[9] : ip[6];
  if (protocol != IPPROTO_UDP || bytes < ip_bytes + 8) return;
  const uint8_t* udp = ip + ip_bytes;
  if (((unsigned)udp[2] << 8 | udp[3]) != ROCE_PORT) return;
  const uint8_t* to = family == ipv4 ? ip + 16 : ip + 24;
  const unsigned payload = ((unsigned)udp[4] << 8 | udp[5]) - 8;
  if (!is_ours(family, to)) {
    ++watch.foreign.datagrams;
    watch.foreign.bytes += payload;
    return;
  }
  struct tally* tally = tally_of(family, index_of(family, to));
  tally->answered_bytes += payload;
  if (payload > tally->longest_answer) tally->longest_answer = (uint16_t)payload;
}

static void* run(void* unused) {
  static uint8_t fronts[messages][front_bytes];
  struct iovec pieces[messages];
  struct mmsghdr received[messages];
  memset(received, 0, sizeof received);
  for (int i = 0; i < messages; ++i) {
    pieces[i] = (struct iovec){fronts[i], front_bytes};
    received[i].msg_hdr.msg_iov = &pieces[i];
    received[i].msg_hdr.msg_iovlen = 1;
  }
  for (;;) {
    const int got = recvmmsg(watch.socket, received, messages, MSG_DONTWAIT, NULL);
    for (int i = 0; i < got; ++i) count(fronts[i], received[i].msg_len);
    if (got > 0) continue;
    if (watch.is_over) return unused;
    poll(&(struct pollfd){.fd = watch.socket, .events = POLLIN}, 1, 20);
  }
}

static void* room(size_t bytes) {
  void* memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) die("mmap: %s", strerror(errno));
  return memory;
}

void answers_open(const char* interface, const uint8_t* prefix4, const uint8_t* prefix6) {
  memcpy(watch.prefix[ipv4], prefix4, 4);
  memcpy(watch.prefix[ipv6], prefix6, 16);
  for (int i = 0; i < 2; ++i) watch.tallies[i] = room(sizeof(struct tally) << ADDRESS_BITS);
  watch.socket = socket(AF_PACKET, SOCK_DGRAM, 0);
  if (watch.socket < 0) die("a packet socket: %s", strerror(errno));
  const int yes = 1, buffer = buffer_bytes;
  setsockopt(watch.socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
  if (setsockopt(watch.socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    setsockopt(watch.socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  /* The first bytes of UDP over either family are enough. */
  struct sock_filter program[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
                                  BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xF0),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x40, 0, 2),
                                  BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 3, 4),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x60, 0, 3),
                                  BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, front_bytes),
                                  BPF_STMT(BPF_RET | BPF_K, 0)};
  const struct sock_fprog filter = {sizeof program / sizeof *program, program};
  if (setsockopt(watch.socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
    die("the filter of answers: %s", strerror(errno));
  const struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                      .sll_protocol = htons(ETH_P_ALL),
                                      .sll_ifindex = (int)if_nametoindex(interface)};
  if (bind(watch.socket, (const struct sockaddr*)&address, sizeof address) != 0)
    die("%s: %s", interface, strerror(errno));
  if (pthread_create(&watch.thread, NULL, run, NULL) != 0) die("no thread for the answers");
}

unsigned answers_close(void) {
  watch.is_over = true;
  pthread_join(watch.thread, NULL);
  struct tpacket_stats statistics = {0};
  socklen_t bytes = sizeof statistics;
  if (getsockopt(watch.socket, SOL_PACKET, PACKET_STATISTICS, &statistics, &bytes) != 0)
    die("the count of answers: %s", strerror(errno));
  close(watch.socket);
  return statistics.tp_drops;
}

/* Writes JSON: for each kind and family what was sent and what came back, and the addresses that
   were answered more than they sent. Several kinds share no address. */
void print_answers(const struct totals (*sent)[2]) {
  printf("\"kinds\": [");
  bool is_first = true;
  for (unsigned kind = 0; kind < kind_count; ++kind) {
    for (int family = 0; family < 2; ++family) {
      if (sent[kind][family].datagrams == 0) continue;
      uint64_t answered = 0, asked = 0;
      uint32_t addresses = 0, more_bytes = 0, longer = 0;
      const uint32_t begin = kind << KIND_BITS;
      for (uint32_t i = 0; i < 1u << KIND_BITS && !kinds[kind].is_from_peer; ++i) {
        const struct tally* tally = tally_of((enum family)family, begin + i);
        answered += tally->answered_bytes;
        asked += tally->sent_bytes;
        addresses += tally->sent_bytes > 0;
        more_bytes += tally->answered_bytes > tally->sent_bytes;
        longer += tally->longest_answer > tally->longest_sent;
      }
      printf(
          "%s\n  {\"kind\": \"%s\", \"family\": \"%s\", \"datagrams\": %llu, \"bytes\": %llu, "
          "\"addresses\": %u, \"asked_bytes\": %llu, \"answered_bytes\": %llu, "
          "\"answered_more\": %u, \"answered_longer\": %u}",
          is_first ? "" : ",", kinds[kind].name, family == ipv4 ? "IPv4" : "IPv6",
          (unsigned long long)sent[kind][family].datagrams,
          (unsigned long long)sent[kind][family].bytes, addresses, (unsigned long long)asked,
          (unsigned long long)answered, more_bytes, longer);
      is_first = false;
    }
  }
  printf("],\n\"foreign_answers\": %llu", (unsigned long long)watch.foreign.datagrams);
}
