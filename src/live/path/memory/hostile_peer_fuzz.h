#pragma once

// A process of the same host and user that shares its table and its rings with this one, for
// fuzzers: whatever the peer shares may have any bytes at any time. The peer is a child of this
// process, so that no address in its table is one of this process's.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "live/path/memory/host_path.h"
#include "os/shared_memory.h"

namespace tulle::live {

inline const Gid hostile_gid = Gid::from_ipv4(0x7F00'0001);  // of both ends
inline constexpr QpNumber hostile_qp{77};
inline constexpr std::byte guard{0xA5};

inline bool is_guard(std::span<const std::byte> bytes) {
  // Each byte is compared with the next, which the library does fast.
  return bytes.empty() || (bytes.front() == guard &&
                           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// Memory that a hostile peer may write to only as far as it is allowed: a region, and bytes on both
// sides that nobody may change. One memory serves all runs. Each leaves it as it found it.
class GuardedRegion {
 public:
  static constexpr std::size_t bytes = std::size_t{128} << 10;
  // The part of the region that receive requests name. WRITEs may go anywhere in the region if the
  // queue pair allows them.
  static constexpr std::size_t receive_at = std::size_t{32} << 10;
  static constexpr std::size_t receive_bytes = std::size_t{64} << 10;

  GuardedRegion() = default;
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;
  ~GuardedRegion() { std::memset(region().data(), static_cast<int>(guard), bytes); }

  static std::span<std::byte> region() { return std::span(memory_).subspan(guard_bytes, bytes); }
  static void check(bool may_write) {
    const std::span<const std::byte> all(memory_);
    TULLE_CHECK(is_guard(all.first(guard_bytes)));
    TULLE_CHECK(is_guard(all.last(guard_bytes)));
    if (may_write) return;
    const std::span<const std::byte> inside = region();
    TULLE_CHECK(is_guard(inside.first(receive_at)));
    TULLE_CHECK(is_guard(inside.subspan(receive_at + receive_bytes)));
  }

 private:
  static constexpr std::size_t guard_bytes = 4'096;
  static inline std::vector<std::byte> memory_ =
      std::vector<std::byte>(bytes + 2 * guard_bytes, guard);
};

class HostilePeer {
 public:
  // These are at the same addresses in the peer.
  static inline std::uint64_t proof = 0x1234'5678'9ABC'DEF0;
  static inline std::array<std::byte, std::size_t{64} * 1024> memory{};

  // Starts the process, or another one if it has died.
  static void keep_alive() {
    if (process_ != 0 && waitpid(process_, nullptr, WNOHANG) == 0) return;
    process_ = fork();
    TULLE_CHECK(process_ >= 0);
    if (process_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }

  HostilePeer() {
    fd_ = std::move(*make_shared_memory("tulle-fuzz-table", PeerFile::bytes));
    auto file = map_shared_memory(fd_.get(), PeerFile::bytes);
    TULLE_CHECK(file);
    file_ = static_cast<std::byte*>(*file);
    PeerTable& shown = table();
    constexpr std::uint32_t any_thread = 1'234;
    std::memcpy(&shown.life, &any_thread, sizeof any_thread);
    shown.magic = PeerTable::magic_value;
    shown.version = PeerTable::layout_version;
    shown.proof_address = reinterpret_cast<std::uint64_t>(&proof);
    shown.proof = proof;
    struct stat status {};
    stat("/proc/self/ns/pid", &status);
    shown.pid_namespace = static_cast<std::int64_t>(status.st_ino);
    shown.pid = process_;
    shown.open = 1;
  }
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;
  ~HostilePeer() { munmap(file_, PeerFile::bytes); }

  PeerTable& table() { return *reinterpret_cast<PeerTable*>(file_); }
  std::byte* ring_to(std::uint32_t slot) { return file_ + PeerFile::ring_at(slot); }
  // Makes this process's end of the direct path, whose only peer this is. `bell` wakes the peer.
  std::unique_ptr<HostPath> open_path(std::uint32_t own_slot, UniqueFd bell) {
    bell_ = std::move(bell);
    const auto copy_of = [](const UniqueFd& fd) {
      return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    };
    auto path = HostPath::create(
        own_slot,
        [this, copy_of](QpNumber) -> Result<HostPath::Peer> {
          return HostPath::Peer{process_, copy_of(fd_), bell_ ? copy_of(bell_) : UniqueFd()};
        },
        [](const Gid& gid) { return gid == hostile_gid; });
    TULLE_CHECK(path);
    (*path)->peers().live_with_this_thread();
    return std::move(*path);
  }

 private:
  static inline pid_t process_ = 0;
  UniqueFd fd_;
  UniqueFd bell_;
  std::byte* file_ = nullptr;
};

// An adapter whose one queue pair is connected to the hostile peer and receives. Its region is
// `memory`, at the address 0x1000.
struct HostileConnection {
  HostileConnection(device::Adapter& adapter, std::span<std::byte> memory,
                    verbs::AccessFlags access, const PortAddress& peer = hostile_gid) {
    using verbs::QpAttribute;
    using verbs::QpAttributeMask;
    verbs::VerbsStatus status{};
    adapter.set_gids({&hostile_gid, 1});
    auto* pd = adapter.objects().create_pd(status);
    cq = adapter.objects().create_cq(64, nullptr, status);
    region = adapter.objects().register_memory(*pd, memory.data(), memory.size(), 0x1000,
                                               access | verbs::Access::local_write, status);
    transport::QueuePairInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    init.send_work_requests = init.receive_work_requests = 8;
    init.send_sges = init.receive_sges = 2;
    qp = adapter.create_qp(init, status);
    const auto modify = [&](const transport::QueuePairAttributes& to, QpAttributeMask mask) {
      TULLE_CHECK(adapter.modify(*qp, to, mask | QpAttribute::state) == verbs::VerbsStatus::ok);
    };
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    to.access = access;
    modify(to, QpAttributeMask(QpAttribute::pkey_index) | QpAttribute::port |
                   QpAttribute::access_flags);
    to.state = verbs::QpState::rtr;
    to.destination_qp = hostile_qp;
    to.address.destination = peer;
    to.path_mtu = verbs::Mtu::b4096;
    to.max_dest_rd_atomic = 1;
    modify(to, QpAttributeMask(QpAttribute::address_vector) | QpAttribute::path_mtu |
                   QpAttribute::destination_qp | QpAttribute::rq_psn |
                   QpAttribute::max_dest_rd_atomic | QpAttribute::min_rnr_timer);
  }
  // Continues from RTR to RTS.
  void start_sending(device::Adapter& adapter) {
    using verbs::QpAttribute;
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::rts;
    to.max_rd_atomic = 1;
    TULLE_CHECK(adapter.modify(*qp, to,
                               verbs::QpAttributeMask(QpAttribute::state) | QpAttribute::timeout |
                                   QpAttribute::retry_count | QpAttribute::rnr_retry |
                                   QpAttribute::sq_psn | QpAttribute::max_rd_atomic) ==
                verbs::VerbsStatus::ok);
  }

  verbs::CompletionQueue* cq = nullptr;
  verbs::MemoryRegion* region = nullptr;
  transport::QueuePair* qp = nullptr;
};

}  // namespace tulle::live
