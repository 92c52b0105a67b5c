#include "live/agent/privileges.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/pfkeyv2.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/folder_test.h"

namespace tulle::live {
namespace {

// Newer than some headers.
constexpr long fchmodat2_call = 452, file_setattr_call = 469;
constexpr unsigned long ext4_set_version = _IOW('f', 4, long);

// Runs the check in a process that has given up its privileges. Returns true if it holds there.
bool holds_without_privileges(const std::function<bool()>& check) {
  const pid_t child = fork();
  if (child == 0) {
    give_up_privileges("/tmp/agent");
    _exit(check() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Confined : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer finds leaks with a process that traces this one";
#endif
  }
};

TEST_F(Confined, NoProgramIsStarted) {
  EXPECT_TRUE(holds_without_privileges([] {
    char name[] = "/bin/true";
    char* const arguments[] = {name, nullptr};
    return execv(name, arguments) == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, NoProcessIsStarted) {
  EXPECT_TRUE(holds_without_privileges([] {
    const pid_t made = fork();
    if (made == 0) _exit(0);
    return made == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, NoFileIsMadeAndNoProcessSignalled) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  EXPECT_TRUE(holds_without_privileges([] {
    const bool makes = open("/tmp/tulle-privileges", O_CREAT | O_WRONLY | O_CLOEXEC, 0600) >= 0;
    const bool is_refused = errno == EACCES || errno == EROFS;
    return !makes && is_refused && kill(getppid(), 0) == -1 && errno == EPERM;
  }));
}

TEST_F(Confined, TheProcessEndsItselfAndWritesToTheNullDevice) {
  EXPECT_TRUE(holds_without_privileges([] {
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1) == 0 && open("/dev/null", O_WRONLY | O_CLOEXEC) >= 0;
  }));
}

TEST_F(Confined, OtherProcessesAndNamespacesAreOutOfReach) {
  EXPECT_TRUE(holds_without_privileges([] {
    const bool traces = ptrace(PTRACE_SEIZE, getppid(), nullptr, nullptr) == 0;
    const bool is_refused = errno == EPERM;
    return !traces && is_refused && unshare(CLONE_NEWUSER) == -1 && errno == EPERM;
  }));
}

// Each of these reaches a process of the same user, or lets the kernel signal one.
TEST_F(Confined, NoOtherProcessIsDisturbed) {
  EXPECT_TRUE(holds_without_privileges([] {
    const auto is_refused = [](long result) { return result == -1 && errno == EPERM; };
    int ends[2] = {-1, -1};
    int yes = 1;
    int parent = getppid();
    const rlimit none{0, 0};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    const f_owner_ex owner{F_OWNER_PID, parent};
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 &&
           is_refused(fcntl(ends[0], F_SETOWN, parent)) &&
           is_refused(fcntl(ends[0], F_SETOWN_EX, &owner)) &&
           is_refused(fcntl(ends[0], F_SETSIG, SIGKILL)) &&
           is_refused(ioctl(ends[0], FIOSETOWN, &parent)) &&
           is_refused(ioctl(ends[0], SIOCSPGRP, &parent)) &&
           is_refused(ioctl(ends[0], FIOASYNC, &yes)) &&
           is_refused(prlimit(parent, RLIMIT_FSIZE, &none, nullptr)) &&
           is_refused(sched_setaffinity(parent, sizeof first, &first)) &&
           is_refused(setpriority(PRIO_PROCESS, static_cast<id_t>(parent), 19));
  }));
}

// A user may send the agent a socket of any kind, too.
TEST_F(Confined, NoOtherServiceIsConnectedTo) {
  const int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_TRUE(holds_without_privileges([stream] {
    const auto is_refused = [](long result) { return result == -1 && errno == EPERM; };
    const sockaddr_un name{AF_UNIX, "/run/service"};
    int ends[2];
    return is_refused(socket(AF_UNIX, SOCK_STREAM, 0)) &&
           is_refused(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends)) &&
           is_refused(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) &&
           is_refused(socket(AF_INET6, SOCK_SEQPACKET, 0)) &&
           is_refused(socket(AF_KEY, SOCK_RAW, PF_KEY_V2)) &&
           is_refused(socket(AF_VSOCK, SOCK_DGRAM, 0)) &&
           is_refused(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER)) &&
           is_refused(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT)) &&
           socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE) >= 0 &&
           socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0) >= 0 &&
           socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 &&
           is_refused(connect(stream, reinterpret_cast<const sockaddr*>(&name), sizeof name));
  }));
  close(stream);
}

// The options of sockets from 64 on: iptables' are 64 to 69, arptables' 96, ebtables' 128, and
// multicast routing's 200. The numbers mean other things at other levels.
TEST_F(Confined, NoTableOfTheKernelIsReplaced) {
  EXPECT_TRUE(holds_without_privileges([] {
    const int ipv4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int ipv6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto is_refused = [](int socket, int level, int option) {
      int value = 0;
      socklen_t bytes = sizeof value;
      return setsockopt(socket, level, option, &value, bytes) == -1 && errno == EPERM &&
             getsockopt(socket, level, option, &value, &bytes) == -1 && errno == EPERM;
    };
    const auto is_set = [](int socket, int level, int option) {
      const int value = 1;
      return setsockopt(socket, level, option, &value, sizeof value) == 0;
    };
    for (const int option : {64, 65, 68, 69, 96, 128, 200}) {
      if (!is_refused(ipv4, IPPROTO_IP, option)) return false;
      if (!is_refused(ipv6, IPPROTO_IPV6, option)) return false;
    }
    return is_set(ipv4, IPPROTO_IP, IP_RECVTOS) && is_set(ipv6, IPPROTO_IPV6, IPV6_RECVTCLASS) &&
           is_set(ipv6, IPPROTO_IPV6, IPV6_RECVHOPLIMIT) && is_set(ipv4, IPPROTO_UDP, UDP_GRO);
  }));
}

// A call that nobody has looked at is absent, as in an older kernel.
TEST_F(Confined, NewerCallsAreAbsent) {
  EXPECT_TRUE(holds_without_privileges([] {
    for (long call = file_setattr_call - 2; call < 600; ++call) {
      if (syscall(call, -1, nullptr, nullptr, 0, 0, 0) != -1 || errno != ENOSYS) return false;
    }
    return true;
  }));
}

// Files of the same user, which may be root's: none changes, and none gets other rights.
TEST_F(Confined, NoFileIsChanged) {
  const Folder folder;
  const std::string file = folder.path("file");
  { std::ofstream(file) << "content"; }
  const int open_before = open(file.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_TRUE(holds_without_privileges([&] {
    const auto is_refused = [](long result) { return result == -1 && errno == EPERM; };
    const char* path = file.c_str();
    struct flock read_lock {};
    read_lock.l_type = F_RDLCK;
    int flags = 0;
    return is_refused(chmod(path, 04755)) && is_refused(fchmod(open_before, 0666)) &&
           is_refused(fchmodat(AT_FDCWD, path, 0666, 0)) &&
           is_refused(syscall(fchmodat2_call, AT_FDCWD, path, 0666, 0)) &&
           is_refused(chown(path, 1, 1)) && is_refused(lchown(path, 1, 1)) &&
           is_refused(fchown(open_before, 1, 1)) && is_refused(truncate(path, 0)) &&
           is_refused(setxattr(path, "user.a", "b", 1, 0)) &&
           is_refused(fsetxattr(open_before, "user.a", "b", 1, 0)) &&
           is_refused(utimensat(AT_FDCWD, path, nullptr, 0)) &&
           is_refused(flock(open_before, LOCK_EX)) &&
           is_refused(fcntl(open_before, F_SETLEASE, F_WRLCK)) &&
           is_refused(fcntl(open_before, F_SETLK, &read_lock)) &&
           is_refused(fcntl(open_before, F_OFD_SETLKW, &read_lock)) &&
           is_refused(ioctl(open_before, FS_IOC_SETFLAGS, &flags)) &&
           is_refused(ioctl(open_before, ext4_set_version, &flags)) &&
           is_refused(ioctl(open_before, FIGETBSZ, &flags)) &&
           is_refused(syscall(SYS_fanotify_init, 0, O_RDONLY));
  }));
  close(open_before);
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 3) {
    GTEST_SKIP() << "this kernel's Landlock lets files be cut";
  }
  EXPECT_TRUE(holds_without_privileges(
      [&] { return open(file.c_str(), O_RDONLY | O_TRUNC | O_CLOEXEC) == -1 && errno == EACCES; }));
}

// The agent removes its socket, if nobody else has a file in the folder.
TEST_F(Confined, OnlyAFolderOfItsOwnIsTouched) {
  const Folder own, shared;
  for (const Folder* each : {&own, &shared}) std::ofstream(each->path("agent")) << "";
  std::ofstream(shared.path("another")) << "";
  const auto removes = [](const Folder& folder) {
    const pid_t child = fork();
    if (child == 0) {
      give_up_privileges(folder.path("agent"));
      _exit(unlink(folder.path("agent").c_str()) == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0;
  };
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  EXPECT_TRUE(removes(own));
  EXPECT_FALSE(removes(shared));
}

TEST_F(Confined, NoMemoryOfOthersIsShared) {
  EXPECT_TRUE(holds_without_privileges([] {
    const auto is_refused = [](long result) { return result == -1 && errno == EPERM; };
    return is_refused(shmget(IPC_PRIVATE, 4'096, IPC_CREAT | 0600)) &&
           is_refused(reinterpret_cast<long>(shmat(0, nullptr, 0))) &&
           is_refused(msgget(IPC_PRIVATE, IPC_CREAT | 0600)) &&
           is_refused(semget(IPC_PRIVATE, 1, IPC_CREAT | 0600)) &&
           is_refused(syscall(SYS_mq_open, "tulle-test", O_RDONLY, 0, nullptr)) &&
           is_refused(syscall(SYS_mq_unlink, "tulle-test"));
  }));
}

TEST_F(Confined, NoTerminalIsTypedAt) {
  EXPECT_TRUE(holds_without_privileges([] {
    const int terminal = open("/dev/null", O_RDWR | O_CLOEXEC);
    const bool types = ioctl(terminal, TIOCSTI, "x") == 0;
    return !types && errno == EPERM;
  }));
}

TEST(Privileges, ItsOwnLimitsAndDescriptorsAreAsBefore) {
  EXPECT_TRUE(holds_without_privileges([] {
    rlimit files{};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return getrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_NOFILE, &files) == 0 &&
           fd >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
  }));
}

TEST(Privileges, ThreadsAndSocketsAreAsBefore) {
  EXPECT_TRUE(holds_without_privileges([] {
    int ends[2] = {-1, -1};
    bool has_sent = false;
    std::thread([&] {
      has_sent = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0 && send(ends[0], "x", 1, 0) == 1;
    }).join();
    char got = 0;
    return has_sent && recv(ends[1], &got, 1, 0) == 1 && got == 'x';
  }));
}

}  // namespace
}  // namespace tulle::live
