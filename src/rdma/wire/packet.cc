#include "rdma/wire/packet.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "rdma/wire/aeth.h"
#include "rdma/wire/atomic_eth.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/cnp.h"
#include "rdma/wire/deth.h"
#include "rdma/wire/feth.h"
#include "rdma/wire/immediate.h"
#include "rdma/wire/reth.h"
#include "rdma/wire/saeth.h"
#include "rdma/wire/srd.h"
#include "rdma/wire/xrceth.h"

namespace tulle::wire {
namespace {

Bth bth_of(const Packet& packet) {
  Bth bth;
  bth.opcode_and_pkey =
      std::uint32_t{static_cast<std::uint8_t>(packet.opcode)} << Bth::opcode_shift |
      (packet.solicited_event ? Bth::solicited_event : 0) |
      (packet.migration_state ? Bth::migration_state : 0) |
      (packet.pad_count & Bth::pad_count_mask) << Bth::pad_count_shift | packet.pkey.value;
  bth.congestion_and_qp = (packet.fecn ? Bth::fecn : 0) | (packet.becn ? Bth::becn : 0) |
                          (packet.destination_qp.value & Bth::qp_mask);
  bth.acknowledge_and_psn = (packet.ack_request ? Bth::ack_request : 0) | packet.psn.value();
  return bth;
}

void read_bth(const Bth& bth, Packet& packet) {
  const std::uint32_t first = bth.opcode_and_pkey;
  const std::uint32_t second = bth.congestion_and_qp;
  const std::uint32_t third = bth.acknowledge_and_psn;
  packet.opcode = static_cast<Opcode>(first >> Bth::opcode_shift);
  packet.solicited_event = (first & Bth::solicited_event) != 0;
  packet.migration_state = (first & Bth::migration_state) != 0;
  packet.pad_count = static_cast<std::uint8_t>(first >> Bth::pad_count_shift & Bth::pad_count_mask);
  packet.pkey = Pkey(static_cast<std::uint16_t>(first));
  packet.fecn = (second & Bth::fecn) != 0;
  packet.becn = (second & Bth::becn) != 0;
  packet.destination_qp = QpNumber(second & Bth::qp_mask);
  packet.ack_request = (third & Bth::ack_request) != 0;
  packet.psn = Psn(third);
}

inline void write_reth(const Packet& packet, std::span<std::byte>& out) {
  put(Reth{packet.virtual_address, packet.rkey.value, packet.dma_length}, out);
}

inline void read_reth(std::span<const std::byte>& in, Packet& packet) {
  const Reth header = take<Reth>(in);
  packet.virtual_address = header.virtual_address;
  packet.rkey = RemoteKey(header.rkey);
  packet.dma_length = header.dma_length;
}

inline void write_aeth(const Packet& packet, std::span<std::byte>& out) {
  put(Aeth{packet.syndrome.encoded(), packet.msn}, out);
}

inline void read_aeth(std::span<const std::byte>& in, Packet& packet) {
  const Aeth header = take<Aeth>(in);
  packet.syndrome = Syndrome::decoded(header.syndrome);
  packet.msn = header.msn;
}

void write_srd(const Packet& packet, const OpcodeInfo& row, std::span<std::byte>& out) {
  if (row.srdeth) {
    put(Srdeth{packet.srd_context, packet.srd_path, packet.source_qp.value, packet.srd_message},
        out);
  }
  if (row.srd_qkey) put(SrdQkeyEth{packet.qkey.value}, out);
  if (row.srd_segment) put(SrdSegmentEth{packet.srd_offset, packet.dma_length}, out);
  if (row.srd_ack) {
    put(SrdAckEth{packet.srd_context, packet.srd_path, packet.early_psn.value(),
                  packet.syndrome.encoded(), packet.srd_held_ns, packet.srd_received},
        out);
  }
}

void read_srd(std::span<const std::byte>& in, const OpcodeInfo& row, Packet& packet) {
  if (row.srdeth) {
    const Srdeth header = take<Srdeth>(in);
    packet.srd_context = header.context;
    packet.srd_path = header.path;
    packet.source_qp = QpNumber(header.source_qp);
    packet.srd_message = header.message;
  }
  if (row.srd_qkey) packet.qkey = Qkey(take<SrdQkeyEth>(in).qkey);
  if (row.srd_segment) {
    const SrdSegmentEth header = take<SrdSegmentEth>(in);
    packet.srd_offset = header.offset;
    packet.dma_length = header.length;
  }
  if (row.srd_ack) {
    const SrdAckEth header = take<SrdAckEth>(in);
    packet.srd_context = header.context;
    packet.srd_path = header.path;
    packet.early_psn = Psn(header.psn);
    packet.syndrome = Syndrome::decoded(header.syndrome);
    packet.srd_held_ns = header.held_ns;
    packet.srd_received = header.received;
  }
}

// Writes the extension headers in their order, which `read_extensions` repeats: DETH or XRCETH
// first, then the headers that address memory, then the acknowledgement's, then those with the
// application's data (IBTA 9.2.1, A14, A19). SRD's headers precede all others.
void write_extensions(const Packet& packet, const OpcodeInfo& row, std::span<std::byte> out) {
  if (row.srdeth || row.srd_ack) write_srd(packet, row, out);
  if (row.deth) {
    put(Deth{.qkey = packet.qkey.value, .reserved = 0, .source_qp = packet.source_qp.value}, out);
  }
  if (row.xrceth) put(Xrceth{.reserved = 0, .srq = packet.xrc_srq}, out);
  if (row.feth) {
    put(Feth{(packet.flush_selectivity & Feth::selectivity_mask) << Feth::selectivity_shift |
             (packet.flush_placement & Feth::placement_mask)},
        out);
  }
  if (row.reth) write_reth(packet, out);
  if (row.atomic_eth) {
    put(AtomicEth{packet.virtual_address, packet.rkey.value, packet.swap_or_add, packet.compare},
        out);
  }
  if (row.aeth) write_aeth(packet, out);
  if (row.atomic_ack_eth) put(AtomicAckEth{packet.original}, out);
  if (row.immediate) {
    ImmDt header;
    std::memcpy(header.bytes, &packet.immediate, sizeof(header.bytes));
    put(header, out);
  }
  if (row.invalidate) put(Ieth{packet.invalidate_rkey.value}, out);
  if (row.saeth) put(Saeth{.reserved = 0, .psn = packet.early_psn.value()}, out);
  if (row.cnp_reserved) put(CnpReserved{}, out);
}

void read_extensions(std::span<const std::byte> in, const OpcodeInfo& row, Packet& packet) {
  if (row.srdeth || row.srd_ack) read_srd(in, row, packet);
  if (row.deth) {
    const Deth header = take<Deth>(in);
    packet.qkey = Qkey(header.qkey);
    packet.source_qp = QpNumber(header.source_qp);
  }
  if (row.xrceth) packet.xrc_srq = take<Xrceth>(in).srq;
  if (row.feth) {
    const std::uint32_t bits = take<Feth>(in).bits;
    packet.flush_selectivity =
        static_cast<std::uint8_t>(bits >> Feth::selectivity_shift & Feth::selectivity_mask);
    packet.flush_placement = static_cast<std::uint8_t>(bits & Feth::placement_mask);
  }
  if (row.reth) read_reth(in, packet);
  if (row.atomic_eth) {
    const AtomicEth header = take<AtomicEth>(in);
    packet.virtual_address = header.virtual_address;
    packet.rkey = RemoteKey(header.rkey);
    packet.swap_or_add = header.swap_or_add;
    packet.compare = header.compare;
  }
  if (row.aeth) read_aeth(in, packet);
  if (row.atomic_ack_eth) packet.original = take<AtomicAckEth>(in).original;
  if (row.immediate) {
    const ImmDt header = take<ImmDt>(in);
    std::memcpy(&packet.immediate, header.bytes, sizeof(header.bytes));
  }
  if (row.invalidate) packet.invalidate_rkey = RemoteKey(take<Ieth>(in).rkey);
  if (row.saeth) packet.early_psn = Psn(take<Saeth>(in).psn);
}

}  // namespace

QpNumber peek_destination_qp(std::span<const std::byte> headers) {
  Bth bth;
  std::memcpy(&bth, headers.data(), sizeof(bth));
  return QpNumber(bth.destination_qp());
}

Pkey peek_pkey(std::span<const std::byte> headers) {
  Bth bth;
  std::memcpy(&bth, headers.data(), sizeof(bth));
  return Pkey(static_cast<std::uint16_t>(bth.opcode_and_pkey));
}

bool mark_fecn(std::span<std::byte> headers) {
  constexpr std::byte fecn{Bth::fecn >> 24};
  std::byte& bits = headers[offsetof(Bth, congestion_and_qp)];
  if ((bits & fecn) != std::byte{}) return false;
  bits |= fecn;
  return true;
}

std::size_t encode(const Packet& packet, std::span<std::byte> out) {
  const OpcodeInfo& row = info(packet.opcode);
  TULLE_CHECK(row.kind != Kind::none);
  TULLE_CHECK(out.size() >= row.header_bytes);
  put(bth_of(packet), out);
  switch (row.extensions) {
    case Extensions::none:
      break;
    case Extensions::reth:
      write_reth(packet, out);
      break;
    case Extensions::aeth:
      write_aeth(packet, out);
      break;
    case Extensions::others:
      write_extensions(packet, row, out);
      break;
  }
  return row.header_bytes;
}

Decoded decode(std::span<const std::byte> in, Packet& packet) {
  if (in.size() < sizeof(Bth)) return {DecodeStatus::truncated, 0};
  Bth bth;
  std::memcpy(&bth, in.data(), sizeof bth);
  // IBTA 9.6.1: the version is checked before the opcode, since it decides what the opcode means.
  const std::uint32_t first = bth.opcode_and_pkey;
  if ((first & Bth::version_mask) != 0) return {DecodeStatus::bad_version, 0};
  const OpcodeInfo& row = info(static_cast<Opcode>(first >> Bth::opcode_shift));
  if (row.kind == Kind::none) return {DecodeStatus::unknown_opcode, 0};
  if (in.size() < row.header_bytes) return {DecodeStatus::truncated, 0};
  packet = Packet{};
  read_bth(bth, packet);
  std::span<const std::byte> rest = in.subspan(sizeof bth);
  switch (row.extensions) {
    case Extensions::none:
      break;
    case Extensions::reth:
      read_reth(rest, packet);
      break;
    case Extensions::aeth:
      read_aeth(rest, packet);
      break;
    case Extensions::others:
      read_extensions(rest, row, packet);
      break;
  }
  return {DecodeStatus::ok, row.header_bytes};
}

}  // namespace tulle::wire
