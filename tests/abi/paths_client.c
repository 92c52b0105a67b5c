/* Looks for devices in every way in which programs do, and says what it found. The test that
   runs this program preloads the library that answers. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int failures;

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
      ++failures;                                                                          \
    }                                                                                      \
  } while (0)

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/tulle0"
#define NODE "/dev/infiniband/uverbs0"

int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags);
int __open_2(const char* path, int flags);

static int text_is(int fd, const char* expected) {
  char text[64] = "";
  const ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
  if (fd >= 0) close(fd);
  if (bytes < 0 || strcmp(text, expected) != 0) printf("read \"%s\"\n", text);
  return bytes >= 0 && strcmp(text, expected) == 0;
}

static void stats(void) {
  struct stat st;
  struct stat64 st64;
  struct statx stx;
  CHECK(stat(CLASS, &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(stat64(DEVICE "/node_type", &st64) == 0 && S_ISREG(st64.st_mode));
  CHECK(stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(stat(NODE, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(major(st.st_rdev) == 231 && minor(st.st_rdev) == 192);
  CHECK(lstat(NODE, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(lstat64(NODE, &st64) == 0 && S_ISCHR(st64.st_mode));
  CHECK(fstatat(AT_FDCWD, NODE, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode));
  CHECK(statx(AT_FDCWD, NODE, AT_SYMLINK_NOFOLLOW, STATX_ALL, &stx) == 0 && S_ISCHR(stx.stx_mode) &&
        stx.stx_rdev_major == 231);
#ifdef __x86_64__
  CHECK(__xstat(1, NODE, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(__lxstat(1, NODE, &st) == 0 && S_ISCHR(st.st_mode));
  CHECK(__fxstatat(1, AT_FDCWD, CLASS, &st, 0) == 0 && S_ISDIR(st.st_mode));
#endif
  CHECK(stat(CLASS "/none", &st) != 0 && errno == ENOENT);
  CHECK(access(NODE, R_OK | W_OK) == 0);
  CHECK(faccessat(AT_FDCWD, CLASS, X_OK, AT_EACCESS) == 0);
  CHECK(euidaccess(CLASS, R_OK) == 0);
}

static void opens(void) {
  CHECK(text_is(open(DEVICE "/ports/1/link_layer", O_RDONLY), "Ethernet\n"));
  CHECK(text_is(open64(DEVICE "/ports/1/state", O_RDONLY), "4: ACTIVE\n"));
  CHECK(text_is(openat(AT_FDCWD, DEVICE "/ports/1/lid", O_RDONLY), "0x0\n"));
  CHECK(text_is(__open_2(DEVICE "/node_type", O_RDONLY), "1: CA\n"));
  CHECK(text_is(open(DEVICE "/ports/1/gids/0", O_RDONLY),
                "0000:0000:0000:0000:0000:ffff:7f00:0001\n"));
  CHECK(text_is(open(DEVICE "/ports/1/gid_attrs/types/0", O_RDONLY), "RoCE v2\n"));
  CHECK(text_is(open(DEVICE "/ports/1/gid_attrs/ndevs/0", O_RDONLY), "lo\n"));
  CHECK(open(DEVICE "/ports/1/gid_attrs/types/5", O_RDONLY) < 0);
  const int node = open(NODE, O_RDWR | O_CLOEXEC);
  struct stat st;
  CHECK(node >= 0 && fstat(node, &st) == 0 && S_ISCHR(st.st_mode));
  close(node);
  /* This walks from a descriptor, as topology libraries do. */
  const int slash = open("/", O_RDONLY | O_DIRECTORY);
  const int ports = openat(slash, "sys/class/infiniband/tulle0/ports", O_RDONLY | O_DIRECTORY);
  CHECK(text_is(openat(ports, "1/phys_state", O_RDONLY), "5: LinkUp\n"));
  close(ports);
  close(slash);
  FILE* file = fopen("/sys/class/infiniband_verbs/uverbs0/ibdev", "r");
  char line[64] = "";
  CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL && strcmp(line, "tulle0\n") == 0);
  if (file != NULL) fclose(file);
}

static int not_hidden(const struct dirent* entry) { return entry->d_name[0] != '.'; }

static void folders(void) {
  DIR* folder = opendir(CLASS);
  int found = 0;
  CHECK(folder != NULL);
  for (struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    found += strcmp(entry->d_name, "tulle0") == 0;
  }
  CHECK(found == 1);
  if (folder != NULL) closedir(folder);
  struct dirent** list = NULL;
  CHECK(scandir("/sys/class/infiniband_verbs", &list, not_hidden, alphasort) == 2);
  CHECK(list != NULL && strcmp(list[1]->d_name, "uverbs0") == 0);
  CHECK(scandir(DEVICE "/device/net", &list, not_hidden, alphasort) == 1);
  CHECK(strcmp(list[0]->d_name, "lo") == 0);
  glob_t paths;
  CHECK(glob(CLASS "/*/node_guid", 0, NULL, &paths) == 0 && paths.gl_pathc == 1);
  CHECK(strcmp(paths.gl_pathv[0], DEVICE "/node_guid") == 0);
  globfree(&paths);
}

static void names(void) {
  char name[PATH_MAX];
  CHECK(realpath(DEVICE "/device/driver", name) != NULL &&
        strcmp(name, "/sys/bus/tulle/drivers/tulle") == 0);
  CHECK(access(name, F_OK) == 0);
  CHECK(realpath("/sys/class/infiniband_verbs/uverbs0/device", name) != NULL &&
        strcmp(name, DEVICE "/device") == 0);
  CHECK(realpath(NODE, name) != NULL && strcmp(name, NODE) == 0);
  CHECK(realpath(CLASS "/none", name) == NULL && errno == ENOENT);
  char* whole = canonicalize_file_name(DEVICE "/ports/../node_type");
  CHECK(whole != NULL && strcmp(whole, DEVICE "/node_type") == 0);
  free(whole);
  const ssize_t bytes = readlink(DEVICE "/device/driver", name, sizeof(name) - 1);
  CHECK(bytes > 0);
  name[bytes > 0 ? bytes : 0] = '\0';
  CHECK(strcmp(strrchr(name, '/'), "/tulle") == 0);
  CHECK(readlink(NODE, name, sizeof(name)) == -1 && errno == EINVAL);
  CHECK(readlink("/dev/infiniband/none", name, sizeof(name)) == -1 && errno == ENOENT);
}

/* Checks paths that only look alike, and the rest of the machine. */
static void others(void) {
  struct stat st;
  char name[PATH_MAX];
  CHECK(stat("/sys/class/infiniband_other", &st) != 0);
  CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 1);
  CHECK(realpath("/proc/self/exe", name) != NULL);
  CHECK(open("sys/class/infiniband", O_RDONLY) < 0);
  const int fd = open(".", O_TMPFILE | O_RDWR, 0600);
  if (fd >= 0) {
    CHECK(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600);
    close(fd);
  }
}

int main(void) {
  stats();
  opens();
  folders();
  names();
  others();
  if (failures == 0) printf("all found\n");
  return failures != 0;
}
