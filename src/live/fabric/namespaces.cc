#include "live/fabric/namespaces.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "os/system_error.h"

namespace tulle::live {
namespace {

bool is_in(const UniqueFd& wanted, const char* file) {
  struct stat own {
  }, other{};
  return stat(file, &own) == 0 && fstat(wanted.get(), &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

const char* file_of(int kind) {
  switch (kind) {
    case CLONE_NEWUSER:
      return "/proc/self/ns/user";
    case CLONE_NEWNET:
      return "/proc/self/ns/net";
    case CLONE_NEWNS:
      return "/proc/self/ns/mnt";
    case CLONE_NEWUTS:
      return "/proc/self/ns/uts";
    default:
      return nullptr;
  }
}

}  // namespace

// Capabilities that are inheritable and ambient stay when a program is executed (capabilities(7)).
Result<void> keep_capabilities() {
  constexpr std::array<unsigned, 5> kept = {CAP_NET_ADMIN, CAP_NET_RAW, CAP_NET_BIND_SERVICE,
                                            CAP_SYS_ADMIN, CAP_SYS_CHROOT};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) {
    return system_error("cannot read capabilities");
  }
  for (const unsigned one : kept) sets[0].inheritable |= 1u << one;
  if (syscall(SYS_capset, &header, sets.data()) != 0) {
    return system_error("cannot set capabilities");
  }
  for (const unsigned one : kept) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, one, 0, 0) != 0) {
      return system_error("cannot keep capabilities");
    }
  }
  return {};
}

Result<void> enter_namespaces(std::span<const UniqueFd> namespaces) {
  if (namespaces.empty()) return {};
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  for (const UniqueFd& one : namespaces) {
    const int kind = ioctl(one.get(), NS_GET_NSTYPE);
    const char* file = file_of(kind);
    if (file == nullptr) return Error{"the fabric gave a namespace of an unknown kind", EPROTO};
    if (is_in(one, file)) continue;
    if (setns(one.get(), kind) != 0) return system_error("cannot enter the host's network");
    if (kind != CLONE_NEWUSER) continue;
    if (auto kept = keep_capabilities(); !kept) return kept;
  }
  // A process that enters a namespace of mounts is in its root folder.
  if (!error) std::filesystem::current_path(folder, error);
  if (!error) return {};
  return Error{fmt::format("cannot stay in this folder: {}", error.message()), error.value()};
}

}  // namespace tulle::live
