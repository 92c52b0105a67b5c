/* Makes the datagrams. */

#include <string.h>

#include "forger.h"

enum { bth_bytes = 12, icrc_bytes = 4, mad_bytes = 256 };

uint64_t draw_bits(struct draw* draw) { /* SplitMix64 */
  uint64_t z = draw->state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint32_t draw_below(struct draw* draw, uint32_t bound) {
  return (uint32_t)((draw_bits(draw) >> 32) * bound >> 32);
}

static bool one_in(struct draw* draw, uint32_t count) { return draw_below(draw, count) == 0; }

static void fill(struct draw* draw, uint8_t* out, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t value = draw_bits(draw);
    memcpy(out + at, &value, bytes - at < 8 ? bytes - at : 8);
  }
}

static void put(uint8_t* out, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

/* --- the ICRC (IBTA A17.3.3.5) --- */

static uint32_t crc_tables[8][256];

__attribute__((constructor)) static void make_crc_tables(void) {
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    crc_tables[0][i] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t before = crc_tables[k - 1][i];
      crc_tables[k][i] = before >> 8 ^ crc_tables[0][before & 0xFF];
    }
  }
}

static uint32_t crc(uint32_t crc, const uint8_t* at, size_t bytes) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t low, high;
    memcpy(&low, at, 4);
    memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF] ^
          crc_tables[5][low >> 16 & 0xFF] ^ crc_tables[4][low >> 24] ^ crc_tables[3][high & 0xFF] ^
          crc_tables[2][high >> 8 & 0xFF] ^ crc_tables[1][high >> 16 & 0xFF] ^
          crc_tables[0][high >> 24];
  }
  while (bytes-- > 0) crc = crc >> 8 ^ crc_tables[0][(crc ^ *at++) & 0xFF];
  return crc;
}

void put_icrc(const struct route* route, uint8_t* datagram, size_t bytes) {
  if (bytes < bth_bytes + icrc_bytes) return;
  uint8_t head[8 + 40 + 8 + bth_bytes];
  size_t at = 8;
  memset(head, 0xFF, sizeof head);
  const size_t udp_bytes = 8 + bytes;
  if (route->family == ipv4) {
    put(head + at, 0x45FF, 2);
    put(head + at + 2, 20 + udp_bytes, 2);
    put(head + at + 4, 0x00004000, 4); /* identification 0, don't fragment */
    head[at + 9] = 17;
    memcpy(head + at + 12, route->source, 4);
    memcpy(head + at + 16, route->target, 4);
    at += 20;
  } else {
    put(head + at, 0x6FFFFFFF, 4);
    put(head + at + 4, udp_bytes, 2);
    head[at + 6] = 17;
    memcpy(head + at + 8, route->source, 16);
    memcpy(head + at + 24, route->target, 16);
    at += 40;
  }
  put(head + at, route->source_port, 2);
  put(head + at + 2, ROCE_PORT, 2);
  put(head + at + 4, udp_bytes, 2);
  at += 8;
  memcpy(head + at, datagram, bth_bytes);
  head[at + 4] = 0xFF;
  uint32_t value = crc(0xFFFFFFFFu, head, at + bth_bytes);
  value = ~crc(value, datagram + bth_bytes, bytes - bth_bytes - icrc_bytes);
  for (int i = 0; i < 4; ++i) datagram[bytes - 4 + (size_t)i] = (uint8_t)(value >> 8 * i);
}

/* --- the pieces of a packet --- */

/* Seven in eight datagrams go to queue pair numbers of processes that live, so that these get to
   see them. The kernel drops the others. */
static uint32_t draw_queue_pair(struct draw* draw, const struct queue_pairs* pairs) {
  const uint32_t random = (uint32_t)draw_bits(draw) & 0xFFFFFF;
  const uint32_t which = draw_below(draw, 8);
  if (which == 0 || pairs->count == 0) return which < 4 ? random : random & 0x1FFFF;
  if (which == 1) return random & 0x1FFFF; /* the host agent's */
  const uint32_t real = pairs->numbers[draw_below(draw, pairs->count)];
  return which == 2 ? (real & ~0x1FFFFu) | (random & 0x1FFFF) : real;
}

/* Without a seal, whoever has the peer's address and hits the right PSN is trusted. The honest
   programs begin with PSN 0 and send fewer than four million packets. */
static uint32_t draw_psn(struct draw* draw, bool spares) {
  return spares ? 0x400000 + draw_below(draw, 0xB00000) : draw_below(draw, 1 << 24);
}

static void put_bth(uint8_t* out, unsigned opcode, unsigned flags, uint32_t qp, uint32_t psn) {
  out[0] = (uint8_t)opcode;
  out[1] = (uint8_t)flags;
  put(out + 2, 0xFFFF, 2);
  out[4] = 0;
  put(out + 5, qp, 3);
  put(out + 9, psn, 3);
}

/* Lengths of all magnitudes, and those at the ends of what is possible. */
static size_t draw_length(struct draw* draw, enum family family) {
  const size_t longest = family == ipv4 ? LONGEST_IPV4 : LONGEST_IPV6;
  const uint32_t which = draw_below(draw, 256);
  if (which == 0) return longest - draw_below(draw, 4);
  if (which < 4) return draw_below(draw, (uint32_t)longest + 1);
  const uint32_t magnitude = which < 16 ? 16 : which < 128 ? 11 : 8;
  const size_t length = draw_below(draw, 2u << draw_below(draw, magnitude));
  return length < longest ? length : longest;
}

static unsigned draw_opcode(struct draw* draw, bool reliable) {
  static const uint8_t likely[] = {0x00, 0x02, 0x04, 0x05, 0x06, 0x08, 0x0A, 0x0B, 0x0C,
                                   0x0D, 0x10, 0x11, 0x11, 0x12, 0x13, 0x14, 0x16, 0x17};
  if (reliable) return one_in(draw, 4) ? draw_below(draw, 32) : likely[draw_below(draw, 18)];
  const uint32_t which = draw_below(draw, 8);
  if (which == 0) return draw_below(draw, 256);
  if (which == 1) return one_in(draw, 4) ? 0x81 : 0x64 + draw_below(draw, 2); /* CNP, UD */
  if (which == 2) return 0x20 | likely[draw_below(draw, 8)];                  /* UC */
  if (which == 3) return 0xA0 | likely[draw_below(draw, 18)];                 /* XRC */
  return likely[draw_below(draw, 18)];
}

/* Writes the extension headers that belong to the opcode, and returns their length. */
static size_t put_extensions(struct draw* draw, uint8_t* out, unsigned opcode, size_t payload) {
  fill(draw, out, 40);
  size_t bytes = 0;
  const unsigned operation = opcode & 0x1F;
  if (opcode >> 5 == 3) bytes = 8; /* DETH */
  if (opcode >> 5 == 5) bytes = 4; /* XRCETH */
  switch (operation) {
    case 0x06:
    case 0x0A:
    case 0x0B:
    case 0x0C: /* RETH: the length is right every other time */
      if (one_in(draw, 2)) put(out + bytes + 12, payload, 4);
      return bytes + (operation == 0x0B ? 20 : 16);
    case 0x13:
    case 0x14:
      out[bytes + 7] &= 0xF8; /* aligned */
      return bytes + 28;
    case 0x12:
      return bytes + 12;
    case 0x0D:
    case 0x0F:
    case 0x10:
    case 0x11: { /* AETH: ACK, RNR NAK or NAK */
      const uint32_t which = draw_below(draw, 4);
      out[bytes] = (uint8_t)(which < 2    ? 0x1F
                             : which == 2 ? 0x20 | (out[bytes] & 31)
                                          : 0x60 | (out[bytes] & 7));
      return bytes + 4;
    }
    case 0x03:
    case 0x05:
    case 0x09:
    case 0x16:
    case 0x17:
      return bytes + 4;
    default:
      return bytes;
  }
}

static size_t make_packet_of(struct draw* draw, const struct route* route, uint8_t* out,
                             unsigned opcode, uint32_t qp, uint32_t psn, size_t payload) {
  const unsigned pad = (unsigned)-payload & 3;
  put_bth(out, opcode, pad << 4 | draw_below(draw, 2) << 7 | (one_in(draw, 64) ? 5 : 0), qp, psn);
  if (one_in(draw, 2)) out[8] = 0x80; /* asks for an acknowledgement */
  size_t bytes = bth_bytes + put_extensions(draw, out + bth_bytes, opcode, payload);
  fill(draw, out + bytes, payload);
  bytes += payload;
  memset(out + bytes, 0, pad);
  bytes += pad + icrc_bytes;
  put_icrc(route, out, bytes);
  return bytes;
}

/* --- the kinds --- */

static size_t make_random(struct draw* draw, const struct knowledge* knowledge,
                          const struct route* route, uint8_t* out) {
  const size_t bytes = draw_length(draw, route->family);
  fill(draw, out, bytes);
  if (bytes >= 8) put(out + 5, draw_queue_pair(draw, &knowledge->all), 3);
  return bytes;
}

static size_t make_truncated(struct draw* draw, const struct knowledge* knowledge,
                             const struct route* route, uint8_t* out) {
  (void)route;
  put_bth(out, draw_opcode(draw, false), 0, draw_queue_pair(draw, &knowledge->all), 0);
  fill(draw, out + bth_bytes, 32);
  return draw_below(draw, 41);
}

static size_t make_longest(struct draw* draw, const struct knowledge* knowledge,
                           const struct route* route, uint8_t* out) {
  const uint32_t longest = route->family == ipv4 ? LONGEST_IPV4 : LONGEST_IPV6;
  const size_t bytes = one_in(draw, 2) ? longest : longest - draw_below(draw, 8000);
  fill(draw, out, bytes);
  put_bth(out, draw_opcode(draw, false), 0, draw_queue_pair(draw, &knowledge->all),
          draw_psn(draw, true));
  put_icrc(route, out, bytes);
  return bytes;
}

static size_t make_packet(struct draw* draw, const struct knowledge* knowledge,
                          const struct route* route, uint8_t* out) {
  const size_t payload = one_in(draw, 8) ? draw_below(draw, 4200) : draw_below(draw, 300);
  return make_packet_of(draw, route, out, draw_opcode(draw, false),
                        draw_queue_pair(draw, &knowledge->all), draw_psn(draw, false), payload);
}

static size_t make_peer_packet(struct draw* draw, const struct knowledge* knowledge,
                               const struct route* route, uint8_t* out) {
  const bool spares = !knowledge->is_sealed;
  const size_t payload = one_in(draw, 8) ? draw_below(draw, 1100) : draw_below(draw, 300);
  return make_packet_of(draw, route, out, draw_opcode(draw, spares),
                        draw_queue_pair(draw, &knowledge->peers), draw_psn(draw, spares), payload);
}

static size_t make_peer_random(struct draw* draw, const struct knowledge* knowledge,
                               const struct route* route, uint8_t* out) {
  const size_t bytes = draw_length(draw, route->family);
  fill(draw, out, bytes);
  if (bytes >= 8) put(out + 5, draw_queue_pair(draw, &knowledge->peers), 3);
  /* One random datagram in 65,536 has an ICRC that some identification explains. */
  if (!knowledge->is_sealed && bytes >= bth_bytes) {
    out[0] &= 0x1F;
    put(out + 9, draw_psn(draw, true), 3);
  }
  return bytes;
}

static size_t copy_sample(struct draw* draw, const struct knowledge* knowledge, uint8_t* out) {
  const struct samples* samples = &knowledge->samples;
  if (samples->count == 0) return 0;
  const uint8_t* at = samples->bytes + samples->begins[draw_below(draw, samples->count)];
  const size_t bytes = (size_t)at[0] << 8 | at[1];
  memcpy(out, at + 2, bytes);
  return bytes;
}

/* Overheard datagrams with one to eight flipped bits, or cut, or longer. */
static size_t mutate(struct draw* draw, uint8_t* out, size_t bytes) {
  const uint32_t flips = 1 + draw_below(draw, 8);
  for (uint32_t i = 0; i < flips && bytes > 0; ++i) {
    const uint32_t from = one_in(draw, 2) && bytes > 48 ? 48 : (uint32_t)bytes;
    out[draw_below(draw, from)] ^= (uint8_t)(1u << draw_below(draw, 8));
  }
  if (one_in(draw, 16)) return draw_below(draw, (uint32_t)bytes + 1);
  if (one_in(draw, 16)) {
    const size_t more = draw_below(draw, 64);
    fill(draw, out + bytes, more);
    return bytes + more;
  }
  return bytes;
}

static size_t make_mutated(struct draw* draw, const struct knowledge* knowledge,
                           const struct route* route, uint8_t* out) {
  size_t bytes = mutate(draw, out, copy_sample(draw, knowledge, out));
  if (knowledge->is_sealed || bytes < bth_bytes + 8) return bytes;
  if (one_in(draw, 2)) put(out + 5, draw_queue_pair(draw, &knowledge->all), 3);
  /* The forger has no Q_Key, though it stands in what it overheard. */
  if (out[0] >> 5 == 3) fill(draw, out + bth_bytes, 4);
  if (one_in(draw, 2)) put_icrc(route, out, bytes);
  return bytes;
}

static size_t make_peer_mutated(struct draw* draw, const struct knowledge* knowledge,
                                const struct route* route, uint8_t* out) {
  size_t bytes = mutate(draw, out, copy_sample(draw, knowledge, out));
  if (knowledge->is_sealed || bytes < bth_bytes) return bytes;
  out[0] &= 0x1F;
  put(out + 5, draw_queue_pair(draw, &knowledge->peers), 3);
  put(out + 9, draw_psn(draw, true), 3);
  if (one_in(draw, 2)) put_icrc(route, out, bytes);
  return bytes;
}

/* Overheard datagrams as they were. Only seals protect from them. */
static size_t make_repeated(struct draw* draw, const struct knowledge* knowledge,
                            const struct route* route, uint8_t* out) {
  (void)route;
  return copy_sample(draw, knowledge, out);
}

/* Datagrams of equal size in one message, which the kernel cuts up or hands on joined. */
static size_t make_batch(struct draw* draw, const struct knowledge* knowledge,
                         const struct route* route, uint8_t* out) {
  const size_t segment = 16 + draw_below(draw, 1000);
  const uint32_t qp = draw_queue_pair(draw, &knowledge->all);
  for (unsigned i = 0; i < batch_segments; ++i) {
    uint8_t* at = out + i * segment;
    fill(draw, at, segment);
    put_bth(at, draw_opcode(draw, false), 0, qp, draw_psn(draw, true));
    put_icrc(route, at, segment);
  }
  return batch_segments * segment;
}

/* A management datagram to QP1 (IBTA 13.4). Returns where its 256 bytes begin. */
static uint8_t* begin_management(struct draw* draw, uint8_t* out, unsigned class, unsigned version,
                                 unsigned method, unsigned attribute) {
  put_bth(out, 0x64, 0, 1, (uint32_t)draw_bits(draw) & 0xFFFFFF);
  put(out + bth_bytes, 0x80010000, 4);
  put(out + bth_bytes + 4, 1, 4);
  uint8_t* mad = out + bth_bytes + 8;
  fill(draw, mad, mad_bytes);
  mad[0] = 1;
  mad[1] = (uint8_t) class;
  mad[2] = (uint8_t)version;
  mad[3] = (uint8_t)method;
  put(mad + 4, 0, 4);
  put(mad + 16, attribute, 2);
  return mad;
}

static size_t end_management(const struct route* route, uint8_t* out, size_t bytes) {
  bytes += bth_bytes + 8 + icrc_bytes;
  put_icrc(route, out, bytes);
  return bytes;
}

static size_t make_management(struct draw* draw, const struct knowledge* knowledge,
                              const struct route* route, uint8_t* out) {
  (void)knowledge;
  static const uint8_t classes[] = {0x01, 0x81, 0x03, 0x04, 0x04, 0x06, 0x07, 0x09, 0x21};
  static const uint8_t methods[] = {0x01, 0x01, 0x02, 0x03, 0x05, 0x81, 0x06, 0x12, 0x15};
  const unsigned class = one_in(draw, 8) ? draw_below(draw, 256) : classes[draw_below(draw, 9)];
  const unsigned method = one_in(draw, 8) ? draw_below(draw, 256) : methods[draw_below(draw, 9)];
  begin_management(draw, out, class, draw_below(draw, 3), method, draw_below(draw, 0x40));
  return end_management(route, out, one_in(draw, 4) ? draw_below(draw, 700) : mad_bytes);
}

static void put_gid(uint8_t* out, enum family family, const uint8_t* address) {
  if (family == ipv6) {
    memcpy(out, address, 16);
    return;
  }
  memset(out, 0, 10);
  put(out + 10, 0xFFFF, 2);
  memcpy(out + 12, address, 4);
}

/* Writes a request for a connection as librdmacm's peers send it (IBTA 12.6.5 and A11). */
static void put_request(struct draw* draw, const struct route* route, uint8_t* message,
                        unsigned port, unsigned timeout) {
  put(message + 8, 0x01060000u | port, 8); /* RDMA_PS_TCP */
  message[31] = (uint8_t)draw_below(draw, 17);
  message[43] = (uint8_t)(timeout << 3 | (one_in(draw, 8) ? draw_below(draw, 8) : 0));
  message[47] = (uint8_t)(timeout << 3 | 7);
  put(message + 48, 0xFFFF, 2);
  message[50] = (uint8_t)(one_in(draw, 16) ? draw_below(draw, 256) : 0x37);
  message[51] = 0xF0;
  put(message + 52, 0xFFFFFFFF, 4); /* the permissive LIDs; random ones one time in eight */
  if (one_in(draw, 8)) fill(draw, message + 52, 4);
  put_gid(message + 56, route->family, route->source);
  put_gid(message + 72, route->family, route->target);
  uint8_t* hello = message + 140;
  memset(hello, 0, 36);
  hello[1] = route->family == ipv4 ? 0x40 : 0x60;
  put(hello + 2, draw_below(draw, 65536), 2);
  const unsigned bytes = route->family == ipv4 ? 4 : 16;
  memcpy(hello + 4 + 16 - bytes, route->source, bytes);
  memcpy(hello + 20 + 16 - bytes, route->target, bytes);
}

static unsigned draw_port(struct draw* draw, const struct knowledge* knowledge, uint32_t others) {
  if (knowledge->port_count == 0 || one_in(draw, others)) return draw_below(draw, 65536);
  return knowledge->ports[draw_below(draw, knowledge->port_count)];
}

/* Requests for a connection to real listeners, of peers that nobody has heard of. */
static size_t make_request(struct draw* draw, const struct knowledge* knowledge,
                           const struct route* route, uint8_t* out) {
  uint8_t* message = begin_management(draw, out, 7, 2, 3, 0x10) + 24;
  const unsigned timeout = one_in(draw, 8) ? draw_below(draw, 32) : 20;
  put_request(draw, route, message, draw_port(draw, knowledge, 16), timeout);
  return end_management(route, out, mad_bytes);
}

/* Each message of the connection manager (IBTA 12.6), with random IDs. */
static size_t make_connection(struct draw* draw, const struct knowledge* knowledge,
                              const struct route* route, uint8_t* out) {
  const unsigned attribute = 0x10 + draw_below(draw, 11);
  uint8_t* message = begin_management(draw, out, 7, 2, 3, attribute) + 24;
  if (attribute == 0x10) put_request(draw, route, message, draw_port(draw, knowledge, 4), 20);
  if (attribute == 0x17) put(message + 8, 0x01110000u | draw_port(draw, knowledge, 2), 8);
  if (one_in(draw, 4)) put(message + 4, 0, 4); /* a REJ that knows no ID of the receiver's */
  return end_management(route, out, mad_bytes);
}

const struct kind kinds[] = {
    {"random bytes", false, false, make_random},
    {"random bytes, the peer's address", true, false, make_peer_random},
    {"truncated packets", false, false, make_truncated},
    {"longest datagrams", false, false, make_longest},
    {"well-formed packets", false, false, make_packet},
    {"well-formed packets, the peer's address", true, false, make_peer_packet},
    {"mutated copies", false, false, make_mutated},
    {"mutated copies, the peer's address", true, false, make_peer_mutated},
    {"exact copies", false, false, make_repeated},
    {"exact copies, the peer's address", true, false, make_repeated},
    {"batches", false, true, make_batch},
    {"management datagrams", false, false, make_management},
    {"connection messages", false, false, make_connection},
    {"connection messages, the peer's address", true, false, make_connection},
    {"requests for connections", false, false, make_request},
};
const unsigned kind_count = sizeof kinds / sizeof *kinds;
