#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "integrity.h"

static const char usage[] =
    "integrity [OPTIONS] [SERVER]   without SERVER: waits for a client\n"
    "  -p PORT   TCP port of the side channel (18600)\n"
    "  -d NAME   device (the first)\n"
    "  -g INDEX  GID index (0)\n"
    "  -m BYTES  path MTU (the port's)\n"
    "  -M MODE   all, single, mix, streams, refusals, windows, until-error or\n"
    "            idle (all)\n"
    "  -n COUNT  rounds of the mix (20)\n"
    "  -s SEED   of the plan; the server's counts (1)\n"
    "  -P PSN    the first PSN of each queue pair (follows from its number)\n"
    "  -e        wait for completion events\n"
    "  -l        the network may lose: unreliable messages may be missing\n"
    "  -k        one of the two is Linux's Soft-RoCE: what it does otherwise is left out\n";

static bool is_server;

void die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  fprintf(stderr, "integrity (%s): ", is_server ? "server" : "client");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(1);
}

double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct options parse(int argc, char** argv) {
  struct options options = {
      .port = "18600", .mode = "all", .seed = 1, .rounds = 20, .first_psn = -1};
  int option;
  while ((option = getopt(argc, argv, "p:d:g:m:M:n:s:P:elk")) != -1) {
    switch (option) {
      case 'p':
        options.port = optarg;
        break;
      case 'd':
        options.device = optarg;
        break;
      case 'g':
        options.gid_index = atoi(optarg);
        break;
      case 'm':
        options.mtu = atoi(optarg);
        break;
      case 'M':
        options.mode = optarg;
        break;
      case 'n':
        options.rounds = atoi(optarg);
        break;
      case 's':
        options.seed = strtoull(optarg, NULL, 0);
        break;
      case 'P':
        options.first_psn = atoi(optarg);
        break;
      case 'e':
        options.events = true;
        break;
      case 'k':
        options.soft_roce = true;
        break;
      case 'l':
        options.lossy = true;
        break;
      default:
        fputs(usage, stderr);
        exit(2);
    }
  }
  if (optind < argc) options.server = argv[optind];
  is_server = options.server == NULL;
  return options;
}

int main(int argc, char** argv) {
  struct options options = parse(argc, argv);
  static const struct {
    const char* mode;
    void (*run)(struct endpoint*);
    bool in_all;
  } parts[] = {{"single", run_single, true},   {"mix", run_mix, true},
               {"streams", run_streams, true}, {"refusals", run_refusals, true},
               {"windows", run_windows, true}, {"until-error", run_until_error, false},
               {"idle", run_idle, false}};

  side_channel_open(&options);
  options.seed = side_channel_agree(options.seed);
  static struct endpoint endpoint;
  endpoint_open(&endpoint, &options);
  bool known = false;
  for (unsigned i = 0; i < sizeof parts / sizeof *parts; ++i) {
    if (strcmp(options.mode, parts[i].mode) != 0 &&
        !(strcmp(options.mode, "all") == 0 && parts[i].in_all))
      continue;
    known = true;
    const double start = now_seconds();
    const uint64_t before = endpoint.operations;
    parts[i].run(&endpoint);
    printf("%s: %llu operations, %.2f s\n", parts[i].mode,
           (long long)(endpoint.operations - before), now_seconds() - start);
  }
  if (!known) die("no mode %s", options.mode);
  barrier(&endpoint);
  endpoint_close(&endpoint);
  printf("ok: %llu operations, %.0f MB verified, seed %llu\n", (long long)endpoint.operations,
         (double)endpoint.bytes_verified * 1e-6, (long long)options.seed);
  return 0;
}
