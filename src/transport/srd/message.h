#pragma once

// A work request under way, from its being posted until the last of its packets is answered.

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "transport/send_queue.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::srd {

class Outbound;

using MessageRef = std::uint32_t;
inline constexpr MessageRef no_message = ~0u;

struct Message {
  QueuePair* qp = nullptr;  // null: it has completed, or its queue pair has gone
  SendWqe* wqe = nullptr;
  Outbound* peer = nullptr;
  MessageRef next = no_message;  // in its peer's line
  std::uint32_t number = 0;      // by which the receiver puts it together; 0: it need not
  std::uint32_t segments = 1;    // packets
  std::uint32_t sent = 0;        // of these, at least once
  std::uint32_t unanswered = 0;  // of those sent
  QpNumber destination;
  QpNumber source;
  Pkey pkey;
  std::uint8_t refusals_left = 0;
  bool in_line = false;
  bool ends = false;  // the receiver is told that no more of it will come
};

// Messages in use and free ones; memory is taken only when there are more than ever before.
class MessagePool {
 public:
  Message& operator[](MessageRef ref) { return messages_[ref]; }
  MessageRef take() {
    if (free_ == no_message) {
      messages_.emplace_back();
      return static_cast<MessageRef>(messages_.size() - 1);
    }
    const MessageRef ref = free_;
    free_ = messages_[ref].next;
    messages_[ref] = {};
    return ref;
  }
  void give(MessageRef ref) {
    messages_[ref] = {};
    messages_[ref].next = free_;
    free_ = ref;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(messages_.size()); }

 private:
  std::vector<Message> messages_;
  MessageRef free_ = no_message;
};

}  // namespace tulle::transport::srd
