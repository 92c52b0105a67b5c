#include "live/path/packets/socket_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "live/message/socket.h"
#include "live/path/packets/udp_socket.h"
#include "os/shared_memory.h"
#include "rdma/device/multicast.h"

namespace tulle::live {
namespace {

constexpr std::size_t ledger_bytes = sizeof(SlotRecord) * slots;
constexpr std::string_view vault_text = "tulle vault 1";

// BTH bytes 5 to 7 are the destination queue pair's number (IBTA 9.2). A load past the end makes
// the program return 0, so short datagrams go to the agent's slot, which refuses them.
Result<void> attach_steering(int socket) {
  static_assert(slot_bits <= 8);
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 5),
      BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8 - slot_bits),
      BPF_STMT(BPF_RET | BPF_A, 0),
  };
  const sock_fprog steering{3, program};
  if (setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steering, sizeof(steering)) != 0) {
    return Error{fmt::format("cannot steer the port's datagrams (SO_ATTACH_REUSEPORT_CBPF): {}",
                             std::strerror(errno)),
                 errno};
  }
  return {};
}

struct flock lock_of(std::uint32_t slot) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return lock;
}

// Returns another open file description of a memfd, which can hold a separate lock.
UniqueFd reopen(int fd) {
  return UniqueFd(open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDWR | O_CLOEXEC));
}

// Returns duplicates of the store's descriptors: the sockets by slot, then the ledger.
Result<std::vector<UniqueFd>> look_into(int vault) {
  auto message = peek_message(vault);
  if (!message) return message.error();
  const bool ours = message->fds.size() == slots + 1 &&
                    message->bytes.size() == vault_text.size() &&
                    std::memcmp(message->bytes.data(), vault_text.data(), vault_text.size()) == 0;
  if (!ours) return Error{"a process offers sockets that are not the agent's", EINVAL};
  return std::move(message->fds);
}

}  // namespace

Result<SocketGroup> SocketGroup::create(std::uint16_t port) {
  SocketGroup group;
  group.port_ = port;
  auto ledger = make_shared_memory("tulle-ledger", ledger_bytes);
  if (!ledger) return ledger.error();
  group.ledger_fd_ = std::move(*ledger);
  if (auto bound = group.bind_all(); !bound) return bound.error();
  if (auto made = group.make_vault(); !made) return made.error();
  if (auto mapped = group.map_ledger(); !mapped) return mapped.error();
  for (std::uint32_t slot = 0; slot < slots; ++slot) group.close_gate(slot);
  return group;
}

Result<void> SocketGroup::bind_all() {
  // A bind without SO_REUSEPORT fails if any other socket has the port, even one of another group
  // of this kind.
  if (auto probe = bind_udp(port_, PortUse::exclusive); !probe) return probe.error();
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    auto bound = bind_udp(port_, PortUse::shared);
    if (!bound) return bound.error();
    if (slot == 0) {
      if (auto attached = attach_steering(bound->get()); !attached) return attached;
    }
    sockets_.push_back(std::move(*bound));
  }
  return {};
}

Result<void> SocketGroup::make_vault() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Error{fmt::format("cannot make the registered memory table: {}", std::strerror(errno)),
                 errno};
  }
  UniqueFd entrance(ends[0]);
  vault_.reset(ends[1]);
  std::vector<int> fds;
  for (const UniqueFd& socket : sockets_) fds.push_back(socket.get());
  fds.push_back(ledger_fd_.get());
  return send_message(entrance.get(), std::as_bytes(std::span(vault_text)), fds);
}

UniqueFd socket_in(int vault, std::uint32_t slot) {
  auto contents = look_into(vault);
  return contents ? std::move((*contents)[slot]) : UniqueFd();
}

Result<SocketGroup> SocketGroup::recover(UniqueFd vault) {
  auto contents = look_into(vault.get());
  if (!contents) return contents.error();
  SocketGroup group;
  group.vault_ = std::move(vault);
  group.ledger_fd_ = std::move(contents->back());
  contents->pop_back();
  group.sockets_ = std::move(*contents);
  sockaddr_storage name{};
  socklen_t bytes = sizeof(name);
  getsockname(group.sockets_[0].get(), reinterpret_cast<sockaddr*>(&name), &bytes);
  // The port is at the same place in sockaddr_in and sockaddr_in6.
  group.port_ = ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
  if (auto mapped = group.map_ledger(); !mapped) return mapped.error();
  return group;
}

Result<void> SocketGroup::map_ledger() {
  auto memory = map_shared_memory(ledger_fd_.get(), ledger_bytes);
  if (!memory) return memory.error();
  ledger_ = static_cast<SlotRecord*>(*memory);
  return {};
}

SocketGroup::SocketGroup(SocketGroup&& other) noexcept
    : sockets_(std::move(other.sockets_)),
      vault_(std::move(other.vault_)),
      ledger_fd_(std::move(other.ledger_fd_)),
      ledger_(std::exchange(other.ledger_, nullptr)),
      port_(other.port_) {}

SocketGroup::~SocketGroup() {
  if (ledger_ != nullptr) munmap(ledger_, ledger_bytes);
}

UniqueFd SocketGroup::lock(std::uint32_t slot, QpNumbers numbers) {
  UniqueFd holder = reopen(ledger_fd_.get());
  struct flock lock = lock_of(slot);
  if (!holder || fcntl(holder.get(), F_OFD_SETLK, &lock) != 0) return {};
  close_gate(slot);  // new datagrams must not keep the drain from ending
  std::byte datagram;
  while (recv(sockets_[slot].get(), &datagram, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0 ||
         errno == EINTR) {
  }
  open_gate(slot, numbers);
  return holder;
}

bool SocketGroup::is_locked(std::uint32_t slot) const {
  const UniqueFd other = reopen(ledger_fd_.get());
  struct flock lock = lock_of(slot);
  if (!other || fcntl(other.get(), F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

void SocketGroup::close_gate(std::uint32_t slot) {
  sock_filter refuse[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, refuse};
  setsockopt(sockets_[slot].get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void SocketGroup::open_gate(std::uint32_t slot, QpNumbers numbers) {
  constexpr std::uint32_t qp_offset = 8 + 4;  // the UDP header, and the BTH's first four bytes
  sock_filter admit[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, qp_offset),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, qp_number_max),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, device::multicast_qp.value, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, numbers.first, 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, numbers.first + numbers.count, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0xFFFF'FFFF),
      BPF_STMT(BPF_RET | BPF_K, 0),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(admit)), admit};
  setsockopt(sockets_[slot].get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

}  // namespace tulle::live
