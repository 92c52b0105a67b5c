// The processes, files and kernel objects of others. The kernel refuses most of this; what Tulle
// makes must not weaken it.

#include <dirent.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "attack.h"
#include "os/shared_memory.h"

namespace hostile {

using namespace tulle::live;

namespace {

std::vector<pid_t> others(const Context& context) {
  std::vector<pid_t> all = context.victims;
  all.push_back(context.agent);
  return all;
}

void signal_them(Context& context, int number) {
  for (const pid_t pid : others(context)) {
    context.expect(kill(pid, number) != 0 && errno == EPERM, "a signal reaches another user");
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    context.expect(syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) != 0,
                   "a signal reaches another user by its pidfd");
    context.did();
  }
}
void trace_them(Context& context, int) {
  for (const pid_t pid : others(context)) {
    for (const int how : {static_cast<int>(PTRACE_ATTACH), static_cast<int>(PTRACE_SEIZE)}) {
      context.expect(ptrace(static_cast<__ptrace_request>(how), pid, nullptr, nullptr) != 0,
                     "another user's process is traced");
      context.did();
    }
  }
}
void read_and_write_memory(Context& context, int) {
  Bytes buffer(4'096);
  iovec own{buffer.data(), buffer.size()};
  for (const pid_t pid : others(context)) {
    for (const std::uintptr_t at : {0x10000ul, 0x400000ul, 0x555555554000ul, 0x7ffff7fc0000ul}) {
      iovec there{reinterpret_cast<void*>(at), buffer.size()};
      const ssize_t bytes = process_vm_readv(pid, &own, 1, &there, 1, 0);
      context.expect(bytes < 0 && errno == EPERM, "another user's memory is read");
      if (bytes > 0) context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
      context.expect(process_vm_writev(pid, &own, 1, &there, 1, 0) < 0, "it is written");
      context.did();
    }
  }
}
void take_descriptors(Context& context, int) {
  for (const pid_t pid : others(context)) {
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    for (int fd = 0; fd < 64; ++fd) {
      const UniqueFd got(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
      context.expect(!got, "another user's descriptor is taken");
      const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
      const UniqueFd opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
      context.expect(!opened, "another user's descriptor is opened");
      context.did();
    }
  }
}
void read_files_of_processes(Context& context, int) {
  const char* closed[] = {"mem",      "maps",       "environ", "auxv",       "io",      "stack",
                          "syscall",  "exe",        "cwd",     "root",       "pagemap", "ns/net",
                          "fdinfo/0", "task/0/mem", "smaps",   "personality"};
  Bytes buffer(1 << 16);
  for (const pid_t pid : others(context)) {
    for (const char* name : closed) {
      const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
      const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      context.did();
      if (!file) continue;
      const ssize_t bytes = read(file.get(), buffer.data(), buffer.size());
      context.expect(bytes <= 0, std::string("another user's file is read: ") + name);
      if (bytes > 0) context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
    }
  }
}
void read_open_files(Context& context, int) {
  Bytes buffer(1 << 16);
  for (const pid_t pid : others(context)) {
    for (const char* name : {"cmdline", "comm", "status", "stat", "net/udp", "net/unix", "wchan"}) {
      const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
      const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      context.did();
      const ssize_t bytes = file ? read(file.get(), buffer.data(), buffer.size()) : 0;
      // The driver gives its secrets on a command line that only the attacker has.
      if (bytes > 0) context.scan(std::span(buffer).first(static_cast<std::size_t>(bytes)));
    }
  }
}
void read_shared_folders(Context& context, int) {
  for (const char* folder : {"/dev/shm", "/tmp", "/run", "/var/tmp", "/run/user/0", "/tmp/tulle-0",
                             "/run/tulle", "/dev/mqueue"}) {
    DIR* entries = opendir(folder);
    context.did();
    if (entries == nullptr) continue;
    while (const dirent* entry = readdir(entries)) {
      const std::string path = std::string(folder) + "/" + entry->d_name;
      const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
      if (file) context.scan_file(file.get());
      if (path.find("tulle") != std::string::npos) {
        const UniqueFd written(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
        context.expect(!written || geteuid() == 0, "a file of Tulle's is open to all: " + path);
      }
    }
    closedir(entries);
  }
}
void change_priorities(Context& context, int) {
  for (const pid_t pid : others(context)) {
    context.expect(setpriority(PRIO_PROCESS, static_cast<id_t>(pid), 19) != 0, "it is made slower");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    context.expect(sched_setaffinity(pid, sizeof(one), &one) != 0, "it is bound to a processor");
    const rlimit none{0, 0};
    context.expect(prlimit(pid, RLIMIT_NOFILE, &none, nullptr) != 0, "its limits are changed");
    const sched_param least{0};
    context.expect(sched_setscheduler(pid, SCHED_IDLE, &least) != 0, "its scheduling is changed");
    context.expect(syscall(SYS_kcmp, getpid(), pid, KCMP_FILE, 0, 0) < 0, "files are compared");
    context.did();
  }
}
void advise_memory(Context& context, int) {
  for (const pid_t pid : others(context)) {
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    iovec there{reinterpret_cast<void*>(0x400000), 4'096};
    context.expect(syscall(SYS_process_madvise, process.get(), &there, 1, MADV_COLD, 0) < 0,
                   "another user's memory is moved");
    context.expect(syscall(SYS_move_pages, pid, 0, nullptr, nullptr, nullptr, 0) < 0,
                   "another user's pages are moved");
    context.did();
  }
}
// Asks the kernel to end all sockets of the port.
void destroy_sockets(Context& context, int family) {
  const UniqueFd netlink(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!netlink) return context.skip("no sock_diag here");
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } message{};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type = SOCK_DESTROY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  message.request.sdiag_family = static_cast<std::uint8_t>(family);
  message.request.sdiag_protocol = IPPROTO_UDP;
  message.request.idiag_states = ~0u;
  message.request.id.idiag_sport = htons(4'791);
  message.request.id.idiag_cookie[0] = message.request.id.idiag_cookie[1] = ~0u;
  context.did();
  if (send(netlink.get(), &message, sizeof(message), 0) < 0) return;
  struct {
    nlmsghdr header;
    nlmsgerr error;
    char more[512];
  } answer{};
  const ssize_t bytes = recv(netlink.get(), &answer, sizeof(answer), MSG_DONTWAIT);
  context.expect(bytes < 0 || answer.error.error != 0, "a socket of the port is destroyed");
}
void forge_credentials(Context& context, int) {
  for (const pid_t pid : others(context)) {
    const UniqueFd connection = to_agent();
    const Bytes bytes = encode(hello(Purpose::open));
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(ucred))] = {};
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_CREDENTIALS;
    c->cmsg_len = CMSG_LEN(sizeof(ucred));
    const ucred forged{pid, 0, 0};
    std::memcpy(CMSG_DATA(c), &forged, sizeof(forged));
    context.expect(sendmsg(connection.get(), &message, MSG_NOSIGNAL) < 0, "credentials are forged");
    context.did();
  }
}
// In a user namespace of its own the attacker is root, and has a process number that the agent does
// not know. It must not get more than before.
void be_root_of_a_namespace(Context& context, int flags) {
  const uid_t own = geteuid();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | flags) != 0) _exit(2);
    const UniqueFd map(open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    const std::string line = "0 " + std::to_string(own) + " 1";
    if (write(map.get(), line.data(), line.size()) < 0 || geteuid() != 0) _exit(2);
    const pid_t inner = fork();  // a process namespace begins with a child
    if (inner == 0) {
      Context inside = context;
      auto process = open_process(inside);
      if (process && !process->opened.is_relayed) _exit(3);
      for (const pid_t pid : others(inside)) {
        if ((flags & CLONE_NEWPID) == 0 && kill(pid, SIGKILL) == 0) _exit(4);
      }
      auto channel = open_channel(inside);
      if (!channel) _exit(0);
      const EndpointId id = channel->create(inside);
      for (std::uint32_t number = 0; number < 2'000; ++number) {
        if (number == channel->number) continue;
        if (!has_failed(channel->say(inside, command::Migrate{id, number, {}}))) _exit(5);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 6);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
    return context.skip("no user namespaces for ordinary users here");
  }
  context.did();
  context.expect(
      WIFEXITED(status) && WEXITSTATUS(status) == 0,
      "root of a namespace of its own gets more, code " + std::to_string(WEXITSTATUS(status)));
}
// A child that has the same descriptors connects while the agent is busy, and is gone before the
// agent accepts. What is opened with its connections must end with it, although the agent is given
// the other end of each connection to hold.
void outlive_the_process(Context& context, int) {
  constexpr std::size_t many = 20;
  for (int round = 0; round < 12; ++round) {
    std::vector<UniqueFd> busy(60), connections(many);
    for (UniqueFd& each : busy) {
      each = to_agent();
      send_raw(each.get(), encode(hello(Purpose::list)));
    }
    for (UniqueFd& each : connections)
      each.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un agent{AF_UNIX, "\0tulle"};
    constexpr socklen_t bytes = offsetof(sockaddr_un, sun_path) + 6;
    const auto child =
        static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, nullptr, nullptr, 0));
    if (child == 0) {
      for (const UniqueFd& each : connections) {
        connect(each.get(), reinterpret_cast<sockaddr*>(&agent), bytes);
      }
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    busy.clear();
    for (const UniqueFd& each : connections) {
      if (!send_raw(each.get(), encode(hello(Purpose::open)))) continue;
      next(context, each.get());
      std::array<int, 2> bell{};
      if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, bell.data()) != 0) continue;
      const UniqueFd button(bell[0]), other(bell[1]);
      const int own = each.get();
      send_raw(other.get(), std::array<std::byte, 1>{}, std::span(&own, 1));
      auto table = tulle::make_shared_memory("table", 4'096);
      const std::array<int, 2> exposed = {table ? table->get() : -1, button.get()};
      if (table) send_raw(each.get(), encode(Expose{}), exposed);
      context.did();
    }
    for (const UniqueFd& each : connections) {
      pollfd ended{each.get(), POLLRDHUP, 0};
      context.expect(poll(&ended, 1, 5'000) == 1, "a session outlives its process");
    }
  }
}
void enter_namespaces(Context& context, int) {
  for (const pid_t pid : others(context)) {
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    for (const int kind : {CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC}) {
      context.expect(setns(process.get(), kind) != 0, "a victim's namespace is entered");
      context.did();
    }
  }
}

}  // namespace

std::vector<Attack> process_attacks() {
  return {{"process.kill", signal_them, SIGKILL},
          {"process.stop", signal_them, SIGSTOP},
          {"process.terminate", signal_them, SIGTERM},
          {"process.fault", signal_them, SIGBUS},
          {"process.trace", trace_them},
          {"process.memory", read_and_write_memory},
          {"process.descriptors", take_descriptors},
          {"process.closed_files", read_files_of_processes},
          {"process.open_files", read_open_files},
          {"process.shared_folders", read_shared_folders},
          {"process.priorities", change_priorities},
          {"process.advise_memory", advise_memory},
          {"process.destroy_sockets", destroy_sockets, AF_INET},
          {"process.destroy_ipv6_sockets", destroy_sockets, AF_INET6},
          {"process.forge_credentials", forge_credentials},
          {"process.outlived", outlive_the_process, 0, true},
          {"process.enter_namespaces", enter_namespaces},
          {"process.user_namespace", be_root_of_a_namespace, 0},
          {"process.user_and_pid_namespace", be_root_of_a_namespace, CLONE_NEWPID}};
}

}  // namespace hostile
