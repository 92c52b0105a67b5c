#pragma once

// As strict as hardware (`tulle run --strict`, docs/strict.md): rules that adapters and their
// drivers keep, and that this device does not need. A program that breaks one runs here otherwise,
// and hangs or fails on its first day on an adapter.

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"

namespace tulle::shim {

struct Context;
struct Qp;

// The entries of a send queue as drivers count them: an entry is free again when a completion of
// its request, or of a later one, has been polled (IBTA 10.8.6). A queue whose requests are never
// signalled is full for good. SRD, whose requests complete in any order, has no such rule here.
class SendEntries {
 public:
  explicit SendEntries(std::uint32_t capacity) : capacity_(capacity) {}

  bool has_room() const { return posted_ - freed_ < capacity_; }
  void post(bool is_signalled);
  // A completion was polled: of the oldest request that was signalled, or of the one that failed,
  // by its place. Requests complete in their order.
  void complete();
  void fail(std::uint32_t place);
  // The queue pair was reset.
  void clear();

 private:
  std::uint32_t capacity_;
  std::uint32_t posted_ = 0;
  std::uint32_t freed_ = 0;
  std::deque<std::uint32_t> signalled_;  // by their place among those posted
};

// The entries of a queue pair's own receive queue, which are counted alike.
class ReceiveEntries {
 public:
  explicit ReceiveEntries(std::uint32_t capacity) : capacity_(capacity) {}

  bool has_room() const { return taken_ < capacity_; }
  void post() { ++taken_; }
  void complete() { taken_ -= taken_ > 0 ? 1 : 0; }
  void clear() { taken_ = 0; }

 private:
  std::uint32_t capacity_;
  std::uint32_t taken_ = 0;
};

// Memory that is pinned while it is registered, against RLIMIT_MEMLOCK of the process
// (drivers/infiniband/core/umem.c, ib_umem_get).
class Pinned {
 public:
  Pinned() = default;
  // Takes the pages of a range. Returns false if the process may not have so many.
  bool take(const void* address, std::size_t length);
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();

 private:
  std::uint64_t pages_ = 0;
  pid_t process_ = 0;  // a forked child has locked none of its parent's pages
};

bool is_atomic(verbs::SendOpcode opcode);  // what a device without atomics refuses
// Posts a request. The caller holds the device's lock. Returns 0 or an errno.
int post_request(Context& context, Qp& qp, const verbs::SendRequest& request);
int post_request(Context& context, Qp& qp, const verbs::ReceiveRequest& request);
// The queue pair was reset.
void clear_entries(Qp& qp);
// Fills the fields that the specification leaves undefined for such a completion: all but the
// request's identifier, the status and the queue pair's number of one that failed, and those of one
// that succeeded which do not belong to its operation (ibv_poll_cq(3), IBTA 11.4.2.1).
void blur(const Context& context, const verbs::Completion& completion, ibv_wc& out);
// Takes the oldest completions of a queue, and returns their number. The caller holds the device's
// lock.
std::uint32_t take_strictly(Context& context, verbs::CompletionQueue& queue,
                            std::span<verbs::Completion> out);
// Takes note of a completion that the program has polled. The caller holds the device's lock.
void note_polled(Context& context, const verbs::Completion& completion);

}  // namespace tulle::shim
