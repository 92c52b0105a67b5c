#pragma once

// The verbs model's vocabulary (IBTA chapters 10 and 11), independent of any C ABI. The shim
// translates the enumerators that the C API numbers too, and never casts them.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/ids.h"
#include "base/time.h"

namespace tulle::verbs {

// The queue pair types that the API names. What a type can do, its transport's row says
// (rdma/transport/transport.h).
enum class QpType : std::uint8_t {
  rc,
  uc,
  ud,
  srd,                 // Amazon's scalable reliable datagram
  stream,              // a TCP socket, for simulations alone (rdma/optional/tcp/stream.h)
  iwarp,               // a reliable connection on an adapter that speaks iWARP (transport/iwarp)
  xrc_initiator,       // the sending and the receiving half of an extended reliable connection
  xrc_target,          // (IBTA annex A14)
  raw_packet,          // Ethernet frames
  receive_work_queue,  // takes frames for raw packet queue pairs that spread them over many
  experimental,        // the first of the types that this project leaves to its users
};
enum class QpState : std::uint8_t { reset, init, rtr, rts, sqd, sqe, error };
enum class Mtu : std::uint16_t { b256 = 256, b512 = 512, b1024 = 1024, b2048 = 2048, b4096 = 4096 };
constexpr std::uint32_t bytes(Mtu mtu) { return static_cast<std::uint32_t>(mtu); }

// IBTA's code for an MTU (14.2.5.6), which is also libibverbs' ibv_mtu: 1 is 256 bytes, 5 is 4096.
inline constexpr std::uint8_t mtu_code_max = 5;
// Returns the code of the longest MTU that fits in `bytes`, or 1 if none does.
constexpr std::uint8_t mtu_code(std::uint32_t bytes) {
  std::uint8_t code = 1;
  for (std::uint32_t size = 512; size <= bytes && code < mtu_code_max; size *= 2) ++code;
  return code;
}
// Returns 0 for code 0, which names none.
constexpr std::uint16_t mtu_bytes(std::uint8_t code) {
  return static_cast<std::uint16_t>(code == 0 ? 0 : 128u << code);
}

// A set of flags of one enum.
template <typename Flag>
class Flags {
 public:
  constexpr Flags() = default;
  constexpr Flags(Flag flag)  // NOLINT(google-explicit-constructor)
      : bits_(static_cast<std::uint32_t>(flag)) {}
  constexpr bool has(Flag flag) const {
    return (bits_ & static_cast<std::uint32_t>(flag)) == static_cast<std::uint32_t>(flag);
  }
  constexpr bool has_all(Flags other) const { return (bits_ & other.bits_) == other.bits_; }
  constexpr bool any() const { return bits_ != 0; }
  constexpr std::uint32_t bits() const { return bits_; }
  constexpr Flags operator|(Flags other) const { return from_bits(bits_ | other.bits_); }
  constexpr Flags operator&(Flags other) const { return from_bits(bits_ & other.bits_); }
  constexpr Flags& operator|=(Flags other) {
    bits_ |= other.bits_;
    return *this;
  }
  constexpr Flags without(Flags other) const { return from_bits(bits_ & ~other.bits_); }
  constexpr bool operator==(const Flags&) const = default;
  static constexpr Flags from_bits(std::uint32_t bits) {
    Flags flags;
    flags.bits_ = bits;
    return flags;
  }

 private:
  std::uint32_t bits_ = 0;
};

// Access rights (IBTA 10.6.3.1).
enum class Access : std::uint32_t {
  local_write = 1,
  remote_write = 2,
  remote_read = 4,
  remote_atomic = 8,
  bind_window = 16,
  zero_based = 32,
  // Not a right: the pages may come and go while the region is registered, so that each access asks
  // for them first (MemoryPages in rdma/verbs/memory.h).
  on_demand = 64,
  // Not a right either: reads give zeros, and written bytes are lost.
  null = 128,
};
using AccessFlags = Flags<Access>;

enum class SendOpcode : std::uint8_t {
  send,
  send_with_immediate,
  send_with_invalidate,
  write,
  write_with_immediate,
  read,
  compare_swap,
  fetch_add,
  atomic_write,  // 8 bytes (IBTA A19)
  local_invalidate,
  bind_window,
};
inline constexpr std::size_t send_opcodes = 11;

// The operations that a transport offers.
class SendOperations {
 public:
  constexpr SendOperations() = default;
  constexpr SendOperations(std::initializer_list<SendOpcode> opcodes) {
    for (const SendOpcode opcode : opcodes) bits_ |= bit(opcode);
  }
  static constexpr SendOperations all() {
    SendOperations operations;
    operations.bits_ = (1u << send_opcodes) - 1;
    return operations;
  }
  constexpr bool has(SendOpcode opcode) const { return (bits_ & bit(opcode)) != 0; }
  constexpr bool any() const { return bits_ != 0; }

 private:
  static constexpr std::uint32_t bit(SendOpcode opcode) {
    return 1u << static_cast<std::uint32_t>(opcode);
  }
  std::uint32_t bits_ = 0;
};

enum class SendFlag : std::uint32_t {
  signaled = 1,
  fence = 2,
  solicited = 4,
  inline_data = 8,
  // Set by the device, not by the application: the completion is not shown.
  of_device = 16,
};
using SendFlags = Flags<SendFlag>;

// A piece of local memory: [address, address + length) within the region that lkey names.
struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;  // bytes; here 0 means none
  LocalKey lkey;
};

// One work request for a send queue (IBTA 11.4.1.1). Spans are read during the call only.
struct SendRequest {
  std::uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::send;
  SendFlags flags;
  std::span<const Sge> sges;
  // Inline data in place of sges, if flags has inline_data: the pieces in order.
  std::span<const std::span<const std::byte>> inline_pieces;

  std::uint64_t remote_address = 0;  // write, read, atomics, atomic_write
  RemoteKey rkey;                    // write, read, atomics
  std::uint32_t immediate = 0;       // the four bytes as in the application's memory
  RemoteKey invalidate_rkey;         // send_with_invalidate, local_invalidate
  // Host order. For atomic_write, the 8 bytes as they are in memory, if it has neither SGEs nor
  // inline data.
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;  // host order

  // UD (IBTA 11.4.1.1): the destination. The handle comes from create_ah.
  class AddressHandle* address_handle = nullptr;
  QpNumber remote_qp;
  Qkey remote_qkey;

  std::uint32_t xrc_srq = 0;  // xrc_initiator: the number of the peer's shared receive queue

  // For bind_window.
  class MemoryWindow* window = nullptr;
  RemoteKey window_rkey;  // type 2: the new key
  class MemoryRegion* window_region = nullptr;
  std::uint64_t window_address = 0;
  std::uint64_t window_length = 0;
  AccessFlags window_access;
};

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  std::span<const Sge> sges;
};

// IBTA 11.6.2, numbered in the same order as in the C API.
enum class CompletionStatus : std::uint8_t {
  success = 0,
  local_length_error,
  local_qp_operation_error,
  local_eec_operation_error,
  local_protection_error,
  flushed,
  memory_window_bind_error,
  bad_response_error,
  local_access_error,
  remote_invalid_request_error,
  remote_access_error,
  remote_operation_error,
  retry_exceeded_error,
  rnr_retry_exceeded_error,
  tag_error,  // the tag to be removed is not (or no longer) in the list
};

enum class CompletionOpcode : std::uint8_t {
  send,
  write,
  read,
  compare_swap,
  fetch_add,
  atomic_write,
  bind_window,
  local_invalidate,
  receive,
  receive_write_with_immediate,
  // Completions of a shared receive queue with tag matching: operations on its list, and messages
  // with and without a tag.
  tag_add,
  tag_remove,
  tag_synchronize,
  tag_receive,
  no_tag_receive,
};

// Flags of the completions of tag matching.
enum class TagFlag : std::uint8_t {
  matched = 1,     // the message found a tagged request
  data_valid = 2,  // the memory of that request now holds the message
  behind = 4,      // the application has not dealt with all unexpected messages
  has_tag = 8,     // `tag` and `tag_context` are those of the message
};

// The network that brought a UD message. It says what the 40 bytes in front of the message are.
enum class DatagramNetwork : std::uint8_t {
  none,        // no UD message
  ipv4,        // an IPv4 header in their second half (IBTA A17.4.5.1)
  ipv6,        // an IPv6 header
  infiniband,  // a GRH if the packet had one (`has_grh`); Completion::local is set
};

// A UD message's way through an InfiniBand subnet, as the receiver sees it.
struct LocalSource {
  std::uint16_t lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;  // of the receiving port's LID
};

struct Completion {
  std::uint64_t wr_id = 0;
  CompletionStatus status = CompletionStatus::success;
  CompletionOpcode opcode = CompletionOpcode::send;
  bool has_immediate = false;
  bool has_invalidate = false;
  bool has_grh = false;
  DatagramNetwork network = DatagramNetwork::none;
  bool solicited = false;  // raises the event; not shown to the application
  std::uint8_t tag_flags = 0;
  std::uint32_t byte_length = 0;
  union {
    std::uint32_t immediate = 0;  // as on the wire, in memory order
    std::uint32_t place;          // of a send request that failed: among those of its queue pair
  };
  RemoteKey invalidated_rkey;
  QpNumber qp;
  QpNumber source_qp;  // UD
  union {
    std::uint32_t tag_context = 0;  // TagFlag::has_tag: the header's user data
    LocalSource local;              // DatagramNetwork::infiniband
  };
  union {
    void* qp_cookie = nullptr;  // the QP's, for APIs that want the QP object
    std::uint64_t tag;          // TagFlag::has_tag
  };

  bool has(TagFlag flag) const { return (tag_flags & static_cast<std::uint8_t>(flag)) != 0; }
  void set(TagFlag flag) { tag_flags |= static_cast<std::uint8_t>(flag); }
};
static_assert(sizeof(Completion) == 48);

// Asynchronous events (IBTA 11.6.3).
enum class EventType : std::uint8_t {
  cq_error,
  qp_fatal,
  qp_request_error,
  qp_access_error,
  communication_established,
  send_queue_drained,
  path_migrated,
  last_wqe_reached,
  srq_error,
  srq_limit_reached,
  port_active,
  port_error,
  gid_change,
  lid_change,
  sm_change,
  pkey_change,
  client_reregister,
  device_fatal,
};

// The states of automatic path migration (IBTA 17.2.8.1), with the numbers of libibverbs'
// ibv_mig_state.
enum class MigrationState : std::uint8_t {
  migrated,  // packets take the only path
  rearm,     // an alternate path is loaded, and the peer is not known to have one
  armed,     // either end may take the alternate path
};

// Errors of the caller, and resources that it cannot have. The shim turns each into an errno.
enum class [[nodiscard]] VerbsStatus : std::uint8_t{
    ok,
    invalid_argument,  // EINVAL
    out_of_memory,     // ENOMEM: a queue is full, a limit is reached
    busy,              // EBUSY: something still refers to the object
    not_supported,     // EOPNOTSUPP
    invalid_state,     // EINVAL: not allowed in this QP state
};

// The destination of the packets of a QP or address handle (IBTA 11.2.2.1 address vector).
struct AddressVector {
  PortAddress destination;
  std::uint8_t source_gid_index = 0;
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t port = 1;
  // InfiniBand: selects one of the 2^LMC LIDs that each of the two ports has (IBTA 7.11.1), and so
  // a path through the subnet; 0 to 127.
  std::uint8_t path_bits = 0;
};

}  // namespace tulle::verbs
