#include "live/agent/privileges.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "os/unique_fd.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TULLE_ADDRESS_SANITIZER
#endif
#endif

namespace tulle::live {
namespace {

constexpr std::uint32_t bit_of(unsigned capability) { return 1u << capability; }
constexpr std::uint32_t needed = bit_of(CAP_NET_ADMIN) | bit_of(CAP_NET_RAW);

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t architecture = 0;  // no filter
#endif
// Calls of this number and higher ones came after those that were looked at here. The C library
// does without a call that is absent. (x86-64 has its ABI with short pointers there, too.)
constexpr std::uint32_t calls_end = 467;

// Newer than some headers. The numbers are those of all machines (asm-generic/unistd.h).
constexpr std::uint32_t fchmodat2_call = 452, setxattrat_call = 463, removexattrat_call = 466;

// The calls that are refused. Some machines have no fork(2) system call.
constexpr std::uint32_t refused_calls[] = {
    // programs and processes
    SYS_execve, SYS_execveat,
#ifdef SYS_fork
    SYS_fork, SYS_vfork,
#endif
    // other processes
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd,
    SYS_kcmp, SYS_kill, SYS_tkill, SYS_pidfd_send_signal, SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo, SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam,
    SYS_sched_setscheduler, SYS_setpriority, SYS_ioprio_set, SYS_migrate_pages, SYS_move_pages,
    // other services, and other processes' memory, by ways that involve no file. The agent's own
    // socket is open, and UDP needs no connection.
    SYS_connect, SYS_shmget, SYS_shmat, SYS_shmctl, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl,
    SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend,
    SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
    // what files are, and who may use them
    SYS_fchmod, SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_utimensat, SYS_truncate, SYS_flock,
#ifdef SYS_chmod
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat,
#endif
    fchmodat2_call, setxattrat_call, removexattrat_call,
    // namespaces and file systems
    SYS_setns, SYS_unshare, SYS_chroot, SYS_pivot_root, SYS_mount, SYS_umount2, SYS_move_mount,
    SYS_mount_setattr, SYS_open_tree, SYS_fspick, SYS_fsopen, SYS_fsmount, SYS_fsconfig,
    SYS_name_to_handle_at, SYS_open_by_handle_at,
    // the kernel. fanotify(7) reports, and may hold up, what all processes do with files.
    SYS_fanotify_init, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
    SYS_kexec_file_load, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup,
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct,
    SYS_settimeofday, SYS_clock_settime, SYS_sethostname, SYS_setdomainname};

// Calls that are allowed with these values of an argument, given by its number, and no others:
// newer kernels add values.
struct AllowedValues {
  std::uint32_t call;
  std::uint32_t argument;
  std::vector<std::uint32_t> values;
};
const AllowedValues allowed_values[] = {
    // Others have the kernel signal any process, or keep others of this user out of their files.
    // F_OFD_SETLK locks slots of the port.
    {SYS_fcntl,
     1,
     {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_OFD_SETLK, F_OFD_GETLK,
      F_ADD_SEALS, F_GET_SEALS}},
    // Others signal processes, type at terminals, or change a file by any descriptor. The C library
    // asks whether it writes to a terminal.
    {SYS_ioctl,
     1,
     {TCGETS, SIOCOUTQ, SIOCGIFINDEX, SIOCGIFNAME, SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFHWADDR}},
    // Others reach services of this user and parts of the kernel, as IPsec's keys.
    {SYS_socket, 0, {AF_INET, AF_INET6, AF_PACKET, AF_NETLINK}}};

// The address sanitizer looks for leaks by a process that traces this one.
#if defined(__SANITIZE_ADDRESS__) || defined(TULLE_ADDRESS_SANITIZER)
constexpr bool is_traced = true;
#else
constexpr bool is_traced = false;
#endif

constexpr std::uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
constexpr std::uint32_t absent = SECCOMP_RET_ERRNO | ENOSYS;
constexpr std::uint32_t number = offsetof(seccomp_data, nr);

// The place of an argument's low half.
constexpr std::uint32_t argument(std::uint32_t which) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + which * sizeof(std::uint64_t));
}

// In all parts of the program, a jump of n steps skips n instructions. A comparison that holds
// falls through to the next one. Each part begins and ends with the call's number loaded.
void allow_only(const AllowedValues& allowed, std::vector<sock_filter>& program) {
  const auto count = static_cast<std::uint8_t>(allowed.values.size());
  const auto past_all = static_cast<std::uint8_t>(count + 3);
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed.call, 0, past_all));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(allowed.argument)));
  for (std::uint8_t left = count; left > 0; --left) {
    const std::uint32_t value = allowed.values[count - left];
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, left, 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, refuse));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number));
}

// CAP_NET_ADMIN would let any socket replace the tables of netfilter and of multicast routing, by
// options from 64 on. IPv6 has separate ones there.
void refuse_tables(std::uint32_t call, std::vector<sock_filter>& program) {
  constexpr std::uint32_t tables = 64;
  const sock_filter part[] = {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 9),
                              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_IP, 1, 0),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_IPV6, 0, 5),
                              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
                              BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, tables, 0, 3),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPV6_RECVTCLASS, 2, 0),
                              BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPV6_TCLASS, 1, 0),
                              BPF_STMT(BPF_RET | BPF_K, refuse),
                              BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number)};
  program.insert(program.end(), std::begin(part), std::end(part));
}

void refuse_calls() {
  if (architecture == 0) return;
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, refuse),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, calls_end, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, absent),
      // The flags of clone3(2) are in memory, where no filter sees them. The C library then makes
      // threads with clone(2).
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, absent),
  };
  for (const std::uint32_t call : refused_calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, refuse));
  }
  for (const AllowedValues& each : allowed_values) allow_only(each, program);
  for (const std::uint32_t call : {SYS_setsockopt, SYS_getsockopt}) refuse_tables(call, program);
  for (const sock_filter& each : std::initializer_list<sock_filter>{
           // clone(2) makes threads, and tgkill(2) signals this process, as abort(3) does.
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(0)),
           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 5, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(0)),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(getpid()), 1, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
           // Sockets are of datagrams or raw frames, and the kernel's only those of its routes: a
           // stream reaches any service, and other parts of the kernel believe root.
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 10),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
           BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xF),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 2, 0),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_RAW, 1, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(0)),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_ROUTE, 1, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
           // A pair of datagram sockets can be sent from to any other.
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 4),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, SOCK_DGRAM, 0, 1),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
           // prlimit64(2) with the number 0 concerns this process.
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(0)),
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
       }) {
    program.push_back(each);
  }
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

// Gives up starting programs, and writing, making and removing files (landlock(7)), where the
// kernel has this (Linux 5.13). A process that has done so also looks into none that has not, and,
// since Linux 6.12, neither signals one nor connects to its abstract sockets.
void refuse_files(const std::string& removes) {
  // As in <linux/landlock.h> of Linux 6.12. Older kernels refuse a size that they do not know.
  struct {
    std::uint64_t files;
    std::uint64_t ports;
    std::uint64_t scopes;
  } wanted{};
  constexpr std::uint64_t abstract_sockets = 1, signals = 2;        // scopes
  constexpr std::uint64_t truncating = 1 << 14, devices = 1 << 15;  // ioctl(2) of devices
  constexpr std::uint64_t binding = 1, connecting = 2;              // of TCP
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  const std::size_t bytes = version >= 6   ? sizeof wanted
                            : version >= 4 ? offsetof(decltype(wanted), scopes)
                                           : sizeof wanted.files;
  if (version >= 6) wanted.scopes = abstract_sockets | signals;
  if (version >= 4) wanted.ports = binding | connecting;
  wanted.files =
      LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
      LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
      LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
      LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (version >= 3) wanted.files |= truncating;
  if (version >= 5) wanted.files |= devices;
  const UniqueFd rules(static_cast<int>(syscall(SYS_landlock_create_ruleset, &wanted, bytes, 0)));
  if (!rules) return;
  const auto allow = [&rules](const std::string& path, std::uint64_t access) {
    const UniqueFd file(open(path.c_str(), O_PATH | O_CLOEXEC));
    landlock_path_beneath_attr below{};
    below.allowed_access = access;
    below.parent_fd = file.get();
    syscall(SYS_landlock_add_rule, rules.get(), LANDLOCK_RULE_PATH_BENEATH, &below, 0);
  };
  allow("/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  // What may be removed, may be anywhere below the folder: only one of the agent's own will do. In
  // another one, the socket stays, and the next agent replaces it.
  const std::filesystem::path socket(removes);
  const auto is_other = [&socket](const auto& entry) { return entry.path() != socket; };
  std::error_code error;
  const std::filesystem::directory_iterator entries(socket.parent_path(), error);
  if (socket.has_filename() && !error && std::none_of(begin(entries), end(entries), is_other)) {
    allow(socket.parent_path().string(), LANDLOCK_ACCESS_FS_REMOVE_FILE);
  }
  syscall(SYS_landlock_restrict_self, rules.get(), 0);
}

}  // namespace

void give_up_privileges(const std::string& removes) {
  // Each of these is given up as far as the kernel lets it. Less is no reason to serve nobody.
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  for (unsigned one = 0; one <= CAP_LAST_CAP; ++one) {
    const bool is_kept = one < 32 && (needed & bit_of(one)) != 0;
    if (!is_kept) prctl(PR_CAPBSET_DROP, one, 0, 0, 0);
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) == 0) {
    const std::uint32_t kept = sets[0].permitted & needed;
    sets = {};
    sets[0] = {kept, kept, 0};
    syscall(SYS_capset, &header, sets.data());
  }
  if constexpr (is_traced) return;
  refuse_files(removes);
  refuse_calls();
}

}  // namespace tulle::live
