#include "live/agent/privileges.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace tulle::live {
namespace {

constexpr std::uint32_t bit_of(unsigned capability) { return 1u << capability; }
constexpr std::uint32_t needed = bit_of(CAP_NET_ADMIN) | bit_of(CAP_NET_RAW);

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
  if (syscall(SYS_capget, &header, sets.data()) != 0) return;
  const std::uint32_t kept = sets[0].permitted & needed;
  sets = {};
  sets[0] = {kept, kept, 0};
  syscall(SYS_capset, &header, sets.data());
}

}  // namespace tulle::live
