#pragma once

// Tools for tests: an iWARP engine with memory that is given FPDUs made by hand, and a stream
// between two engines that cuts bytes anywhere.

#include <cstring>
#include <optional>
#include <vector>

#include "base/random.h"
#include "rdma/optional/iwarp/engine.h"
#include "rdma/optional/transports.h"
#include "rdma/transport/host_test.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/rdmap.h"

namespace tulle::transport::iwarp {

namespace ddp = wire::ddp;
namespace mpa = wire::mpa;
namespace rdmap = wire::rdmap;
using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t segment_bytes = 300;  // a tagged segment has up to 278 bytes of data

// Returns an FPDU: length, segment, pad and CRC.
inline Bytes fpdu(const ddp::Header& header, std::span<const std::byte> data) {
  const auto ulpdu = static_cast<std::uint32_t>(header.bytes() + data.size());
  Bytes out(mpa::fpdu_bytes(ulpdu));
  out[0] = static_cast<std::byte>(ulpdu >> 8);
  out[1] = static_cast<std::byte>(ulpdu);
  ddp::encode(header, std::span(out).subspan(2));
  if (!data.empty()) std::memcpy(out.data() + 2 + header.bytes(), data.data(), data.size());
  mpa::Crc crc;
  crc.update(std::span(out).first(out.size() - mpa::crc_bytes));
  mpa::put_crc(crc.value(), std::span(out).last<mpa::crc_bytes>());
  return out;
}

inline ddp::Header header_of(rdmap::Opcode opcode) {
  ddp::Header header;
  header.tagged = rdmap::info(opcode)->tagged;
  header.queue = header.tagged ? 0 : rdmap::info(opcode)->queue;
  header.sequence = header.tagged ? 0 : 1;
  header.ulp_control = rdmap::Control{.opcode = opcode}.encoded();
  return header;
}

// A decoded FPDU.
struct Read {
  ddp::Header header;
  rdmap::Opcode opcode{};
  Bytes data;
};

struct End : testing::Host {
  explicit End(testing::Options options = {}) : Host(with_type(options)) {
    settings.mss_bytes = segment_bytes;
    environment.tcp = &settings;
  }
  static testing::Options with_type(testing::Options options) {
    options.type = verbs::QpType::iwarp;
    options.transports = &all_transports();
    return options;
  }

  Protocol& protocol() { return Engine::connection_of(*qp)->protocol(); }

  // Returns the next record as it goes out, checked for its length, if one is due.
  std::optional<Bytes> next() {
    Record record;
    if (!protocol().next_record(*qp, record)) return std::nullopt;
    sent_bytes += record.bytes;
    Bytes out = filled(record.number);
    TULLE_CHECK(out.size() == record.bytes && out.size() <= segment_bytes);
    return out;
  }
  Bytes filled(std::uint64_t number) {
    FilledRecord record;
    TULLE_CHECK(protocol().fill(*qp, number, record));
    Bytes out;
    for (std::uint8_t i = 0; i < record.piece_count; ++i) {
      out.insert(out.end(), record.pieces[i].begin(), record.pieces[i].end());
    }
    return out;
  }
  std::vector<Read> sent() {
    std::vector<Read> out;
    while (const auto bytes = next()) {
      Read read;
      const auto ulpdu = std::span(*bytes).subspan(2);
      TULLE_CHECK(ddp::decode(ulpdu, read.header));
      read.opcode = rdmap::Control::decoded(read.header.ulp_control).opcode;
      const auto length = std::to_integer<std::size_t>((*bytes)[0]) << 8 |
                          std::to_integer<std::size_t>((*bytes)[1]);
      const auto data = ulpdu.first(length).subspan(read.header.bytes());
      read.data.assign(data.begin(), data.end());
      out.push_back(read);
    }
    return out;
  }
  void acknowledge_all() { protocol().acknowledged(*qp, sent_bytes); }
  void take(std::span<const std::byte> bytes) { protocol().receive(*qp, {bytes, 0}); }
  void take(const ddp::Header& header, std::span<const std::byte> data = {}) {
    take(fpdu(header, data));
  }
  // Returns the error that the engine told its peer last, if there is one.
  std::optional<rdmap::Terminate> told() {
    const auto all = sent();
    if (all.empty() || all.back().opcode != rdmap::Opcode::terminate) return std::nullopt;
    std::size_t used = 0;
    return rdmap::decode_terminate(all.back().data, used);
  }

  tcp::Settings settings;
  std::uint64_t sent_bytes = 0;
};

// Bytes under way from one engine to the other. They come in pieces, and their acknowledgements
// come some time later.
class Wire {
 public:
  Wire(End& from, End& to, Random& random) : from_(from), to_(to), random_(random) {}

  // Returns true if something was moved or waits to be.
  bool step() {
    bool moved = false;
    if (random_.below(3) != 0) {
      if (const auto bytes = from_.next()) {
        waiting_.insert(waiting_.end(), bytes->begin(), bytes->end());
        moved = true;
      }
    }
    if (!waiting_.empty()) {
      const std::size_t count = 1 + random_.below(std::min<std::size_t>(waiting_.size(), 700));
      const Bytes part(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
      arrived_ += count;
      to_.take(part);
      moved = true;
    }
    if (acknowledged_ < arrived_ && random_.below(2) == 0) {
      acknowledged_ += 1 + random_.below(arrived_ - acknowledged_);
      from_.protocol().acknowledged(*from_.qp, acknowledged_);
      moved = true;
    }
    return moved || acknowledged_ < arrived_;
  }

 private:
  End& from_;
  End& to_;
  Random& random_;
  Bytes waiting_;
  std::uint64_t arrived_ = 0;
  std::uint64_t acknowledged_ = 0;
};

// Runs both directions until nothing moves.
inline void run(Wire& one, Wire& other) {
  for (int idle = 0; idle < 20; ++idle) {
    const bool has_moved = one.step();
    if (other.step() || has_moved) idle = 0;
  }
}

}  // namespace tulle::transport::iwarp
