#pragma once

// iWARP: RDMAP and DDP (RFC 5040, RFC 5041) between the verbs and a reliable stream of bytes.
//
// The stream is somebody else's. Downwards the engine makes one FPDU after the other, each a record
// that is to go out in a segment of its own, and keeps what it is made of until it is acknowledged:
// when the stream sends a record again it is filled in again, from the memory that it names.
// Upwards the stream hands over what has come in order, cut anywhere.
//
// When a request is done. RFC 5040 5.5 lets a SEND or a WRITE complete when its memory may be used
// again. Here records point into that memory until the peer's TCP has acknowledged them, so that
// this is the moment; completions come in the order of posting, so that what follows a READ waits
// for its answer. Unlike RC's, an acknowledgement says nothing of the peer's having accepted the
// message: its TERMINATE may come after the completion.
//
// An error is told in a TERMINATE, the last record of its stream, and ends the queue pair at either
// end. There is nothing like an RNR NAK: a SEND that finds no receive request ends it too.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "base/ring.h"
#include "transport/iwarp/deframer.h"
#include "transport/packet_io.h"
#include "transport/send_queue.h"
#include "verbs/memory.h"
#include "verbs/receive_queue.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::iwarp {

// What set-up has agreed upon (RFC 5044 7.1, RFC 6581); the depths of READs are the queue pair's
// max_rd_atomic (ORD) and max_dest_rd_atomic (IRD).
struct Agreed {
  std::uint32_t segment_bytes = 1'460;  // the most that one TCP segment carries: EMSS
  bool crc = true;
};

// An FPDU to be sent.
struct Record {
  std::uint64_t number = 0;  // counted from the stream's first
  std::uint32_t bytes = 0;   // of the whole FPDU
};

// What an FPDU is made of, in order; without ghosts the pieces are all of it. They hold until the
// queue pair is given something else to do.
struct FilledRecord {
  static constexpr std::size_t pieces_max = verbs::sges_max + 2;

  std::array<std::span<const std::byte>, pieces_max> pieces;
  std::uint8_t piece_count = 0;
  std::uint32_t ghost_bytes = 0;  // behind the pieces
  std::array<std::byte, wire::mpa::trailer_bytes_max> trailer;
};

class Protocol {
 public:
  void start(const QueuePair& qp, const Agreed& agreed);
  // RTR to RTS: how many READs may be outstanding is known.
  void start_sending(const QueuePair& qp);
  // The queue pair has failed: what it was asked for is flushed elsewhere.
  void reset_sending();

  // --- downwards: sender.cc ---
  // The next record; false: nothing to send now.
  [[nodiscard]] bool next_record(QueuePair& qp, Record& out);
  // False: next_record would find nothing until something else happens.
  bool has_more(const QueuePair& qp) const;
  // A READ's answer, or a TERMINATE, is due.
  bool has_answers() const { return !answers_.empty() || terminate_due_; }
  // A TERMINATE is due or has not been acknowledged.
  bool is_terminating() const { return terminate_due_ || (terminate_sent_ && !records_.empty()); }
  // False: the memory is no longer what it was, and the stream has to end.
  [[nodiscard]] bool fill(const QueuePair& qp, std::uint64_t number, FilledRecord& out) const;
  // So many bytes of the stream, from its first FPDU's on, have been acknowledged.
  void acknowledged(QueuePair& qp, std::uint64_t bytes);
  // Around all that the stream has acknowledged at one time, of what came: a failure of this side's
  // own waits until that has been taken in, as its sender may think it done.
  void begin_taking() { taking_ = true; }
  void end_taking(QueuePair& qp);
  // READs that were not answered: who sends nothing else hears of a peer that is gone by asking
  // alone.
  bool awaits_answers() const { return !reads_.empty(); }
  // Whether every request that has begun is done (IBTA 10.3.1.5, SQD).
  bool drained() const { return cursor_ == 0 && sending_ != Sending::request; }

  // --- upwards: receiver.cc ---
  // What has come next in the stream.
  void receive(QueuePair& qp, StreamPart part);
  // TCP has given up (RFC 5044 8), or the stream has ended.
  void connection_lost(QueuePair& qp);
  bool holds_receive() const { return inbound_.has_receive; }
  const verbs::Receive& held_receive() const { return inbound_.receive; }
  void forget_receive() { inbound_.has_receive = false; }

  // For who looks on: the error that ended the stream, told by either end.
  const std::optional<wire::rdmap::Terminate>& terminated() const { return terminated_; }

 private:
  static constexpr std::uint32_t head_bytes_max =
      wire::mpa::length_bytes + wire::ddp::untagged_header_bytes + wire::rdmap::read_request_bytes;

  // Where a record's data lie.
  enum class Source : std::uint8_t { request, answer, terminate };
  struct MadeRecord {
    std::array<std::byte, head_bytes_max> head;
    std::uint8_t head_bytes = 0;
    Source source = Source::request;
    bool ends_request = false;
    std::uint32_t data_bytes = 0;
    std::uint32_t fpdu_bytes = 0;
    std::uint32_t offset = 0;   // request: in its data
    LocalKey key;               // answer
    std::uint64_t address = 0;  // answer: there; request: its number
  };
  // A READ of the peer's.
  struct Answer {
    wire::rdmap::ReadRequest request;
    std::uint32_t sent = 0;
  };
  struct OutstandingRead {
    std::uint64_t request = 0;  // its number
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
  void put_head(MadeRecord& made, const wire::ddp::Header& header,
                const wire::rdmap::ReadRequest* read = nullptr) const;
  bool push(MadeRecord& made, Record& out);
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
  // Something is wrong with the segment `header` is of: tells the peer, and fails.
  void refuse(QueuePair& qp, wire::rdmap::TerminateCode code,
              const wire::ddp::Header* header = nullptr, std::uint32_t segment_bytes = 0,
              const wire::rdmap::ReadRequest* read = nullptr);
  void blame(QueuePair& qp, const wire::rdmap::Terminate& terminate);
  std::optional<std::uint32_t> find_blamed(const QueuePair& qp,
                                           const wire::rdmap::Terminate& terminate) const;

  Agreed agreed_;

  // Sending. Requests have numbers, from the first that the queue pair was ever given.
  std::uint64_t retired_ = 0;        // of the request at the head of the send queue
  std::uint32_t cursor_ = 0;         // request being sent, counted from the head
  std::uint32_t cursor_offset_ = 0;  // its next byte
  bool taking_ = false;
  bool failing_ = false;  // a request has failed, and those before it are not done yet
  Sending sending_ = Sending::nothing;  // whose message has begun and not ended
  bool answered_last_ = false;          // requests and answers take turns
  std::uint32_t next_send_ = 1;         // MSNs (RFC 5041 4.3)
  std::uint32_t next_read_ = 1;
  GrowingRing<MadeRecord> records_;  // not acknowledged
  std::uint64_t next_number_ = 0;
  std::uint64_t acknowledged_bytes_ = 0;  // of the records before them
  Ring<OutstandingRead> reads_;           // not answered, oldest first
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
