#pragma once

// The matching list of a shared receive queue with tag matching: receive requests that each wait
// for one message with a fitting tag (ibv_post_srq_ops(3), rdma-core's
// Documentation/tag_matching.md).

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"

namespace tulle::verbs {

// A message fits if its tag, masked, equals `tag`.
struct TaggedRequest {
  std::uint64_t wr_id = 0;
  std::uint64_t tag = 0;
  std::uint64_t mask = 0;
  std::span<const Sge> sges;  // read during the call only
};

// One change to the list, with the application's count of unexpected messages.
struct TagOperation {
  enum class Kind : std::uint8_t { add, remove, synchronize };
  Kind kind = Kind::synchronize;
  bool signaled = false;
  bool has_count = false;
  // has_count: number of unexpected messages that the application has dealt with.
  std::uint32_t unexpected = 0;
  std::uint64_t wr_id = 0;
  std::uint32_t handle = 0;  // remove: the handle that add() gave
  TaggedRequest request;     // add: the new entry
};

class TagList {
 public:
  static constexpr std::uint32_t entries_max = 1'024;
  static constexpr std::uint32_t sges_per_entry = 4;

  // `capacity` is at most entries_max.
  explicit TagList(std::uint32_t capacity) : capacity_(capacity) {}

  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t size() const { return size_; }

  // Adds an entry behind all others. Returns out_of_memory if the list is full, invalid_argument if
  // there are too many SGEs. An entry that is added while the application still has unexpected
  // messages to deal with is not matched before it has dealt with them all, since one of those
  // messages may be for it.
  VerbsStatus add(const TaggedRequest& request, std::uint32_t& handle);
  // Returns false if the handle is not, or no longer, in the list.
  [[nodiscard]] bool remove(std::uint32_t handle);
  // Takes out the first entry that the tag fits. Returns false if there is none.
  [[nodiscard]] bool match(std::uint64_t tag, Receive& out);

  // Counts a message that found no entry.
  void count_unexpected() { ++unexpected_; }
  // The application has dealt with `unexpected` messages in the lifetime of this list.
  void synchronize(std::uint32_t unexpected);
  bool is_synchronized() const { return dealt_with_ == unexpected_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint32_t index_bits = 10;
  static_assert(entries_max == 1u << index_bits);

  struct Entry {
    std::uint64_t wr_id = 0;
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    std::uint32_t sge_count = 0;
    std::uint32_t previous = none;
    std::uint32_t next = none;     // in the list, or in the list of free entries
    std::uint32_t generation = 0;  // keeps an old handle from naming a later entry
    bool in_use = false;
    std::array<Sge, sges_per_entry> sges;
  };

  void take_out(std::uint32_t index);

  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
  std::uint32_t first_ = none;
  std::uint32_t last_ = none;
  std::uint32_t first_waiting_ = none;  // all entries behind it wait too
  std::uint32_t free_ = none;
  std::uint32_t unexpected_ = 0;  // both counts are modulo 2^32
  std::uint32_t dealt_with_ = 0;
  std::vector<Entry> entries_;  // allocated with the first request
};

}  // namespace tulle::verbs
