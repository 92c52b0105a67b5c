/* The file of a counter, or of an attribute that changes, is a recipe in the tree. It says which
   host agent to ask, what to send, and what to make of the answer. tree.cc writes recipes and knows
   what the host agent's messages mean; this file only carries recipes out:

     tulle counter
     KIND DIVISOR INDEX...        kind of the answer; 64-bit numbers in it, counted from its end
     BYTES                        the request, in hexadecimal
     ADDRESS                      the host agent's: @name or a path

     tulle attribute
     KIND                         kind of the answer: whether there is a text, and the text
     BYTES
     ADDRESS
     TEXT                         used without a host agent; if empty, reading fails as on a kernel

   A recipe is as long as a kernel says that an attribute is. That distinguishes recipes from most
   other files. Only files below the tree's root are recipes, and only for who reads them: anybody
   may have written any other file that looks like one. */

#define _GNU_SOURCE
#include "recipes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { recipe_bytes = 4096, indices_max = 8, request_bytes_max = 1536, answer_bytes_max = 4096 };
enum { attribute_bytes_max = 256 };
/* For counters, the host agent asks the processes for theirs first, which takes about 30 ms. */
enum { answer_milliseconds = 2000, messages_max = 4 };

struct recipe {
  bool is_counter;
  char text[attribute_bytes_max];
  unsigned kind, divisor;
  unsigned indices[indices_max];
  unsigned index_count;
  size_t request_bytes;
  unsigned char request[request_bytes_max];
  struct sockaddr_un address;
  socklen_t address_bytes;
};

static const char counter_mark[] = "tulle counter";
static const char attribute_mark[] = "tulle attribute";
static const char marks_begin[] = "tulle ";

static char* next_line(char** rest) { return strsep(rest, "\n"); }

static bool parse_numbers(char* line, struct recipe* out) {
  char* end;
  out->kind = (unsigned)strtoul(line, &end, 10);
  if (!out->is_counter) return out->kind > 0 && *end == '\0';
  out->divisor = (unsigned)strtoul(end, &end, 10);
  while (*end == ' ' && out->index_count < indices_max) {
    out->indices[out->index_count++] = (unsigned)strtoul(end, &end, 10);
  }
  return out->divisor > 0 && *end == '\0';
}

static bool parse_request(const char* line, struct recipe* out) {
  const size_t digits = strlen(line);
  if (digits % 2 != 0 || digits / 2 > sizeof out->request) return false;
  for (size_t i = 0; i < digits; i += 2) {
    const char pair[] = {line[i], line[i + 1], '\0'};
    char* end;
    out->request[out->request_bytes++] = (unsigned char)strtoul(pair, &end, 16);
    if (*end != '\0') return false;
  }
  return digits > 0;
}

static bool parse_address(const char* line, struct recipe* out) {
  const size_t length = strlen(line);
  if (length < 2 || length >= sizeof out->address.sun_path) return false;
  out->address.sun_family = AF_UNIX;
  memcpy(out->address.sun_path, line, length + 1);
  const bool is_abstract = line[0] == '@';
  if (is_abstract) out->address.sun_path[0] = '\0';
  out->address_bytes =
      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (is_abstract ? 0 : 1));
  return true;
}

static bool may_be_recipe(int file, dev_t device) {
  struct stat its;
  return fstat(file, &its) == 0 && its.st_dev == device && S_ISREG(its.st_mode) &&
         its.st_size == recipe_bytes;
}

/* Returns false if the file is not a recipe. This function and those that ask the host agent are
   not inlined into the one that every opening of a file calls: that may run in a thread whose stack
   is small. */
__attribute__((noinline)) static bool read_recipe(int file, struct recipe* out) {
  char text[recipe_bytes + 1];
  const ssize_t read = pread(file, text, recipe_bytes, 0);
  const bool is_ours =
      read == recipe_bytes && memcmp(text, marks_begin, sizeof marks_begin - 1) == 0;
  if (!is_ours) return false;
  text[recipe_bytes] = '\0';
  char* rest = text;
  memset(out, 0, sizeof *out);
  const char* mark = next_line(&rest);
  char* numbers = rest != NULL ? next_line(&rest) : NULL;
  char* request = rest != NULL ? next_line(&rest) : NULL;
  char* address = rest != NULL ? next_line(&rest) : NULL;
  const char* attribute = rest != NULL ? next_line(&rest) : NULL;
  out->is_counter = strcmp(mark, counter_mark) == 0;
  if (attribute == NULL || (!out->is_counter && strcmp(mark, attribute_mark) != 0)) return false;
  if (!out->is_counter) snprintf(out->text, sizeof out->text, "%s", attribute);
  return parse_numbers(numbers, out) && parse_request(request, out) && parse_address(address, out);
}

static bool is_of_kind(const unsigned char* message, ssize_t bytes, unsigned kind) {
  uint16_t its;
  if (bytes < 8) return false;
  memcpy(&its, message + 6, sizeof its); /* live/message/codec.h: magic 4, version 2, kind 2 */
  return its == kind;
}

/* Reads the beginning of a file of the kernel's as a text. Not by open(), which others wrap. */
static void read_beginning(const char* path, char* text, size_t size) {
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file < 0 ? 0 : read((int)file, text, size - 1);
  text[bytes > 0 ? bytes : 0] = '\0';
  if (file >= 0) close((int)file);
}

/* As is_known_user() in os/users.h, for a map of one line. */
__attribute__((noinline)) static bool is_known_user(uid_t user) {
  char text[64];
  unsigned overflow = 65534, inside = 0, outside = 0, count = 0;
  read_beginning("/proc/sys/kernel/overflowuid", text, sizeof text);
  sscanf(text, "%u", &overflow);
  if (user != overflow) return true;
  read_beginning("/proc/self/uid_map", text, sizeof text);
  return sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && count == UINT32_MAX;
}

/* The host agent that the tree was made for may have left, and anybody may have taken its name.
   Root's answers count, and those of the user whose program this is. */
static bool is_trusted(int agent) {
  struct ucred its;
  socklen_t bytes = sizeof its;
  return getsockopt(agent, SOL_SOCKET, SO_PEERCRED, &its, &bytes) == 0 &&
         (its.uid == 0 || its.uid == geteuid()) && is_known_user(its.uid);
}

/* Returns the length of the answer in bytes, or -1. */
static ssize_t ask(const struct recipe* recipe, unsigned char* answer) {
  const int agent = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (agent < 0) return -1;
  ssize_t bytes = -1;
  if (connect(agent, (const struct sockaddr*)&recipe->address, recipe->address_bytes) == 0 &&
      is_trusted(agent) &&
      send(agent, recipe->request, recipe->request_bytes, MSG_NOSIGNAL) ==
          (ssize_t)recipe->request_bytes) {
    /* The host agent may first say that the answer takes a while. */
    for (int i = 0; i < messages_max; ++i) {
      struct pollfd entry = {agent, POLLIN, 0};
      const int ready = poll(&entry, 1, answer_milliseconds);
      if (ready < 0 && errno == EINTR) continue;
      const ssize_t length = ready > 0 ? recv(agent, answer, answer_bytes_max, 0) : -1;
      if (length <= 0) break;
      if (!is_of_kind(answer, length, recipe->kind)) continue;
      bytes = length;
      break;
    }
  }
  close(agent);
  return bytes;
}

/* Without a host agent nothing has been counted, and the value is 0. */
__attribute__((noinline)) static uint64_t value_of(const struct recipe* recipe) {
  unsigned char answer[answer_bytes_max];
  const ssize_t bytes = ask(recipe, answer);
  uint64_t sum = 0;
  for (unsigned i = 0; i < recipe->index_count; ++i) {
    const size_t back = sizeof(uint64_t) * recipe->indices[i];
    uint64_t number;
    if (bytes < 0 || back == 0 || back > (size_t)bytes) continue;
    memcpy(&number, answer + (size_t)bytes - back, sizeof number);
    sum += number;
  }
  return sum / recipe->divisor;
}

/* Without a host agent the text stays as it was when the tree was made. */
__attribute__((noinline)) static void ask_for_text(struct recipe* recipe) {
  unsigned char answer[answer_bytes_max];
  const ssize_t bytes = ask(recipe, answer);
  /* live/message/codec.h: the header, a byte that says whether there is a text, its length. */
  enum { flag_at = 8, length_at = 9, text_at = 13 };
  uint32_t length;
  if (bytes < text_at) return;
  memcpy(&length, answer + length_at, sizeof length);
  if (length > (size_t)bytes - text_at || length >= sizeof recipe->text) return;
  if (answer[flag_at] == 0) length = 0;
  memcpy(recipe->text, answer + text_at, length);
  recipe->text[length] = '\0';
  /* Names come from elsewhere. What they say to a terminal is not the reader's wish. */
  for (char* each = recipe->text; *each != '\0'; ++each) {
    if ((unsigned char)*each < ' ' || *each == '\x7f') *each = '?';
  }
}

static int text_file(const struct recipe* recipe, bool closes_on_exec) {
  /* Reading an attribute that a kernel cannot read fails with EINVAL. Reading from an epoll
     descriptor does so too. */
  if (!recipe->is_counter && recipe->text[0] == '\0') {
    return epoll_create1(closes_on_exec ? EPOLL_CLOEXEC : 0);
  }
  const int file = memfd_create("tulle-attribute", closes_on_exec ? MFD_CLOEXEC : 0);
  if (file < 0) return file;
  if (recipe->is_counter) {
    dprintf(file, "%llu\n", (unsigned long long)value_of(recipe));
  } else {
    dprintf(file, "%s\n", recipe->text);
  }
  lseek(file, 0, SEEK_SET);
  return file;
}

/* Without /proc a file's place is unknown. */
__attribute__((noinline)) static bool is_below(int file, const char* tree) {
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  /* By the system call: a name that comes back from readlink() may have lost the tree's root. */
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  const size_t root = strlen(tree);
  return strncmp(path, tree, root) == 0 && path[root] == '/';
}

__attribute__((noinline)) static int text_instead_of(int file) {
  struct recipe recipe;
  if (!read_recipe(file, &recipe)) return file;
  if (!recipe.is_counter) ask_for_text(&recipe);
  const int text = text_file(&recipe, (fcntl(file, F_GETFD) & FD_CLOEXEC) != 0);
  if (text < 0) return file;
  close(file);
  return text;
}

__attribute__((noinline)) static bool has_recipe(int file) {
  struct recipe recipe;
  return read_recipe(file, &recipe);
}

static bool is_recipe_of(int file, dev_t device, const char* tree) {
  return may_be_recipe(file, device) && (tree == NULL || is_below(file, tree));
}

bool tulle_is_recipe(int file, dev_t device, const char* tree) {
  const int saved = errno;
  const bool is_recipe = is_recipe_of(file, device, tree) && has_recipe(file);
  errno = saved;
  return is_recipe;
}

int tulle_text_instead_of(int file, dev_t device, const char* tree) {
  if (file < 0) return file;
  const int saved = errno;
  const int instead = is_recipe_of(file, device, tree) ? text_instead_of(file) : file;
  errno = saved;
  return instead;
}
