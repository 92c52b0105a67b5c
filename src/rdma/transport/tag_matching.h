#pragma once

// The part of a queue pair in the tag matching of a shared receive queue (rdma/verbs/tag_list.h).
// Each SEND begins with a header, and its tag selects the receive request. A rendezvous message
// only says where its data is: the device itself reads the data, and then tells the sender that it
// has.

#include <array>
#include <cstdint>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "rdma/transport/inbound_message.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/send_queue.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/tag_list.h"
#include "rdma/verbs/types.h"

namespace tulle::transport {

class QueuePair;
struct QueuePairInit;

class TagMatching {
 public:
  // Returns a send queue with extra places for the device's own requests.
  static SendQueue send_queue_for(const QueuePairInit& init);
  bool is_full_for_application(const QueuePair& qp) const;

  // Classifies the SEND that begins with this payload, and takes its receive request, either a
  // tagged one or one from the shared queue. Returns false if it needs one from the shared queue
  // and that queue is empty.
  [[nodiscard]] bool take(QueuePair& qp, Payload payload, verbs::Receive& out, Tagging& what);
  // Returns how long the SEND may be, including its header.
  std::uint64_t room(Tagging what, const verbs::Receive& receive) const;
  // Removes the header from the payload that begins at `offset` of the message. Returns the offset
  // of the rest within the data.
  static std::uint64_t skip_header(std::uint64_t offset, Payload& payload);
  // The SEND for which take() was called last has arrived completely. `completion` is filled in as
  // for any receive request.
  void received(QueuePair& qp, Tagging what, const verbs::Receive& receive,
                verbs::Completion completion);

  // One of the device's own requests is done or has failed.
  void sent(QueuePair& qp, const SendWqe& wqe, verbs::CompletionStatus status);
  // The queue pair failed: flushes the rendezvous whose data has not arrived.
  void flush(QueuePair& qp);
  void reset() { *this = {}; }

 private:
  // The most READs and answers of the device in the send queue. Further rendezvous wait.
  static constexpr std::uint32_t own_sends_max = 8;

  struct Rendezvous {
    std::uint64_t wr_id = 0;
    std::uint64_t tag = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t context = 0;
    std::uint32_t length = 0;  // bytes
    RemoteKey rkey;
    std::uint32_t sge_count = 0;
    std::array<verbs::Sge, verbs::TagList::sges_per_entry> sges;  // their sum is `length`
  };

  void start_rendezvous(QueuePair& qp, const verbs::Receive& receive);
  void post_reads(QueuePair& qp);
  void post_answer(QueuePair& qp, const Rendezvous& rendezvous);
  void finish(QueuePair& qp, const Rendezvous& rendezvous, verbs::CompletionStatus status);

  // The header of the message in progress.
  std::uint64_t tag_ = 0;
  std::uint32_t context_ = 0;
  std::uint64_t remote_address_ = 0;  // rendezvous
  RemoteKey rkey_;
  std::uint32_t length_ = 0;

  GrowingRing<Rendezvous> rendezvous_;  // those whose data has not arrived, oldest first
  std::uint32_t reads_posted_ = 0;      // rendezvous at the front whose READ is posted
  std::uint32_t own_sends_ = 0;         // the device's own requests in the send queue
};

}  // namespace tulle::transport
