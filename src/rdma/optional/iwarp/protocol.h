#pragma once

// iWARP: RDMAP and DDP (RFC 5040, RFC 5041) between the verbs and a reliable stream of bytes.
//
// The caller owns the stream. Downwards, the engine makes one FPDU after the other. Each is a
// record that must go out in a separate segment. The engine remembers what the record is made of
// until it is acknowledged: when the stream sends the record again, it is filled in again from the
// memory that it names. Upwards, the stream hands over what has come in order, cut anywhere.
//
// RFC 5040 5.5 lets a SEND or a WRITE complete when its memory may be used again. Here records
// point into that memory until the peer's TCP has acknowledged them, so the request completes then.
// Completions come in the order of posting, so requests behind a READ wait for its answer. Unlike
// RC's, an acknowledgement does not say that the peer has accepted the message: the peer's
// TERMINATE may come after the completion.
//
// An error is reported in a TERMINATE, the last record of its stream, and ends the queue pair at
// both ends. There is nothing like an RNR NAK: a SEND that finds no receive request ends the queue
// pairs too.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/ring.h"
#include "rdma/optional/iwarp/deframer.h"
#include "rdma/optional/iwarp/sent_records.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/send_queue.h"
#include "rdma/verbs/memory.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/rdmap.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::iwarp {

// The outcome of the set-up (RFC 5044 7.1, RFC 6581). The depths of READs are the queue pair's
// max_rd_atomic (ORD) and max_dest_rd_atomic (IRD).
struct Agreed {
  std::uint32_t segment_bytes = 1'460;  // the most that one TCP segment carries: EMSS
  bool crc = true;
};

class Protocol {
 public:
  void start(const QueuePair& qp, const Agreed& agreed);
  // RTR to RTS: the number of READs that may be outstanding is known.
  void start_sending(const QueuePair& qp);
  // The queue pair has failed. It flushes its requests itself.
  void reset_sending();

  // --- downwards: sender.cc ---

  // Makes the next record. Returns false if there is nothing to send now.
  [[nodiscard]] bool next_record(QueuePair& qp, Record& out);
  // Returns false if next_record would find nothing until something else happens.
  bool has_more(const QueuePair& qp) const;
  // Returns true if a READ's answer or a TERMINATE is due.
  bool has_answers() const { return !answers_.empty() || terminate_due_; }
  // Returns true if a TERMINATE is due or has not been acknowledged.
  bool is_terminating() const { return terminate_due_ || (terminate_sent_ && !records_.empty()); }
  // Fills in a record. Returns false if its memory is gone; the stream must end then.
  [[nodiscard]] bool fill(const QueuePair& qp, std::uint64_t number, FilledRecord& out) const;
  // The peer has acknowledged `bytes` of the stream, counted from its first FPDU.
  void acknowledged(QueuePair& qp, std::uint64_t bytes);
  // The caller puts these calls around all data that TCP acknowledges to the peer at one time. A
  // failure of this side's requests waits until that data has been taken in, since the peer may
  // consider it done.
  void begin_taking() { taking_ = true; }
  void end_taking(QueuePair& qp);
  // Returns true if READs are not answered yet. An end that sends nothing else learns only by
  // asking that its peer is gone.
  bool awaits_answers() const { return !reads_.empty(); }
  // Returns true if every request that has begun is done (IBTA 10.3.1.5, SQD).
  bool drained() const { return cursor_ == 0 && sending_ != Sending::request; }

  // --- upwards: receiver.cc ---

  // Takes the next part of the stream.
  void receive(QueuePair& qp, StreamPart part);
  // TCP has given up (RFC 5044 8), or the stream has ended.
  void connection_lost(QueuePair& qp);
  // Gives back the receive request of a SEND that will not complete.
  bool release_receive(std::uint64_t& wr_id) {
    wr_id = inbound_.receive.wr_id;
    return std::exchange(inbound_.has_receive, false);
  }

  // Returns, for observers, the error that ended the stream, whichever end reported it.
  const std::optional<wire::rdmap::Terminate>& terminated() const { return terminated_; }

 private:
  using Source = MadeRecord::Source;
  // An answer to a READ of the peer.
  struct Answer {
    wire::rdmap::ReadRequest request;
    std::uint32_t sent = 0;
  };
  struct OutstandingRead {
    std::uint64_t request = 0;  // number of the request
    std::uint32_t received = 0;
  };
  // A SEND that is arriving.
  struct Inbound {
    bool in_progress = false;
    bool has_receive = false;
    wire::rdmap::Opcode opcode{};
    std::uint32_t received = 0;
    verbs::Receive receive;
  };
  enum class Sending : std::uint8_t { nothing, request, answer };

  // sender.cc
  bool begin_request(QueuePair& qp);
  bool must_wait(const QueuePair& qp, const SendWqe& wqe) const;
  void execute_local(QueuePair& qp, SendWqe& wqe);
  bool make_request_record(QueuePair& qp, Record& out);
  void make_read_request(const QueuePair& qp, SendWqe& wqe, MadeRecord& made);
  bool make_answer_record(QueuePair& qp, Record& out);
  bool make_terminate_record(Record& out);
  std::uint32_t room(bool tagged) const;
  void fail_request(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  void retire_through(QueuePair& qp, std::uint32_t index, verbs::CompletionStatus status);
  void retire_done(QueuePair& qp);
  bool resolve(const QueuePair& qp, const MadeRecord& made, FilledRecord& out) const;

  // receiver.cc
  void handle(QueuePair& qp, const Ulpdu& ulpdu);
  void handle_tagged(QueuePair& qp, const wire::ddp::Header& header, Payload data);
  void handle_untagged(QueuePair& qp, const wire::ddp::Header& header, const Ulpdu& ulpdu);
  void handle_write(QueuePair& qp, const wire::ddp::Header& header, Payload data);
  void handle_read_response(QueuePair& qp, const wire::ddp::Header& header, Payload data);
  void handle_send(QueuePair& qp, const wire::ddp::Header& header, Payload data);
  void complete_send(QueuePair& qp, const wire::ddp::Header& header);
  void handle_read_request(QueuePair& qp, const wire::ddp::Header& header,
                           std::span<const std::byte> data);
  void handle_terminate(QueuePair& qp, std::span<const std::byte> data);
  // The segment with this header is in error: tells the peer, and fails the queue pair.
  void refuse(QueuePair& qp, wire::rdmap::TerminateCode code,
              const wire::ddp::Header* header = nullptr, std::uint32_t segment_bytes = 0,
              const wire::rdmap::ReadRequest* read = nullptr);
  void blame(QueuePair& qp, const wire::rdmap::Terminate& terminate);

  Agreed agreed_;

  // Sending. Requests are numbered from the first that the queue pair was ever given.
  std::uint64_t retired_ = 0;        // number of the request at the head of the send queue
  std::uint32_t cursor_ = 0;         // request being sent, counted from the head
  std::uint32_t cursor_offset_ = 0;  // next byte of that request
  bool taking_ = false;
  bool failing_ = false;  // a request has failed, and those before it are not done yet
  Sending sending_ = Sending::nothing;  // the kind of message that has begun and not ended
  bool answered_last_ = false;          // the last message was an answer: requests have their turn
  std::uint32_t next_send_ = 1;         // the next MSNs (RFC 5041 4.3)
  std::uint32_t next_read_ = 1;
  SentRecords records_;
  Ring<OutstandingRead> reads_;  // READs that are not answered, oldest first
  Ring<Answer> answers_;
  bool terminate_due_ = false;
  bool terminate_sent_ = false;
  std::array<std::byte, wire::rdmap::terminate_bytes_max> terminate_{};
  std::uint32_t terminate_bytes_ = 0;

  // Receiving.
  Deframer deframer_;
  Inbound inbound_;
  std::uint32_t expected_send_ = 1;
  std::uint32_t expected_read_ = 1;
  std::optional<wire::rdmap::Terminate> terminated_;
};

}  // namespace tulle::transport::iwarp
