/* Preloaded into programs that look for RDMA devices where a kernel would show them: below the
   class directories, the device directory and a driver's directory. The library answers for those
   paths from a tree of ordinary files (tree.h makes it), whose root TULLE_SYSFS names. Every other
   path goes to the C library unchanged; while TULLE_SYSFS is not set, every path does.

   Only names are changed: a path below one of the prefixes gets the root in front. Descriptors,
   directory streams and relative paths that a program derives from such a path belong to the tree
   and need no further care. Four things differ from plain files:
   - Nodes of the device directory are links to /dev/null, so that they are character devices that
     anyone may open. They must not look like links.
   - Counters, addresses and states have the values of the moment they are opened (recipes.c).
   - Names that come back (realpath, glob) lose the root again.
   - Programs that walk from a descriptor of "/" give the path without its first slash.

   The library is written in C and uses nothing but the C library, because it lives in every
   program, also in those that bring another C++ runtime. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "missed.h"
#include "recipes.h"

#define EXPORTED __attribute__((visibility("default")))

/* Headers no longer declare these functions. Programs built before glibc 2.33 call them. */
int __xstat(int version, const char* path, struct stat* out);
int __xstat64(int version, const char* path, struct stat64* out);
int __lxstat(int version, const char* path, struct stat* out);
int __lxstat64(int version, const char* path, struct stat64* out);
int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags);
int __fxstatat64(int version, int folder, const char* path, struct stat64* out, int flags);
int __open(const char* path, int flags, ...);
int __open64(const char* path, int flags, ...);
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
char* __realpath_chk(const char* path, char* resolved, size_t resolved_bytes);
ssize_t __readlink_chk(const char* path, char* out, size_t bytes, size_t out_bytes);
ssize_t __readlinkat_chk(int folder, const char* path, char* out, size_t bytes, size_t out_bytes);

/* --- the C library's own functions --- */

static void* find(_Atomic(void*)* known, const char* name) {
  void* function = atomic_load_explicit(known, memory_order_acquire);
  if (function == NULL) {
    function = dlsym(RTLD_NEXT, name);
    if (function == NULL) {
      fprintf(stderr, "tulle: this C library has no %s\n", name);
      abort();
    }
    atomic_store_explicit(known, function, memory_order_release);
  }
  return function;
}

#define REAL(name)                           \
  ({                                         \
    static _Atomic(void*) known_;            \
    (__typeof__(&name))find(&known_, #name); \
  })

/* --- which paths belong to the tree, and where they lead --- */

struct root {
  dev_t device;
  size_t length;
  char path[PATH_MAX];
  char real[PATH_MAX]; /* the same without links */
};

/* The variable is read once, before the program runs: the environment belongs to the program, which
   may clear it, and a handler of signals may open files. */
static struct root the_root;
static atomic_bool has_root;

__attribute__((constructor)) static void read_root(void) {
  const char* value = getenv("TULLE_SYSFS");
  const size_t length = value != NULL ? strlen(value) : 0;
  /* The limit leaves room for the longest name below the root. */
  if (length == 0 || length >= PATH_MAX / 2 || value[0] != '/') return;
  memcpy(the_root.path, value, length + 1);
  the_root.length = length;
  while (the_root.length > 0 && the_root.path[the_root.length - 1] == '/') {
    the_root.path[--the_root.length] = '\0';
  }
  struct stat its;
  const int saved = errno;
  const bool is_there = the_root.length > 0 && REAL(stat)(the_root.path, &its) == 0 &&
                        REAL(realpath)(the_root.path, the_root.real) != NULL;
  errno = saved;
  if (!is_there) return;
  the_root.device = its.st_dev;
  atomic_store_explicit(&has_root, true, memory_order_release);
}

/* Returns the root as TULLE_SYSFS names it, without a slash at its end, or null if it is not
   set. */
static const struct root* tree_root(void) {
  return atomic_load_explicit(&has_root, memory_order_acquire) ? &the_root : NULL;
}

static bool is_below(const char* path, const char* prefix, size_t length) {
  return strncmp(path, prefix, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Returns true if the path belongs to the tree. `path` has its first slash left out. */
static bool is_ours(const char* path) {
  static const struct {
    const char* name;
    size_t length;
  } prefixes[] = {
#define PREFIX(name) {name, sizeof(name) - 1}
      PREFIX("sys/class/infiniband"), PREFIX("sys/class/infiniband_verbs"),
      PREFIX("dev/infiniband"),       PREFIX("sys/class/misc/rdma_cm"),
      PREFIX("sys/bus/tulle"),
#undef PREFIX
  };
  for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); ++i) {
    if (is_below(path, prefixes[i].name, prefixes[i].length)) return true;
  }
  return false;
}

static bool is_root_folder(int folder) {
  struct stat its, root;
  const int saved = errno;
  const bool same =
      REAL(fstatat)(folder, folder == AT_FDCWD ? "." : "", &its, AT_EMPTY_PATH) == 0 &&
      REAL(fstatat)(AT_FDCWD, "/", &root, 0) == 0 && its.st_dev == root.st_dev &&
      its.st_ino == root.st_ino;
  errno = saved;
  return same;
}

/* The path to use in place of the program's. `path` points to `name`, or to the program's path. */
struct place {
  const char* path;
  bool ours;
  bool is_node; /* below the device directory */
  char name[PATH_MAX];
};

static void look(struct place* place, int folder, const char* path) {
  place->path = path;
  place->ours = place->is_node = false;
  if (path == NULL) return;
  const bool absolute = path[0] == '/';
  const char* rest = absolute ? path + 1 : path;
  /* The first letter rules out almost every path. */
  if ((rest[0] != 's' && rest[0] != 'd') || !is_ours(rest)) return;
  const struct root* root = tree_root();
  if (root == NULL || (!absolute && !is_root_folder(folder))) return;
  const size_t length = strlen(rest);
  if (root->length + 1 + length >= sizeof(place->name)) return;
  memcpy(place->name, root->path, root->length);
  place->name[root->length] = '/';
  memcpy(place->name + root->length + 1, rest, length + 1);
  place->path = place->name;
  place->ours = true;
  place->is_node = strncmp(rest, "dev/infiniband/", 15) == 0 && rest[15] != '\0';
}

/* Removes the root from the front of a name. */
static void strip(char* name) {
  const struct root* root = tree_root();
  if (root == NULL || !is_below(name, root->path, root->length)) return;
  memmove(name, name + root->length, strlen(name + root->length) + 1);
}

/* Returns the number that a kernel gives the N-th verbs node, or 0 if the place is not one. */
static dev_t node_number(const struct place* place) {
  if (!place->is_node) return 0;
  const char* name = strrchr(place->path, '/') + 1;
  if (strncmp(name, "uverbs", 6) != 0) return 0;
  return makedev(231, 192 + (unsigned)atoi(name + 6));
}

/* Returns true if the file opened there may be a recipe: its path is below one of our prefixes, or
   is relative to a folder. */
static bool may_be_recipe(const struct place* place, const char* path) {
  return place->ours || (path != NULL && path[0] != '/' && tree_root() != NULL);
}

static int text_of(const struct place* place, int file) {
  const struct root* root = tree_root();
  return tulle_text_instead_of(file, root->device, place->ours ? NULL : root->real);
}

static int opened(const struct place* place, const char* path, int flags, int file) {
  const bool is_read = (flags & O_ACCMODE) == O_RDONLY;
  return file >= 0 && is_read && may_be_recipe(place, path) ? text_of(place, file) : file;
}

#define LOOK(path) \
  struct place at; \
  look(&at, AT_FDCWD, path)
#define LOOK_AT(folder, path) \
  struct place at;            \
  look(&at, folder, path)

/* --- stat --- */

#define NUMBER_NODE(result, out)                               \
  do {                                                         \
    const dev_t number = node_number(&at);                     \
    if ((result) == 0 && number != 0) (out)->st_rdev = number; \
  } while (0)

/* `follow` is called in place of a function that would show a node as a link. */
#define STAT_FUNCTION(name, follow, type)                                                  \
  EXPORTED int name(const char* path, struct type* out) {                                  \
    LOOK(path);                                                                            \
    const int result = at.is_node ? REAL(follow)(at.path, out) : REAL(name)(at.path, out); \
    NUMBER_NODE(result, out);                                                              \
    return result;                                                                         \
  }
STAT_FUNCTION(stat, stat, stat)
STAT_FUNCTION(stat64, stat64, stat64)
STAT_FUNCTION(lstat, stat, stat)
STAT_FUNCTION(lstat64, stat64, stat64)

#define XSTAT_FUNCTION(name, follow, type)                                                    \
  EXPORTED int name(int version, const char* path, struct type* out) {                        \
    LOOK(path);                                                                               \
    const int result =                                                                        \
        at.is_node ? REAL(follow)(version, at.path, out) : REAL(name)(version, at.path, out); \
    NUMBER_NODE(result, out);                                                                 \
    return result;                                                                            \
  }
XSTAT_FUNCTION(__xstat, __xstat, stat)
XSTAT_FUNCTION(__xstat64, __xstat64, stat64)
XSTAT_FUNCTION(__lxstat, __xstat, stat)
XSTAT_FUNCTION(__lxstat64, __xstat64, stat64)

static int follow_nodes(const struct place* at, int flags) {
  return at->is_node ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
}

#define STATAT_FUNCTION(name, type)                                                \
  EXPORTED int name(int folder, const char* path, struct type* out, int flags) {   \
    LOOK_AT(folder, path);                                                         \
    const int result = REAL(name)(folder, at.path, out, follow_nodes(&at, flags)); \
    NUMBER_NODE(result, out);                                                      \
    return result;                                                                 \
  }
STATAT_FUNCTION(fstatat, stat)
STATAT_FUNCTION(fstatat64, stat64)

#define XSTATAT_FUNCTION(name, type)                                                          \
  EXPORTED int name(int version, int folder, const char* path, struct type* out, int flags) { \
    LOOK_AT(folder, path);                                                                    \
    const int result = REAL(name)(version, folder, at.path, out, follow_nodes(&at, flags));   \
    NUMBER_NODE(result, out);                                                                 \
    return result;                                                                            \
  }
XSTATAT_FUNCTION(__fxstatat, stat)
XSTATAT_FUNCTION(__fxstatat64, stat64)

EXPORTED int statx(int folder, const char* restrict path, int flags, unsigned mask,
                   struct statx* restrict out) {
  LOOK_AT(folder, path);
  const int result = REAL(statx)(folder, at.path, follow_nodes(&at, flags), mask, out);
  const dev_t number = node_number(&at);
  if (result == 0 && number != 0) {
    out->stx_rdev_major = major(number);
    out->stx_rdev_minor = minor(number);
  }
  return result;
}

/* --- access --- */

#define ACCESS_FUNCTION(name)                     \
  EXPORTED int name(const char* path, int mode) { \
    LOOK(path);                                   \
    return REAL(name)(at.path, mode);             \
  }
ACCESS_FUNCTION(access)
ACCESS_FUNCTION(euidaccess)
ACCESS_FUNCTION(eaccess)

EXPORTED int faccessat(int folder, const char* path, int mode, int flags) {
  LOOK_AT(folder, path);
  return REAL(faccessat)(folder, at.path, mode, follow_nodes(&at, flags));
}

/* --- open --- */

static bool needs_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

#define TAKE_MODE(flags)              \
  mode_t mode = 0;                    \
  if (needs_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

#define OPEN_FUNCTION(name)                             \
  EXPORTED int name(const char* path, int flags, ...) { \
    TAKE_MODE(flags)                                    \
    LOOK(path);                                         \
    const int file = REAL(name)(at.path, flags, mode);  \
    return opened(&at, path, flags, file);              \
  }
OPEN_FUNCTION(open)
OPEN_FUNCTION(open64)
OPEN_FUNCTION(__open)
OPEN_FUNCTION(__open64)

#define OPEN2_FUNCTION(name)                       \
  EXPORTED int name(const char* path, int flags) { \
    LOOK(path);                                    \
    const int file = REAL(name)(at.path, flags);   \
    return opened(&at, path, flags, file);         \
  }
OPEN2_FUNCTION(__open_2)
OPEN2_FUNCTION(__open64_2)

#define OPENAT_FUNCTION(name)                                       \
  EXPORTED int name(int folder, const char* path, int flags, ...) { \
    TAKE_MODE(flags)                                                \
    LOOK_AT(folder, path);                                          \
    const int file = REAL(name)(folder, at.path, flags, mode);      \
    return opened(&at, path, flags, file);                          \
  }
OPENAT_FUNCTION(openat)
OPENAT_FUNCTION(openat64)

#define OPENAT2_FUNCTION(name)                                 \
  EXPORTED int name(int folder, const char* path, int flags) { \
    LOOK_AT(folder, path);                                     \
    const int file = REAL(name)(folder, at.path, flags);       \
    return opened(&at, path, flags, file);                     \
  }
OPENAT2_FUNCTION(__openat_2)
OPENAT2_FUNCTION(__openat64_2)

static FILE* text_instead_of(const struct place* place, FILE* file, const char* mode) {
  if (file == NULL || mode[0] != 'r' || strchr(mode, '+') != NULL) return file;
  /* Closing any descriptor of a file drops all record locks that the process has on it. */
  const struct root* root = tree_root();
  if (!tulle_is_recipe(fileno(file), root->device, place->ours ? NULL : root->real)) return file;
  const int copy = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
  const int instead = text_of(place, copy);
  if (instead == copy) {
    if (copy >= 0) close(copy);
    return file;
  }
  FILE* value = fdopen(instead, "r");
  if (value == NULL) {
    close(instead);
    return file;
  }
  fclose(file);
  return value;
}

#define FOPEN_FUNCTION(name)                                                   \
  EXPORTED FILE* name(const char* restrict path, const char* restrict mode) {  \
    LOOK(path);                                                                \
    FILE* file = REAL(name)(at.path, mode);                                    \
    return may_be_recipe(&at, path) ? text_instead_of(&at, file, mode) : file; \
  }
FOPEN_FUNCTION(fopen)
FOPEN_FUNCTION(fopen64)

#define FREOPEN_FUNCTION(name)                                              \
  EXPORTED FILE* name(const char* restrict path, const char* restrict mode, \
                      FILE* restrict stream) {                              \
    LOOK(path);                                                             \
    return REAL(name)(at.path, mode, stream);                               \
  }
FREOPEN_FUNCTION(freopen)
FREOPEN_FUNCTION(freopen64)

/* --- directories --- */

/* The list of devices is where a libibverbs begins that was loaded while the program ran. */
EXPORTED DIR* opendir(const char* path) {
  LOOK(path);
  if (at.ours) tulle_warn_of_other_libraries();
  return REAL(opendir)(at.path);
}

EXPORTED int chdir(const char* path) {
  LOOK(path);
  return REAL(chdir)(at.path);
}

#define SCANDIR_FUNCTION(name, type)                                            \
  EXPORTED int name(const char* restrict path, struct type*** restrict list,    \
                    int (*wanted)(const struct type*),                          \
                    int (*compare)(const struct type**, const struct type**)) { \
    LOOK(path);                                                                 \
    return REAL(name)(at.path, list, wanted, compare);                          \
  }
SCANDIR_FUNCTION(scandir, dirent)
SCANDIR_FUNCTION(scandir64, dirent64)

#define SCANDIRAT_FUNCTION(name, type)                                                   \
  EXPORTED int name(int folder, const char* restrict path, struct type*** restrict list, \
                    int (*wanted)(const struct type*),                                   \
                    int (*compare)(const struct type**, const struct type**)) {          \
    LOOK_AT(folder, path);                                                               \
    return REAL(name)(folder, at.path, list, wanted, compare);                           \
  }
SCANDIRAT_FUNCTION(scandirat, dirent)
SCANDIRAT_FUNCTION(scandirat64, dirent64)

#define GLOB_FUNCTION(name, type)                                                             \
  EXPORTED int name(const char* restrict pattern, int flags, int (*failed)(const char*, int), \
                    type* restrict found) {                                                   \
    LOOK(pattern);                                                                            \
    const int result = REAL(name)(at.path, flags, failed, found);                             \
    if (at.ours && result == 0) {                                                             \
      const size_t first = (flags & GLOB_DOOFFS) != 0 ? found->gl_offs : 0;                   \
      for (size_t i = 0; i < found->gl_pathc; ++i) strip(found->gl_pathv[first + i]);         \
    }                                                                                         \
    return result;                                                                            \
  }
GLOB_FUNCTION(glob, glob_t)
GLOB_FUNCTION(glob64, glob64_t)

/* --- links and real names --- */

/* A kernel's node is not a link, so that reading it as one fails with EINVAL. */
static ssize_t refuse_node(const struct place* at) {
  if (REAL(access)(at->path, F_OK) == 0) errno = EINVAL;
  return -1;
}

EXPORTED ssize_t readlink(const char* restrict path, char* restrict out, size_t bytes) {
  LOOK(path);
  return at.is_node ? refuse_node(&at) : REAL(readlink)(at.path, out, bytes);
}

EXPORTED ssize_t readlinkat(int folder, const char* restrict path, char* restrict out,
                            size_t bytes) {
  LOOK_AT(folder, path);
  return at.is_node ? refuse_node(&at) : REAL(readlinkat)(folder, at.path, out, bytes);
}

EXPORTED ssize_t __readlink_chk(const char* path, char* out, size_t bytes, size_t out_bytes) {
  if (bytes > out_bytes) abort();
  return readlink(path, out, bytes);
}

EXPORTED ssize_t __readlinkat_chk(int folder, const char* path, char* out, size_t bytes,
                                  size_t out_bytes) {
  if (bytes > out_bytes) abort();
  return readlinkat(folder, path, out, bytes);
}

/* Returns the real name of a path of the tree as the program shall see it. For a node, that is the
   name that the program gave. */
static char* real_name(const struct place* at, const char* path, char* resolved) {
  char real[PATH_MAX];
  if (REAL(realpath)(at->path, real) == NULL) return NULL;
  if (at->is_node) {
    strcpy(real, path);
  } else {
    /* The path to the root may itself contain links. */
    char real_root[PATH_MAX];
    const struct root* root = tree_root();
    if (REAL(realpath)(root->path, real_root) == NULL) return NULL;
    const size_t length = strlen(real_root);
    if (is_below(real, real_root, length)) {
      memmove(real, real + length, strlen(real + length) + 1);
    }
  }
  return resolved != NULL ? strcpy(resolved, real) : strdup(real);
}

EXPORTED char* realpath(const char* restrict path, char* restrict resolved) {
  LOOK(path);
  return at.ours ? real_name(&at, path, resolved) : REAL(realpath)(path, resolved);
}

EXPORTED char* __realpath_chk(const char* path, char* resolved, size_t resolved_bytes) {
  LOOK(path);
  if (!at.ours) return REAL(__realpath_chk)(path, resolved, resolved_bytes);
  if (resolved_bytes < PATH_MAX) abort();
  return real_name(&at, path, resolved);
}

EXPORTED char* canonicalize_file_name(const char* path) {
  LOOK(path);
  return at.ours ? real_name(&at, path, NULL) : REAL(canonicalize_file_name)(path);
}

/* --- extended attributes: the tree has none, but ls -l asks for them --- */

#define GETXATTR_FUNCTION(name)                                                               \
  EXPORTED ssize_t name(const char* path, const char* attribute, void* value, size_t bytes) { \
    LOOK(path);                                                                               \
    return REAL(name)(at.path, attribute, value, bytes);                                      \
  }
GETXATTR_FUNCTION(getxattr)
GETXATTR_FUNCTION(lgetxattr)

#define LISTXATTR_FUNCTION(name)                                      \
  EXPORTED ssize_t name(const char* path, char* list, size_t bytes) { \
    LOOK(path);                                                       \
    return REAL(name)(at.path, list, bytes);                          \
  }
LISTXATTR_FUNCTION(listxattr)
LISTXATTR_FUNCTION(llistxattr)
