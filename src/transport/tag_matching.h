#pragma once

// What a queue pair does for a shared receive queue of tag matching (verbs/tag_list.h): each SEND
// begins with a header, by whose tag it finds its receive request; and of a message that only says
// where its data is, the device itself reads the data and tells the sender that it has.

#include <array>
#include <cstdint>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "transport/inbound_message.h"
#include "transport/packet_io.h"
#include "transport/send_queue.h"
#include "verbs/receive_queue.h"
#include "verbs/tag_list.h"
#include "verbs/types.h"

namespace tulle::transport {

class QueuePair;
struct QueuePairInit;

class TagMatching {
 public:
  // The send queue, with places that are the device's own.
  static SendQueue send_queue_for(const QueuePairInit& init);
  bool is_full_for_application(const QueuePair& qp) const;

  // For the SEND that begins with this payload: what it is, and its receive request, tagged or from
  // the shared queue. False: it needs one of the latter, and there is none.
  [[nodiscard]] bool take(QueuePair& qp, Payload payload, verbs::Receive& out, Tagging& what);
  // How long the SEND may be, header and all.
  std::uint64_t room(Tagging what, const verbs::Receive& receive) const;
  // Of the payload that begins at `offset` of the message, takes off what is header; returns where
  // the rest belongs.
  static std::uint64_t skip_header(std::uint64_t offset, Payload& payload);
  // All of the SEND that was taken last is here; `completion` as of any receive request.
  void received(QueuePair& qp, Tagging what, const verbs::Receive& receive,
                verbs::Completion completion);

  // A request of the device's own is done, or has failed.
  void sent(QueuePair& qp, const SendWqe& wqe, verbs::CompletionStatus status);
  // The queue pair failed: data that was not yet being read will not be.
  void flush(QueuePair& qp);
  void reset() { *this = {}; }

 private:
  // Of these READs and answers as many at once; other rendezvous wait for their turn.
  static constexpr std::uint32_t own_sends_max = 8;

  struct Rendezvous {
    std::uint64_t wr_id = 0;
    std::uint64_t tag = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t context = 0;
    std::uint32_t length = 0;  // bytes
    RemoteKey rkey;
    std::uint32_t sge_count = 0;
    std::array<verbs::Sge, verbs::TagList::sges_per_entry> sges;  // of `length` together
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

  GrowingRing<Rendezvous> rendezvous_;  // whose data is not here yet, oldest first
  std::uint32_t reads_posted_ = 0;      // of these the first so many
  std::uint32_t own_sends_ = 0;         // in the send queue
};

}  // namespace tulle::transport
