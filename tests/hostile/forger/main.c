/* forger: floods a host with forged datagrams, and prints as JSON what it sent and what came back.

   It sends from addresses that it does not have (IP_TRANSPARENT), so it needs a network namespace
   of its own. The pace follows the target: it slows down when one of the target's sockets holds
   many datagrams or loses some, so that they reach the programs and not only their kernel. It goes
   on until SIGTERM, or until it has sent as much as it was told, and then waits for late answers.

   What it knows lies in a folder, and is read again when it changes: `queue-pairs` has two lines of
   numbers, those of the target's programs and those of them that are connected to the peer;
   `samples` has the datagrams that somebody overheard. It writes to `progress` there how many
   datagrams it has sent. */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "forger.h"

enum { batch = 32, longest = 65536, control_bytes = 128 };
static const double window_seconds = 0.02;
static const unsigned long waiting_bytes_max = 4 << 20; /* in one socket of the target */

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "forger: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(1);
}

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- the sockets --- */

enum way { ipv4_whole, ipv4_fragmented, ipv6_any, ways };

struct sender {
  int socket;
  uint16_t port;
};

static void set(int socket, int level, int option, int value) {
  if (setsockopt(socket, level, option, &value, sizeof value) != 0)
    die("option %d of level %d: %s", option, level, strerror(errno));
}

static struct sender open_sender(enum way way, uint16_t port) {
  const int family = way == ipv6_any ? AF_INET6 : AF_INET;
  const struct sender sender = {socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), port};
  if (sender.socket < 0) die("socket: %s", strerror(errno));
  if (family == AF_INET6) {
    set(sender.socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set(sender.socket, IPPROTO_IPV6, IPV6_TRANSPARENT, 1);
    set(sender.socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DONT);
  } else {
    /* The ICRC covers "don't fragment", so the kernel must set it. Longer datagrams go without. */
    set(sender.socket, IPPROTO_IP, IP_TRANSPARENT, 1);
    set(sender.socket, IPPROTO_IP, IP_MTU_DISCOVER,
        way == ipv4_whole ? IP_PMTUDISC_DO : IP_PMTUDISC_DONT);
  }
  set(sender.socket, SOL_SOCKET, SO_SNDBUF, 4 << 20);
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  const int bound = family == AF_INET6 ? bind(sender.socket, (struct sockaddr*)&in6, sizeof in6)
                                       : bind(sender.socket, (struct sockaddr*)&in, sizeof in);
  if (bound != 0) die("bind: %s", strerror(errno));
  return sender;
}

/* Answers to port 4791 of the stranger vanish. A socket that refuses all keeps the kernel from
   answering them in turn. */
static void swallow_answers(void) {
  const int socket_ = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sock_filter refuse[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const struct sock_fprog program = {1, refuse};
  const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};
  if (setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0 ||
      bind(socket_, (const struct sockaddr*)&any, sizeof any) != 0)
    die("cannot hold port %d: %s", ROCE_PORT, strerror(errno));
}

struct message {
  uint8_t bytes[longest + 64];
  uint8_t control[control_bytes];
  struct sockaddr_in6 to; /* or sockaddr_in */
  struct iovec piece;
};

static void add_control(struct msghdr* header, struct message* message, int level, int type,
                        const void* value, size_t bytes) {
  struct cmsghdr* control = (struct cmsghdr*)(message->control + header->msg_controllen);
  control->cmsg_level = level;
  control->cmsg_type = type;
  control->cmsg_len = CMSG_LEN(bytes);
  memcpy(CMSG_DATA(control), value, bytes);
  header->msg_controllen += CMSG_SPACE(bytes);
}

static void address_message(struct msghdr* header, struct message* message,
                            const struct route* route, size_t bytes, size_t segment) {
  memset(header, 0, sizeof *header);
  message->piece = (struct iovec){message->bytes, bytes};
  header->msg_iov = &message->piece;
  header->msg_iovlen = 1;
  header->msg_name = &message->to;
  header->msg_control = message->control;
  if (route->family == ipv4) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
    struct in_pktinfo from = {0};
    memcpy(&to.sin_addr, route->target, 4);
    memcpy(&from.ipi_spec_dst, route->source, 4);
    memcpy(&message->to, &to, sizeof to);
    header->msg_namelen = sizeof to;
    add_control(header, message, IPPROTO_IP, IP_PKTINFO, &from, sizeof from);
  } else {
    struct in6_pktinfo from = {0};
    message->to = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};
    memcpy(&message->to.sin6_addr, route->target, 16);
    memcpy(&from.ipi6_addr, route->source, 16);
    header->msg_namelen = sizeof message->to;
    add_control(header, message, IPPROTO_IPV6, IPV6_PKTINFO, &from, sizeof from);
  }
  if (segment != 0) {
    const uint16_t value = (uint16_t)segment;
    add_control(header, message, IPPROTO_UDP, UDP_SEGMENT, &value, sizeof value);
  }
}

/* --- the pace --- */

struct pace {
  int counters[3]; /* /proc/net/snmp, snmp6 and udp6 of the target */
  double rate, rate_max;
  double allowance, window_ends;
  double last;
  uint64_t lost, sent_in_window;
  bool is_new_window;
};

static uint64_t after(const char* text, const char* name) {
  const char* at = strstr(text, name);
  return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* Returns how many datagrams the target's sockets had no room for. */
static uint64_t lost_datagrams(const struct pace* pace) {
  static char text[16384];
  ssize_t bytes = pread(pace->counters[1], text, sizeof text - 1, 0);
  text[bytes > 0 ? bytes : 0] = 0;
  uint64_t lost = after(text, "Udp6RcvbufErrors");
  bytes = pread(pace->counters[0], text, sizeof text - 1, 0);
  text[bytes > 0 ? bytes : 0] = 0;
  /* "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors …", then a line of values */
  const char* names = strstr(text, "\nUdp: ");
  const char* values = names == NULL ? NULL : strstr(names + 1, "\nUdp: ");
  if (values == NULL) die("the target's counters cannot be read");
  const char* at = values + 6;
  char* end = NULL;
  for (int i = 0; i < 4; ++i, at = end) strtoull(at, &end, 10);
  return lost + strtoull(at, NULL, 10);
}

/* Returns the most bytes that wait in a socket of the target's RoCE port. */
static unsigned long waiting_bytes(const struct pace* pace) {
  static char text[1 << 16];
  ssize_t bytes, size = 0;
  while (size < (ssize_t)sizeof text - 1 &&
         (bytes = pread(pace->counters[2], text + size, sizeof text - 1 - (size_t)size, size)) > 0)
    size += bytes;
  text[size] = 0;
  unsigned long most = 0;
  /* The own port in hexadecimal, the peer's address and port, the state, tx_queue:rx_queue */
  for (const char* at = text; (at = strstr(at, ":12B7 ")) != NULL; ++at) {
    unsigned long waiting = 0;
    if (sscanf(at, ":12B7 %*s %*s %*[0-9A-F]:%lx", &waiting) == 1 && waiting > most) most = waiting;
  }
  return most;
}

/* Waits until `cost` more may be sent. */
static void keep_pace(struct pace* pace, double cost) {
  for (;;) {
    const double now = now_seconds();
    pace->allowance += (now - pace->last) * pace->rate;
    if (pace->allowance > pace->rate * window_seconds)
      pace->allowance = pace->rate * window_seconds;
    pace->last = now;
    if (now >= pace->window_ends) {
      const uint64_t lost = lost_datagrams(pace);
      const bool is_behind = lost != pace->lost || waiting_bytes(pace) > waiting_bytes_max;
      pace->rate *= is_behind ? 0.8 : 1.03;
      if (pace->rate > pace->rate_max) pace->rate = pace->rate_max;
      if (pace->rate < 1000) pace->rate = 1000;
      pace->lost = lost;
      pace->sent_in_window = 0;
      pace->window_ends = now + window_seconds;
      pace->is_new_window = true;
    }
    if (pace->allowance >= cost) {
      pace->allowance -= cost;
      return;
    }
    usleep(200);
  }
}

static struct pace new_pace(const char* folder, double rate_max) {
  struct pace pace = {.rate = 20000 < rate_max ? 20000 : rate_max, .rate_max = rate_max};
  static const char* const names[] = {"snmp", "snmp6", "udp6"};
  char path[256];
  for (int i = 0; i < 3; ++i) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    pace.counters[i] = open(path, O_RDONLY | O_CLOEXEC);
    if (pace.counters[i] < 0) die("%s: %s", path, strerror(errno));
  }
  pace.last = now_seconds();
  pace.lost = lost_datagrams(&pace);
  return pace;
}

/* The stranger has machines of its own, as it were. Where it may not take more of this machine
   than other programs, it makes do with its share. */
static void come_first(void) {
  const int group = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
  if (group < 0) return;
  if (setpriority(PRIO_PROCESS, 0, -8) == 0 && write(group, "-8", 2) == 2)
    fprintf(stderr, "forger: comes before other programs\n");
  close(group);
}

/* --- the flood --- */

struct flood {
  struct knowledge knowledge;
  struct draw draw;
  struct sender senders[ways];
  uint8_t prefix[2][16];
  unsigned weights[32], weight;
  uint64_t wanted, refused;
  struct totals sent[32][2];
  const char* folder;
  int progress;
  struct timespec known_since;
};

static volatile sig_atomic_t is_over;
static void end(int number) {
  (void)number;
  is_over = 1;
}

static void parse_queue_pairs(const char* text, struct queue_pairs* out) {
  out->count = 0;
  for (char* end; out->count < 256; text = *end == ',' ? end + 1 : end) {
    const unsigned long value = strtoul(text, &end, 0);
    if (end == text) return;
    out->numbers[out->count++] = (uint32_t)value;
  }
}

/* Reads a whole file of the folder, with a zero behind it. */
static uint8_t* read_file(const struct flood* flood, const char* name, struct stat* about) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", flood->folder, name);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, about) != 0) die("%s: %s", path, strerror(errno));
  uint8_t* bytes = malloc((size_t)about->st_size + 1);
  if (bytes == NULL || read(file, bytes, (size_t)about->st_size) != about->st_size)
    die("%s cannot be read", path);
  bytes[about->st_size] = 0;
  close(file);
  return bytes;
}

static void read_samples(const struct flood* flood, struct samples* out) {
  struct stat about;
  free(out->bytes);
  free(out->begins);
  *out = (struct samples){.bytes = read_file(flood, "samples", &about)};
  const size_t size = (size_t)about.st_size;
  out->begins = malloc((size / 2 + 1) * sizeof *out->begins);
  if (out->begins == NULL) die("no memory for the samples");
  for (size_t at = 0; at + 2 <= size;) {
    out->begins[out->count++] = at;
    at += 2 + ((size_t)out->bytes[at] << 8 | out->bytes[at + 1]);
  }
}

/* Learns what has changed. The folder's files are replaced whole, `queue-pairs` last. */
static void learn(struct flood* flood) {
  char path[512];
  struct stat about;
  snprintf(path, sizeof path, "%s/queue-pairs", flood->folder);
  if (stat(path, &about) != 0) die("%s: %s", path, strerror(errno));
  if (about.st_mtim.tv_sec == flood->known_since.tv_sec &&
      about.st_mtim.tv_nsec == flood->known_since.tv_nsec)
    return;
  flood->known_since = about.st_mtim;
  char* text = (char*)read_file(flood, "queue-pairs", &about);
  const char* second = strchr(text, '\n');
  parse_queue_pairs(text, &flood->knowledge.all);
  parse_queue_pairs(second != NULL ? second + 1 : "", &flood->knowledge.peers);
  free(text);
  read_samples(flood, &flood->knowledge.samples);
}

static void report(const struct flood* flood, uint64_t sent) {
  if (pwrite(flood->progress, &sent, sizeof sent, 0) != (ssize_t)sizeof sent)
    die("progress: %s", strerror(errno));
}

static unsigned draw_kind(struct flood* flood) {
  uint32_t at = draw_below(&flood->draw, flood->weight);
  unsigned kind = 0;
  while (at >= flood->weights[kind]) at -= flood->weights[kind++];
  return kind;
}

static void own_address(const struct flood* flood, enum family family, uint32_t number,
                        uint8_t* out) {
  memcpy(out, flood->prefix[family], 16);
  uint8_t* end = out + (family == ipv4 ? 4 : 16);
  end[-1] = (uint8_t)number;
  end[-2] = (uint8_t)(number >> 8);
  end[-3] |= (uint8_t)(number >> 16);
}

struct planned {
  enum way way;
  unsigned kind;
  uint32_t address;
  size_t bytes, longest; /* as sent together, and of one datagram */
};

static struct planned make_message(struct flood* flood, struct msghdr* header,
                                   struct message* message) {
  uint8_t source[16];
  struct draw* draw = &flood->draw;
  struct planned planned = {.kind = draw_kind(flood)};
  const struct kind* kind = &kinds[planned.kind];
  const enum family family = draw_below(draw, 2) == 0 ? ipv4 : ipv6;
  planned.address = planned.kind << KIND_BITS | draw_below(draw, 1u << KIND_BITS);
  if (kind->is_from_peer) {
    memcpy(source, flood->knowledge.peer[family], 16);
  } else {
    own_address(flood, family, planned.address, source);
  }
  planned.way = family == ipv6 ? ipv6_any : ipv4_whole;
  const struct route route = {family, source, flood->knowledge.target[family],
                              flood->senders[planned.way].port};
  planned.bytes = kind->make(draw, &flood->knowledge, &route, message->bytes);
  if (kind->is_batch) {
    planned.longest = planned.bytes / batch_segments;
  } else {
    planned.longest = planned.bytes;
    if (family == ipv4 && planned.bytes > 1400) planned.way = ipv4_fragmented;
  }
  address_message(header, message, &route, planned.bytes, kind->is_batch ? planned.longest : 0);
  return planned;
}

static void count_sent(struct flood* flood, const struct planned* planned) {
  const enum family family = planned->way == ipv6_any ? ipv6 : ipv4;
  struct totals* totals = &flood->sent[planned->kind][family];
  totals->datagrams += planned->bytes == 0 ? 1 : planned->bytes / planned->longest;
  totals->bytes += planned->bytes;
}

/* Notes what may be answered before it is sent, since the answer may be there at once. */
static void note(const struct planned* planned) {
  if (kinds[planned->kind].is_from_peer) return;
  struct tally* tally = tally_of(planned->way == ipv6_any ? ipv6 : ipv4, planned->address);
  tally->sent_bytes += (uint32_t)planned->bytes;
  if (planned->longest > tally->longest_sent) tally->longest_sent = (uint16_t)planned->longest;
}

static uint64_t send_way(struct flood* flood, enum way way, struct mmsghdr* headers,
                         const struct planned* const* planned, unsigned count) {
  uint64_t sent = 0;
  for (unsigned at = 0; at < count;) {
    const int done = sendmmsg(flood->senders[way].socket, headers + at, count - at, 0);
    for (int i = 0; i < done; ++i) {
      count_sent(flood, planned[at + (unsigned)i]);
      sent += kinds[planned[at + (unsigned)i]->kind].is_batch ? batch_segments : 1;
    }
    if (done < 0 && errno != EINTR) {
      ++flood->refused;
      ++at;
    } else if (done > 0) {
      at += (unsigned)done;
    }
  }
  return sent;
}

static void send_flood(struct flood* flood, struct pace* pace) {
  static struct message messages[batch];
  struct planned plans[batch];
  const double began = now_seconds();
  uint64_t sent = 0;
  while (sent < flood->wanted && !is_over) {
    struct mmsghdr headers[ways][batch];
    const struct planned* planned[ways][batch];
    unsigned counts[ways] = {0};
    double cost = 0;
    for (unsigned i = 0; i < batch; ++i) {
      struct msghdr header;
      plans[i] = make_message(flood, &header, &messages[i]);
      const enum way way = plans[i].way;
      headers[way][counts[way]] = (struct mmsghdr){.msg_hdr = header};
      planned[way][counts[way]++] = &plans[i];
      cost += 1 + (double)plans[i].bytes / 4096;
      note(&plans[i]);
    }
    keep_pace(pace, cost);
    if (pace->is_new_window) {
      pace->is_new_window = false;
      learn(flood);
      report(flood, sent);
    }
    for (enum way way = 0; way < ways; ++way) {
      const uint64_t more = send_way(flood, way, headers[way], planned[way], counts[way]);
      sent += more;
      pace->sent_in_window += more;
    }
    if (sent == 0 && flood->refused > 10000) die("nothing can be sent: %s", strerror(errno));
  }
  report(flood, sent);
  printf("\"seconds\": %.3f, \"refused\": %llu, \"last_rate\": %.0f,\n", now_seconds() - began,
         (unsigned long long)flood->refused, pace->rate);
}

/* --- the arguments --- */

static void parse_address(const char* text, uint8_t* out) {
  if (inet_pton(strchr(text, ':') != NULL ? AF_INET6 : AF_INET, text, out) != 1)
    die("%s is no address", text);
}

static void parse_pair(const char* text, uint8_t out[2][16]) {
  char first[64];
  const char* comma = strchr(text, ',');
  if (comma == NULL || comma - text >= (ptrdiff_t)sizeof first) die("two addresses, not %s", text);
  memcpy(first, text, (size_t)(comma - text));
  first[comma - text] = 0;
  parse_address(first, out[ipv4]);
  parse_address(comma + 1, out[ipv6]);
}

static void parse_weights(const char* text, struct flood* flood) {
  for (char* end; *text != 0; text = *end == ',' ? end + 1 : end) {
    const unsigned long kind = strtoul(text, &end, 0);
    if (kind >= kind_count || *end != '=') die("kinds: NUMBER=WEIGHT,… not %s", text);
    flood->weights[kind] = (unsigned)strtoul(end + 1, &end, 0);
    flood->weight += flood->weights[kind];
  }
}

static const char usage[] =
    "forger --interface NAME --target IPV4,IPV6 --source IPV4,IPV6 --peer IPV4,IPV6\n"
    "       --counters FOLDER --kinds NUMBER=WEIGHT,... --count N --seed S\n"
    "       --knowledge FOLDER [--ports N,...] [--sealed] [--rate N] [--linger SECONDS]\n"
    "forger --list   prints the kinds\n";

int main(int argc, char** argv) {
  static struct flood flood;
  static const struct option options[] = {
      {"interface", 1, NULL, 'i'}, {"target", 1, NULL, 't'},   {"source", 1, NULL, 'f'},
      {"peer", 1, NULL, 'p'},      {"counters", 1, NULL, 'c'}, {"kinds", 1, NULL, 'k'},
      {"count", 1, NULL, 'n'},     {"seed", 1, NULL, 's'},     {"knowledge", 1, NULL, 'K'},
      {"ports", 1, NULL, 'P'},     {"sealed", 0, NULL, 'S'},   {"rate", 1, NULL, 'r'},
      {"linger", 1, NULL, 'l'},    {"list", 0, NULL, 'L'},     {NULL, 0, NULL, 0}};
  const char *interface = NULL, *counters = NULL;
  double rate = 1e6, linger = 1;
  struct queue_pairs ports = {.count = 0};
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    switch (option) {
      case 'i':
        interface = optarg;
        break;
      case 't':
        parse_pair(optarg, flood.knowledge.target);
        break;
      case 'f':
        parse_pair(optarg, flood.prefix);
        break;
      case 'p':
        parse_pair(optarg, flood.knowledge.peer);
        break;
      case 'c':
        counters = optarg;
        break;
      case 'k':
        parse_weights(optarg, &flood);
        break;
      case 'n':
        flood.wanted = strtoull(optarg, NULL, 0);
        break;
      case 's':
        flood.draw.state = strtoull(optarg, NULL, 0);
        break;
      case 'K':
        flood.folder = optarg;
        break;
      case 'P':
        parse_queue_pairs(optarg, &ports);
        break;
      case 'S':
        flood.knowledge.is_sealed = true;
        break;
      case 'r':
        rate = strtod(optarg, NULL);
        break;
      case 'l':
        linger = strtod(optarg, NULL);
        break;
      case 'L':
        for (unsigned i = 0; i < kind_count; ++i) printf("%s\n", kinds[i].name);
        return 0;
      default:
        fputs(usage, stderr);
        return 2;
    }
  }
  if (interface == NULL || counters == NULL || flood.folder == NULL || flood.weight == 0 ||
      flood.wanted == 0) {
    fputs(usage, stderr);
    return 2;
  }
  for (; flood.knowledge.port_count < ports.count && flood.knowledge.port_count < 16;
       ++flood.knowledge.port_count)
    flood.knowledge.ports[flood.knowledge.port_count] =
        (uint16_t)ports.numbers[flood.knowledge.port_count];
  char path[512];
  snprintf(path, sizeof path, "%s/progress", flood.folder);
  flood.progress = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (flood.progress < 0) die("%s: %s", path, strerror(errno));
  signal(SIGTERM, end);
  come_first();
  learn(&flood);
  if (strcmp(interface, "lo") != 0) swallow_answers();
  for (enum way way = 0; way < ways; ++way)
    flood.senders[way] = open_sender(way, (uint16_t)(0xC0DE + way));
  answers_open(interface, flood.prefix[ipv4], flood.prefix[ipv6]);
  struct pace pace = new_pace(counters, rate);
  printf("{");
  send_flood(&flood, &pace);
  for (const double ends = now_seconds() + linger; now_seconds() < ends;) usleep(10000);
  printf("\"answers_missed\": %u,\n", answers_close());
  print_answers((const struct totals(*)[2])flood.sent);
  printf("}\n");
  return 0;
}
