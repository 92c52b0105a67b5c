#pragma once

// A work request under way, from its posting until its last packet is answered.

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "rdma/transport/send_queue.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::srd {

class Outbound;

using MessageRef = std::uint32_t;
inline constexpr MessageRef no_message = ~0u;

struct Message {
  QueuePair* qp = nullptr;  // null: the request has completed, or its queue pair is gone
  SendWqe* wqe = nullptr;
  Outbound* peer = nullptr;
  MessageRef next = no_message;  // next message in the peer's line
  std::uint32_t number = 0;      // identifies the parts for reassembly; 0: no reassembly is needed
  std::uint32_t segments = 1;    // packets of the message
  std::uint32_t sent = 0;        // packets that were sent at least once
  std::uint32_t unanswered = 0;  // packets that were sent and are not answered
  QpNumber destination;
  QpNumber source;
  Pkey pkey;
  std::uint8_t refusals_left = 0;
  bool in_line = false;
  bool ends = false;  // the receiver must be told that the rest will not come
};

// Messages in use and free ones. Memory is allocated only when more are in use than ever before.
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
