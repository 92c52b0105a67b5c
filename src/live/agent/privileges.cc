#include "live/agent/privileges.h"

#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

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
// Calls of x86-64's ABI with short pointers have this bit, and other numbers. Nobody has use for
// them.
constexpr std::uint32_t short_pointers_bit = 0x4000'0000;

// The calls that are refused. Some machines have no fork(2) of their own.
constexpr std::uint32_t refused_calls[] = {
    // programs and processes
    SYS_execve, SYS_execveat,
#ifdef SYS_fork
    SYS_fork, SYS_vfork,
#endif
    // other processes
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp,
    // namespaces and file systems
    SYS_setns, SYS_unshare, SYS_chroot, SYS_pivot_root, SYS_mount, SYS_umount2, SYS_move_mount,
    SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_fsconfig, SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    // the kernel
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_bpf,
    SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_add_key, SYS_request_key,
    SYS_keyctl, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_settimeofday, SYS_clock_settime,
    SYS_sethostname, SYS_setdomainname};

// A jump of n steps skips n instructions. A comparison that holds falls through to the next one.
void refuse_calls() {
  if (architecture == 0) return;
  constexpr std::uint32_t number = offsetof(seccomp_data, nr);
  constexpr std::uint32_t flags = offsetof(seccomp_data, args);  // clone(2): its low half
  constexpr std::uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
  constexpr std::uint32_t absent = SECCOMP_RET_ERRNO | ENOSYS;
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, refuse),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, short_pointers_bit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, refuse),
      // The flags of clone3(2) lie in memory, where no filter sees them. The C library then makes
      // threads with clone(2).
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, absent),
  };
  for (const std::uint32_t call : refused_calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, refuse));
  }
  for (const sock_filter& each : std::initializer_list<sock_filter>{
           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
           BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
           BPF_STMT(BPF_RET | BPF_K, refuse),
           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
       }) {
    program.push_back(each);
  }
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

}  // namespace

void give_up_privileges() {
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
#ifndef __SANITIZE_ADDRESS__  // which looks for leaks with a process that traces this one
  refuse_calls();
#endif
}

}  // namespace tulle::live
