#pragma once

// The records of a stream that the peer has not acknowledged. Each is remembered by its headers and
// by where its data are, so that it can be filled in again.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/rdmap.h"

namespace tulle::transport::iwarp {

// An FPDU to send.
struct Record {
  std::uint64_t number = 0;  // counted from the stream's first record
  std::uint32_t bytes = 0;   // length of the whole FPDU
};

// The content of an FPDU, in order. Without ghosts, the pieces are all of it. They stay valid until
// the next call to the queue pair.
struct FilledRecord {
  static constexpr std::size_t pieces_max = verbs::sges_max + 2;

  std::array<std::span<const std::byte>, pieces_max> pieces;
  std::uint8_t piece_count = 0;
  std::uint32_t ghost_bytes = 0;  // ghosts behind the pieces
  std::array<std::byte, wire::mpa::trailer_bytes_max> trailer;
};

// What a record is made of.
struct MadeRecord {
  static constexpr std::uint32_t head_bytes_max =
      wire::mpa::length_bytes + wire::ddp::untagged_header_bytes + wire::rdmap::read_request_bytes;
  // The kind of memory that holds a record's data.
  enum class Source : std::uint8_t { request, answer, terminate };

  std::array<std::byte, head_bytes_max> head;
  std::uint8_t head_bytes = 0;
  Source source = Source::request;
  bool ends_request = false;
  std::uint32_t data_bytes = 0;
  std::uint32_t fpdu_bytes = 0;
  std::uint32_t offset = 0;   // request: offset in its data
  LocalKey key;               // answer: key of the data
  std::uint64_t address = 0;  // answer: address of the data; request: its number

  // Writes the head of a record whose data have a known length: MPA's length, DDP's header and, if
  // there is one, a READ request.
  void put_head(const wire::ddp::Header& header, const wire::rdmap::ReadRequest* read = nullptr);
  // Returns the bytes with which MPA fills the record up before the CRC.
  std::uint32_t pad_bytes() const;
  // Adds the pad and the CRC behind pieces that are the whole rest. Behind ghosts they are ghosts.
  // Without a CRC, its bytes are zero.
  void end(bool crc, FilledRecord& filled) const;
};

class SentRecords {
 public:
  // Takes in a record that has its head, and returns what is to be sent.
  Record push(MadeRecord& made);
  // The record must not be acknowledged.
  const MadeRecord& operator[](std::uint64_t number) const;
  bool empty() const { return records_.empty(); }
  // Forgets the oldest record if it is among the first `bytes` bytes of the stream, which the peer
  // has acknowledged, and returns it.
  std::optional<MadeRecord> pop_acknowledged(std::uint64_t bytes);

 private:
  GrowingRing<MadeRecord> records_;
  std::uint64_t next_number_ = 0;
  std::uint64_t acknowledged_bytes_ = 0;  // bytes of the records before them
};

}  // namespace tulle::transport::iwarp
