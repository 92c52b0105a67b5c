/* A program sees the devices of the machine's own libraries if something on its way has changed
   the environment that `tulle run` made. Two things are noticed:
   - A process in which this library is preloaded has loaded a libibverbs that is not Tulle's.
   - A process in which this library is preloaded starts a program that is linked to libibverbs,
     without this library: `env -i` does. The functions that start programs are wrapped for that. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "missed.h"

#define EXPORTED __attribute__((visibility("default")))

static const char own_name[] = "libtulle-paths.so";

static bool is_library_of_ours(const char* name) {
  return strcmp(name, "libibverbs.so.1") == 0 || strcmp(name, "librdmacm.so.1") == 0;
}

/* The folder of this library and of Tulle's others, without a slash at its end. */
static char own_folder[PATH_MAX];

/* System calls are made directly: the C library's functions are cancellation points, which those
   that start programs must not become, and in a child of vfork() a thread must not unwind. */
/* One write, so that lines of several processes do not mix. */
static void say(const char* line, int length) {
  const int saved = errno;
  if (length > 0 && length < PIPE_BUF) {
    (void)!syscall(SYS_write, STDERR_FILENO, line, (size_t)length);
  }
  errno = saved;
}

/* --- what this process has loaded --- */

/* Stops at a library that has one of our names, in a folder that is not Tulle's. */
static int is_foreign(struct dl_phdr_info* info, size_t size, void* found) {
  (void)size;
  const char* slash = strrchr(info->dlpi_name, '/');
  if (slash == NULL || !is_library_of_ours(slash + 1)) return 0;
  char beside[PATH_MAX];
  const size_t folder = (size_t)(slash + 1 - info->dlpi_name);
  if (folder + sizeof(own_name) > sizeof(beside)) return 0;
  memcpy(beside, info->dlpi_name, folder);
  memcpy(beside + folder, own_name, sizeof(own_name));
  const int saved = errno;
  const bool is_tulles = syscall(SYS_faccessat, AT_FDCWD, beside, F_OK) == 0;
  errno = saved;
  if (!is_tulles) *(const char**)found = info->dlpi_name;
  return !is_tulles;
}

void tulle_warn_of_other_libraries(void) {
  static atomic_flag is_said = ATOMIC_FLAG_INIT;
  const char* library = NULL;
  if (own_folder[0] == '\0' || dl_iterate_phdr(is_foreign, &library) == 0) return;
  if (atomic_flag_test_and_set(&is_said)) return;
  char line[PIPE_BUF];
  say(line, snprintf(line, sizeof(line),
                     "tulle: warning: %s uses %s, and finds no Tulle device: put %s first in its "
                     "LD_LIBRARY_PATH, or start it with `tulle run` itself\n",
                     program_invocation_short_name, library, own_folder));
}

/* --- what it starts --- */

typedef int spawn_function(pid_t*, const char*, const posix_spawn_file_actions_t*,
                           const posix_spawnattr_t*, char* const[], char* const[]);
static int (*real_execv)(const char*, char* const[]);
static int (*real_execvp)(const char*, char* const[]);
static int (*real_execve)(const char*, char* const[], char* const[]);
static int (*real_execvpe)(const char*, char* const[], char* const[]);
static spawn_function* real_posix_spawn;
static spawn_function* real_posix_spawnp;

/* A child of a process with threads must not look for a function, since another thread may hold the
   dynamic linker's lock for good. */
__attribute__((constructor)) static void prepare(void) {
  if (own_folder[0] != '\0') return;
  real_execv = dlsym(RTLD_NEXT, "execv");
  real_execvp = dlsym(RTLD_NEXT, "execvp");
  real_execve = dlsym(RTLD_NEXT, "execve");
  real_execvpe = dlsym(RTLD_NEXT, "execvpe");
  real_posix_spawn = dlsym(RTLD_NEXT, "posix_spawn");
  real_posix_spawnp = dlsym(RTLD_NEXT, "posix_spawnp");
  Dl_info own;
  if (dladdr(own_name, &own) == 0) return;
  const char* slash = strrchr(own.dli_fname, '/');
  if (slash == NULL || (size_t)(slash - own.dli_fname) >= sizeof(own_folder)) return;
  memcpy(own_folder, own.dli_fname, (size_t)(slash - own.dli_fname));
  tulle_warn_of_other_libraries();
}

/* Returns true if this library will be there to look, or the dynamic linker is led to Tulle's. */
static bool leads_here(char* const environment[]) {
  for (; environment != NULL && *environment != NULL; ++environment) {
    const char* each = *environment;
    if (strncmp(each, "LD_PRELOAD=", 11) == 0 && strstr(each, own_name) != NULL) return true;
    if (strncmp(each, "LD_LIBRARY_PATH=", 16) == 0 && strstr(each, own_folder) != NULL) return true;
  }
  return false;
}

static bool read_at(int file, void* out, size_t bytes, uint64_t at) {
  return at < (uint64_t)LONG_MAX &&
         syscall(SYS_pread64, file, out, bytes, (off_t)at) == (long)bytes;
}

enum { headers_max = 64, entries_max = 1024 };

/* Returns where the file has the byte that is mapped to that address, or 0. */
static uint64_t offset_of(const Elf64_Phdr* headers, size_t count, uint64_t address) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t within = address - headers[i].p_vaddr;
    if (headers[i].p_type == PT_LOAD && within < headers[i].p_filesz) {
      return headers[i].p_offset + within;
    }
  }
  return 0;
}

static bool needs_library_of_ours(int file, uint64_t dynamic, uint64_t names) {
  for (size_t i = 0; i < entries_max; ++i) {
    Elf64_Dyn entry;
    char name[sizeof("libibverbs.so.1")];
    if (!read_at(file, &entry, sizeof(entry), dynamic + i * sizeof(entry))) return false;
    if (entry.d_tag == DT_NULL) return false;
    if (entry.d_tag != DT_NEEDED) continue;
    memset(name, 0, sizeof(name));
    if (!read_at(file, name, sizeof(name), names + entry.d_un.d_val)) continue;
    if (memchr(name, '\0', sizeof(name)) != NULL && is_library_of_ours(name)) return true;
  }
  return false;
}

/* Returns true if that file is a program that is linked to one of these libraries. */
static bool wants_device(int file) {
  Elf64_Ehdr header;
  Elf64_Phdr headers[headers_max];
  if (!read_at(file, &header, sizeof(header), 0)) return false;
  const size_t count = header.e_phnum;
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || count > headers_max ||
      !read_at(file, headers, count * sizeof(Elf64_Phdr), header.e_phoff)) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    if (headers[i].p_type != PT_DYNAMIC) continue;
    for (size_t n = 0; n < entries_max; ++n) {
      Elf64_Dyn entry;
      if (!read_at(file, &entry, sizeof(entry), headers[i].p_offset + n * sizeof(entry)) ||
          entry.d_tag == DT_NULL) {
        return false;
      }
      if (entry.d_tag != DT_STRTAB) continue;
      const uint64_t names = offset_of(headers, count, entry.d_un.d_ptr);
      return names != 0 && needs_library_of_ours(file, headers[i].p_offset, names);
    }
  }
  return false;
}

/* Opens a program, and nothing but a regular file: opening or closing others has effects. */
static int open_file(const char* path) {
  const long place = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
  if (place < 0) return -1;
  char name[48];
  struct stat its;
  snprintf(name, sizeof(name), "/proc/self/fd/%ld", place);
  const bool is_regular = fstat((int)place, &its) == 0 && S_ISREG(its.st_mode);
  const long file = is_regular ? syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
  syscall(SYS_close, place);
  return (int)file;
}

/* The same, of one that is found as the functions do that look in PATH. */
static int open_program(const char* name, bool is_sought) {
  if (!is_sought || strchr(name, '/') != NULL) return open_file(name);
  const char* folders = getenv("PATH");
  if (folders == NULL) folders = "/bin:/usr/bin";
  for (;;) {
    const size_t length = strcspn(folders, ":");
    char path[PATH_MAX];
    const int bytes =
        snprintf(path, sizeof(path), "%.*s%s%s", (int)length, folders, length > 0 ? "/" : "", name);
    if (bytes > 0 && (size_t)bytes < sizeof(path) &&
        syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0) {
      return open_file(path);
    }
    if (folders[length] == '\0') return -1;
    folders += length + 1;
  }
}

/* This may run in a child of vfork(), or after a signal. */
static void look(const char* program, char* const environment[], bool is_sought) {
  if (own_folder[0] == '\0' || program == NULL || leads_here(environment)) return;
  const int saved = errno;
  const int file = open_program(program, is_sought);
  if (file >= 0) {
    if (wants_device(file)) {
      char line[PIPE_BUF];
      say(line,
          snprintf(line, sizeof(line),
                   "tulle: warning: %s starts without the LD_PRELOAD and LD_LIBRARY_PATH of `tulle "
                   "run`, and finds no Tulle device: keep them, or start it with `tulle run` "
                   "itself\n",
                   program));
    }
    syscall(SYS_close, file);
  }
  errno = saved;
}

/* Before prepare(), another library's constructor may start programs. */
#define REAL(name) \
  (real_##name != NULL ? real_##name : (__typeof__(real_##name))dlsym(RTLD_NEXT, #name))

EXPORTED int execv(const char* path, char* const arguments[]) {
  look(path, environ, false);
  return REAL(execv)(path, arguments);
}
EXPORTED int execvp(const char* file, char* const arguments[]) {
  look(file, environ, true);
  return REAL(execvp)(file, arguments);
}
EXPORTED int execve(const char* path, char* const arguments[], char* const environment[]) {
  look(path, environment, false);
  return REAL(execve)(path, arguments, environment);
}
EXPORTED int execvpe(const char* file, char* const arguments[], char* const environment[]) {
  look(file, environment, true);
  return REAL(execvpe)(file, arguments, environment);
}
EXPORTED int posix_spawn(pid_t* restrict child, const char* restrict path,
                         const posix_spawn_file_actions_t* restrict actions,
                         const posix_spawnattr_t* restrict attributes,
                         char* const arguments[restrict], char* const environment[restrict]) {
  look(path, environment, false);
  return REAL(posix_spawn)(child, path, actions, attributes, arguments, environment);
}
EXPORTED int posix_spawnp(pid_t* restrict child, const char* restrict file,
                          const posix_spawn_file_actions_t* restrict actions,
                          const posix_spawnattr_t* restrict attributes,
                          char* const arguments[restrict], char* const environment[restrict]) {
  look(file, environment, true);
  return REAL(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}
