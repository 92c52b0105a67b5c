#pragma once

// The objects that programs hold. Each extends a struct of the C API with the object's own state. A
// program sees only the C struct, whose address is the object's.
//
// Locks. `Context::lock()` is the device's lock. It guards the adapter, all objects of the adapter,
// the sets below and the counts of events raised. The mutex in each C struct guards the counts of
// events acknowledged. A Qp and a Cq each have a further mutex: it is held from ibv_wr_start to
// ibv_wr_complete or from ibv_start_poll to ibv_end_poll, and is taken before the device's lock.

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/on_throw.h"
#include "live/process/device.h"
#include "live/process/event_channel.h"
#include "rdma/device/adapter.h"
#include "rdma/device/raw_packets.h"
#include "rdma/verbs/types.h"
#include "shim/enomem.h"
#include "shim/ibverbs/strict.h"

// These macros choose between two symbols by their arguments. Here both symbols are defined.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace tulle::shim {

// Providers that programs load (libmlx5, libefa) look at the memory behind an ibv_device to tell
// whether the device is theirs. There, rdma-core 44 to 65 have a pointer to the provider's
// operations and private bookkeeping. All of it must be readable, and `operations` must not be a
// provider's.
struct Device : ibv_device {
  const void* operations = nullptr;
  int references = 1;
  void* links[2] = {nullptr, nullptr};
  void* class_directory = nullptr;
  std::uint64_t core_support = 0;
  // The members from here on are ours alone.
  live::DeviceInfo info;  // as last listed
  int index = 0;

  static Device& of(ibv_device* device) { return static_cast<Device&>(*device); }
};

struct Pd;
struct Td;
struct Mr;
struct Dm;
struct Mw;
struct Ah;
struct Cq;
struct Srq;
struct Qp;
struct Xrcd;
struct Wq;
struct IndirectionTable;
struct Flow;

struct CommandFile;

struct Context : verbs_context {
  std::shared_ptr<live::Device> live;
  std::shared_ptr<CommandFile> file;
  std::unique_ptr<live::EventChannel> events;  // asynchronous events
  bool is_infiniband = false;                  // the port's link layer; false: RoCE
  bool is_strict = false;                      // strict.h
  bool has_told_full = false;                  // reasons.h
  const live::Likeness* like = nullptr;        // null: the device's own limits
  // Says whether packets from that GID are RoCE v1's. The caller holds the device's lock.
  bool is_roce_v1(std::size_t gid_index) const {
    const auto& gids = live->info().gids;
    return gid_index < gids.size() && gids[gid_index].is_roce_v1;
  }
  std::uint32_t next_handle = 1;
  // Scratch space of the data path, guarded by the device's lock: completions are polled into it,
  // and the spans of a request point to it while the request is posted.
  std::array<verbs::Completion, 16> polled;
  std::array<verbs::Sge, verbs::sges_max> sges;
  std::array<std::span<const std::byte>, verbs::sges_max> pieces;

  // All objects that were created and not destroyed. Closing the device destroys them, as a kernel
  // would.
  std::unordered_set<Pd*> pds;
  std::unordered_set<Td*> tds;
  std::unordered_set<Dm*> dms;
  std::unordered_set<Mr*> mrs;
  std::unordered_set<Mw*> mws;
  std::unordered_set<Ah*> ahs;
  std::unordered_set<Cq*> cqs;
  std::unordered_set<Srq*> srqs;
  std::unordered_set<Qp*> qps;
  std::unordered_set<Xrcd*> xrcds;
  std::unordered_set<Wq*> wqs;
  std::unordered_set<IndirectionTable*> tables;
  std::unordered_set<Flow*> flows;

  static Context& of(ibv_context* context) {
    return static_cast<Context&>(*verbs_get_ctx(context));
  }
  device::Adapter& adapter() { return live->adapter(); }
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return live->lock(); }
  [[nodiscard]] std::unique_lock<std::mutex> lock_for_work() { return live->lock_for_work(); }
  // For looking objects up and for their end: an adapter does not first finish the work that still
  // needs them.
  [[nodiscard]] std::unique_lock<std::mutex> lock_to_end() {
    return is_strict ? lock_for_work() : lock();
  }
};

// Holds together a protection domain that several of the programs' objects refer to: the one that
// was allocated, and those that were imported. The domain goes with the last of them.
struct SharedPd {
  std::vector<Pd*> holders;
};

// A source of memory for queues, which a program provides with a parent domain.
struct Allocator {
  ibv_pd* domain = nullptr;
  ibv_parent_domain_init_attr calls{};
};

// The kinds of object that an allocator is asked for (ibv_alloc_parent_domain(3)). The upper half
// of the number, which is a kernel driver's, is 0.
enum class Resource : std::uint64_t { queue_pair = 1, completion_queue, shared_receive_queue };

// Frees an object. An object of a parent domain is in memory from the domain's allocator.
template <typename T>
void free_object(T* object) {
  const std::shared_ptr<Allocator> allocator = std::move(object->allocator);
  if (allocator == nullptr) return delete object;
  object->~T();
  const ibv_parent_domain_init_attr& calls = allocator->calls;
  calls.free(allocator->domain, calls.pd_context, object, static_cast<std::uint64_t>(T::resource));
}
template <typename T>
struct FreeObject {
  void operator()(T* object) const { free_object(object); }
};
template <typename T>
using ObjectPtr = std::unique_ptr<T, FreeObject<T>>;

// Returns null if the allocator had no memory. Neither this function nor free_object may be called
// with the device's lock held, because both run the program's code.
template <typename T>
ObjectPtr<T> make_object(const std::shared_ptr<Allocator>& allocator) {
  if (allocator == nullptr) return ObjectPtr<T>(new T());
  constexpr std::size_t cache_line_bytes = 64;
  constexpr std::size_t alignment = std::max(alignof(T), cache_line_bytes);
  const ibv_parent_domain_init_attr& calls = allocator->calls;
  void* memory = calls.alloc(allocator->domain, calls.pd_context, sizeof(T), alignment,
                             static_cast<std::uint64_t>(T::resource));
  if (memory == nullptr) return nullptr;
  if (memory == IBV_ALLOCATOR_USE_DEFAULT) return ObjectPtr<T>(new T());
  ObjectPtr<T> object(new (memory) T());  // starts as zeros, like the C structs
  object->allocator = allocator;
  return object;
}

struct Td : ibv_td {
  std::uint32_t parents = 0;  // parent domains that contain it
  static Td& of(ibv_td* td) { return static_cast<Td&>(*td); }
};

struct Pd : ibv_pd {
  verbs::ProtectionDomain* pd = nullptr;
  std::shared_ptr<SharedPd> shared;
  std::uint32_t parents = 0;  // parent domains over it
  // Members of a parent domain: it extends `base` with a thread domain and an allocator.
  Pd* base = nullptr;
  Td* td = nullptr;
  std::shared_ptr<Allocator> allocator;
  static Pd& of(ibv_pd* pd) { return static_cast<Pd&>(*pd); }
};

// Memory that belongs to the device.
struct DeviceMemory {
  std::unique_ptr<std::byte, void (*)(void*)> bytes{nullptr, std::free};
  std::size_t length = 0;
  std::uint32_t regions = 0;  // regions registered over it
  ~DeviceMemory();
};

struct Dm : ibv_dm {
  std::shared_ptr<DeviceMemory> memory;
  static Dm& of(ibv_dm* dm) { return static_cast<Dm&>(*dm); }
};

// State that the programs' objects of one region share: the object that was registered, and those
// that were imported. Any of them deregisters the region; the others then refer to nothing.
struct SharedMr {
  std::vector<Mr*> holders;
  std::shared_ptr<DeviceMemory> device_memory;
  Pinned pinned;            // none unless the device is strict
  void* mapping = nullptr;  // mapping of a DMA buffer
  std::size_t mapping_bytes = 0;
  ~SharedMr();
};

struct Mr : ibv_mr {
  verbs::MemoryRegion* region = nullptr;  // null: deregistered by another holder
  std::shared_ptr<SharedMr> shared;
  static Mr& of(ibv_mr* mr) { return static_cast<Mr&>(*mr); }
};

// The state behind a command descriptor. A context that is imported by the descriptor finds here,
// by their handles, the objects that any of the descriptor's contexts made.
struct CommandFile {
  Device* device = nullptr;
  bool is_infiniband = false;  // the port's link layer; false: RoCE
  std::uint32_t next_handle = 1;
  // Returns a handle that none of those objects has. After 2^32 objects, handles come again.
  template <typename Objects>
  std::uint32_t new_handle(const Objects& objects) {
    while (objects.contains(next_handle)) ++next_handle;
    return next_handle++;
  }
  std::unordered_map<std::uint32_t, std::shared_ptr<SharedPd>> pds;
  std::unordered_map<std::uint32_t, std::shared_ptr<SharedMr>> mrs;
  std::unordered_map<std::uint32_t, std::shared_ptr<DeviceMemory>> dms;
};

struct Mw : ibv_mw {
  verbs::MemoryWindow* window = nullptr;
  static Mw& of(ibv_mw* mw) { return static_cast<Mw&>(*mw); }
};

struct Ah : ibv_ah {
  verbs::AddressHandle* target = nullptr;
  static Ah& of(ibv_ah* ah) { return static_cast<Ah&>(*ah); }
};

struct Channel : ibv_comp_channel {
  std::unique_ptr<live::EventChannel> events;
  static Channel& of(ibv_comp_channel* channel) { return static_cast<Channel&>(*channel); }
};

// This struct starts with the fields of ibv_cq, as ibv_cq_ex does by definition.
struct Cq : ibv_cq_ex {
  static constexpr Resource resource = Resource::completion_queue;
  std::shared_ptr<Allocator> allocator;
  verbs::CompletionQueue* queue = nullptr;
  std::uint32_t completion_events = 0;  // events raised
  std::uint32_t asynchronous_events = 0;
  // State of polling, from ibv_start_poll to ibv_end_poll.
  std::mutex polling;
  bool single_threaded = false;
  verbs::Completion current;
  // The last poll brought something. The program polls until there is no more, and does not sleep
  // then: it has completions to handle.
  bool is_being_drained = false;

  static Cq& of(ibv_cq_ex* cq) { return static_cast<Cq&>(*cq); }
  static Cq& of(ibv_cq* cq) { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
  ibv_cq* as_cq() { return ibv_cq_ex_to_cq(this); }
};

// One handle of an open XRC domain, which may have other handles too.
struct SharedDomain;
struct Xrcd : ibv_xrcd {
  SharedDomain* shared = nullptr;
  std::uint32_t users = 0;  // objects made with this handle
  static Xrcd& of(ibv_xrcd* xrcd) { return static_cast<Xrcd&>(*xrcd); }
};

struct Srq : ibv_srq {
  static constexpr Resource resource = Resource::shared_receive_queue;
  std::shared_ptr<Allocator> allocator;
  verbs::SharedReceiveQueue* queue = nullptr;
  Xrcd* xrcd = nullptr;  // null unless the queue is of an XRC domain
  std::uint32_t asynchronous_events = 0;
  static Srq& of(ibv_srq* srq) { return static_cast<Srq&>(*srq); }
};

// Work that is staged between ibv_wr_start and ibv_wr_complete. The vectors keep their capacity, so
// that work in a steady state allocates nothing.
struct StagedWork {
  struct Item {
    verbs::SendRequest request;  // its spans are filled in when all is staged
    std::size_t first_sge = 0;
    std::size_t sge_count = 0;
    std::size_t first_byte = 0;  // inline data
    std::size_t byte_count = 0;
    std::span<const std::byte> bytes;  // the inline data, once all of it is staged
  };
  std::vector<Item> items;
  std::vector<verbs::Sge> sges;
  std::vector<std::byte> bytes;
  int error = 0;  // errno of the first builder or setter that failed
  const char* why = "";
};

struct Qp : ibv_qp_ex {
  // Headers that are newer than those of this library's build have their next builder in this
  // place, and programs call it without looking at any size. wr_flush follows the last builder of
  // rdma-core 44.
  void (*newer_builder)(ibv_qp_ex*) = nullptr;
  static constexpr Resource resource = Resource::queue_pair;
  std::shared_ptr<Allocator> allocator;
  transport::QueuePair* pair = nullptr;
  // An XRC target may be opened more than once. The pair's cookie points to the first handle, and
  // each handle to the next.
  Xrcd* xrcd = nullptr;
  Qp* next_handle = nullptr;
  std::vector<Gid> groups;  // multicast groups that it is attached to
  std::uint32_t asynchronous_events = 0;
  bool extended = false;                          // created with send_ops_flags
  std::unique_ptr<SendEntries> entries;           // null unless the device is strict
  std::optional<ReceiveEntries> receive_entries;  // none unless the device is strict
  bool spreads = false;                           // spreads frames over receive work queues
  std::uint64_t allowed_operations = 0;           // the send_ops_flags
  std::mutex building;
  StagedWork staged;

  static Qp& of(ibv_qp_ex* qp) { return static_cast<Qp&>(*qp); }
  static Qp& of(ibv_qp* qp) { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
  ibv_qp* as_qp() { return &qp_base; }
};

struct Wq : ibv_wq {
  transport::QueuePair* pair = nullptr;  // its type is receive_work_queue
  std::uint32_t asynchronous_events = 0;
  static Wq& of(ibv_wq* wq) { return static_cast<Wq&>(*wq); }
};

struct IndirectionTable : ibv_rwq_ind_table {
  device::IndirectionTable* table = nullptr;
  static IndirectionTable& of(ibv_rwq_ind_table* table) {
    return static_cast<IndirectionTable&>(*table);
  }
};

struct Flow : ibv_flow {
  device::Flow* flow = nullptr;
  device::FlowRule rule;
  static Flow& of(ibv_flow* flow) { return static_cast<Flow&>(*flow); }
};

// --- functions that the files of this room offer each other ---

// slots.cc: gives every function slot of a context, a completion queue and a queue pair a function
// that refuses.
void refuse_all(Context& context);
void refuse_all(Cq& cq);
void refuse_all(Qp& qp);

// Each of these functions replaces the slots that it serves.
void serve_queries(Context& context);        // context.cc
void serve_memory(Context& context);         // memory.cc
void serve_device_memory(Context& context);  // device_memory.cc
void serve_paging(Context& context);         // paging.cc
void serve_domains(Context& context);        // domain.cc
void serve_completions(Context& context);    // completion.cc
void serve_queue_pairs(Context& context);    // queue_pair.cc
void serve_receives(Context& context);       // shared_receive.cc
void serve_work(Context& context);           // work.cc
void serve_extended_connections(Context& context);
void serve_clock(Context& context);        // clock.cc
void serve_work_queues(Context& context);  // work_queue.cc
void serve_flows(Context& context);        // flow.cc
void serve_tags(Context& context);         // tag_matching.cc
void serve_polling(Cq& cq);                // completion_ex.cc
// Called when a poll made progress and found nothing. Returns true if the caller must look again.
// Others may have the device's lock meanwhile.
[[nodiscard]] bool may_have_come(Cq& cq, std::unique_lock<std::mutex>& held);
void serve_builders(Qp& qp);  // work_ex.cc

// events.cc
void handle_event(const device::Event& event);  // gets the live device's events
void add_for_events(Context& context);          // for events of the device as a whole
void remove_for_events(Context& context);
// Makes room for an event of each object of the context and of one more, so that none is lost for
// want of memory. The caller holds the device's lock.
void make_room_for_events(Context& context);
// Waits until the program has acknowledged all the events that it took of an object that goes away.
void wait_for_acknowledgements(pthread_mutex_t& mutex, pthread_cond_t& condition,
                               const std::uint32_t& completed, std::uint32_t taken);

// sharing.cc. The caller holds the device's lock, except for open_command_file().
Pd* add_pd(Context& context, std::unique_ptr<Pd> pd, std::uint32_t handle);
Mr* add_mr(Context& context, std::unique_ptr<Mr> mr, std::uint32_t handle);
// Removes one holder. The last one destroys the object that it held, busy or not.
void drop(Context& context, Pd& pd);
enum class OtherHolders : std::uint8_t { keep_it, lose_it };
// Gives up one holder of a region, and the region with the last one or if the others are to lose
// it. Returns EBUSY, and changes nothing, if a process of this host may still write to the region.
int drop(Context& context, Mr& mr, OtherHolders others);
// Gives up one holder of a region. If it was the last, the region stays until the device closes.
void leave(Context& context, Mr& mr);
// Returns false, with errno, if no descriptor is to be had.
[[nodiscard]] bool open_command_file(Context& context, Device& device);

// device.cc: makes a context without a command file. Returns null, with errno, if that fails.
Context* make_context(Device& device);

// memory.cc: makes the C object of a region that was just made over the program's memory.
Mr* add_region(Context& context, ibv_pd* pd, verbs::MemoryRegion* region, void* address,
               std::size_t length, std::shared_ptr<SharedMr> shared = nullptr);

// clock.cc: the clock has one tick a nanosecond.
inline constexpr std::uint64_t clock_kilohertz = 1'000'000;
const verbs::CompletionClock& completion_clock();
void serve_times(Cq& cq);

// device_memory.cc: the limit for all device memory of a process.
inline constexpr std::size_t device_memory_bytes_max = 1u << 20;

// completion.cc
inline std::uint32_t take(Context& context, verbs::CompletionQueue& queue,
                          std::span<verbs::Completion> out) {
  if (context.is_strict) [[unlikely]]
    return take_strictly(context, queue, out);
  return queue.poll(out);
}
ibv_wc_opcode to_wc_opcode(verbs::CompletionOpcode opcode);
ibv_wc_status to_wc_status(verbs::CompletionStatus status);
unsigned to_wc_flags(const verbs::Completion& completion);
// A RoCE port has no service levels. In their field, NICs report the kind of header that a datagram
// came with, and programs read it there: IBTA A17.4.5.1 asks for the kind, and the C API has no
// field for it.
std::uint8_t to_service_level(const verbs::Completion& completion);
// Returns zeros unless the completion is a datagram's on InfiniBand.
verbs::LocalSource to_local_source(const verbs::Completion& completion);

// work.cc
bool to_send_opcode(unsigned opcode, verbs::SendOpcode& out);
bool to_send_flags(unsigned flags, verbs::SendFlags& out);
// Puts the list into the context's scratch space. Returns false if entries are counted where there
// is no list, or if there are too many.
[[nodiscard]] bool to_sges(const ibv_sge* list, int count, Context& context,
                           std::span<const verbs::Sge>& out);
int post_wq_receive(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad);

// shared_receive.cc. The caller holds the device's lock, and has made the queue.
ibv_srq* publish(Srq& srq, Context& context, ibv_pd& pd, void* srq_context,
                 ibv_srq_attr& attributes);

// queue_pair.cc. The caller holds the device's lock.
Qp* add_handle(transport::QueuePair& pair, Xrcd& xrcd, void* qp_context);
void release(Context& context, Qp& qp);  // with the last handle, the queue pair goes too
bool has_flows(Context& context, const Qp& qp);
Qp* publish(Qp& qp, Context& context, ibv_qp_type type, void* qp_context);

// work_queue.cc
std::uint64_t hash_fields_offered();
Qp* create_spreading(const ibv_qp_init_attr_ex& attributes);  // null, with errno, on failure
void release(Context& context, IndirectionTable& table);      // the caller holds the device's lock

// flow.cc. The caller holds the device's lock.
void release(Context& context, Flow& flow);

// multicast.cc. The caller holds the device's lock.
void detach_all(Context& context, Qp& qp);

// extended_connection.cc
verbs::XrcDomain& domain_of(const Xrcd& xrcd);
ibv_srq* create_xrc_srq(ibv_context* context, ibv_srq_init_attr_ex& attributes);
void release_domain(Context& context, Xrcd& xrcd);  // the caller holds the device's lock

// tag_matching.cc
ibv_srq* create_tag_srq(ibv_context* context, ibv_srq_init_attr_ex& attributes);
void fill_tag_capabilities(Context& context, ibv_tm_caps& out);
void serve_tags(Cq& cq);

// address.cc
Gid to_gid(const std::uint8_t* raw);  // from 16 bytes
// These return false for a state that does not exist, and for a mask with bits that mean nothing.
bool to_state(ibv_qp_state from, verbs::QpState& to);
bool to_mask(int from, verbs::QpAttributeMask& to);
bool to_address_vector(const Context& context, const ibv_ah_attr& attributes,
                       verbs::AddressVector& out);
void from_address_vector(const verbs::AddressVector& vector, ibv_ah_attr& out);

}  // namespace tulle::shim
