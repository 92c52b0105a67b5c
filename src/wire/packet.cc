#include "wire/packet.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/cnp.h"
#include "wire/deth.h"
#include "wire/feth.h"
#include "wire/immediate.h"
#include "wire/reth.h"
#include "wire/saeth.h"
#include "wire/srd.h"
#include "wire/xrceth.h"

namespace tulle::wire {
namespace {

Bth bth_of(const Packet& packet) {
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(packet.opcode);
  bth.flags =
      static_cast<std::uint8_t>((packet.solicited_event ? Bth::solicited_event : 0) |
                                (packet.migration_state ? Bth::migration_state : 0) |
                                (packet.pad_count & Bth::pad_count_mask) << Bth::pad_count_shift);
  bth.pkey = packet.pkey.value;
  bth.congestion =
      static_cast<std::uint8_t>((packet.fecn ? Bth::fecn : 0) | (packet.becn ? Bth::becn : 0));
  bth.destination_qp = packet.destination_qp.value;
  bth.acknowledge = static_cast<std::uint8_t>(packet.ack_request ? Bth::ack_request : 0);
  bth.psn = packet.psn.value();
  return bth;
}

void read_bth(const Bth& bth, Packet& packet) {
  packet.opcode = static_cast<Opcode>(bth.opcode);
  packet.solicited_event = (bth.flags & Bth::solicited_event) != 0;
  packet.migration_state = (bth.flags & Bth::migration_state) != 0;
  packet.pad_count =
      static_cast<std::uint8_t>(bth.flags >> Bth::pad_count_shift & Bth::pad_count_mask);
  packet.pkey = Pkey(bth.pkey);
  packet.fecn = (bth.congestion & Bth::fecn) != 0;
  packet.becn = (bth.congestion & Bth::becn) != 0;
  packet.destination_qp = QpNumber(bth.destination_qp);
  packet.ack_request = (bth.acknowledge & Bth::ack_request) != 0;
  packet.psn = Psn(bth.psn);
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
// application's data (IBTA 9.2.1, A14, A19). SRD's headers stand before all others.
void write_extensions(const Packet& packet, const OpcodeInfo& row, std::span<std::byte> out) {
  if (row.srdeth || row.srd_ack) [[unlikely]]
    write_srd(packet, row, out);
  if (row.deth) {
    put(Deth{.qkey = packet.qkey.value, .reserved = 0, .source_qp = packet.source_qp.value}, out);
  }
  if (row.xrceth) put(Xrceth{.reserved = 0, .srq = packet.xrc_srq}, out);
  if (row.feth) {
    put(Feth{(packet.flush_selectivity & Feth::selectivity_mask) << Feth::selectivity_shift |
             (packet.flush_placement & Feth::placement_mask)},
        out);
  }
  if (row.reth) put(Reth{packet.virtual_address, packet.rkey.value, packet.dma_length}, out);
  if (row.atomic_eth) {
    put(AtomicEth{packet.virtual_address, packet.rkey.value, packet.swap_or_add, packet.compare},
        out);
  }
  if (row.aeth) put(Aeth{packet.syndrome.encoded(), packet.msn}, out);
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
  if (row.srdeth || row.srd_ack) [[unlikely]]
    read_srd(in, row, packet);
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
  if (row.reth) {
    const Reth header = take<Reth>(in);
    packet.virtual_address = header.virtual_address;
    packet.rkey = RemoteKey(header.rkey);
    packet.dma_length = header.dma_length;
  }
  if (row.atomic_eth) {
    const AtomicEth header = take<AtomicEth>(in);
    packet.virtual_address = header.virtual_address;
    packet.rkey = RemoteKey(header.rkey);
    packet.swap_or_add = header.swap_or_add;
    packet.compare = header.compare;
  }
  if (row.aeth) {
    const Aeth header = take<Aeth>(in);
    packet.syndrome = Syndrome::decoded(header.syndrome);
    packet.msn = header.msn;
  }
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
  return QpNumber(bth.destination_qp);
}

Pkey peek_pkey(std::span<const std::byte> headers) {
  Bth bth;
  std::memcpy(&bth, headers.data(), sizeof(bth));
  return Pkey(bth.pkey);
}

bool mark_fecn(std::span<std::byte> headers) {
  std::byte& bits = headers[offsetof(Bth, congestion)];
  if ((bits & std::byte{Bth::fecn}) != std::byte{}) return false;
  bits |= std::byte{Bth::fecn};
  return true;
}

std::size_t header_bytes(Opcode opcode) { return info(opcode).header_bytes; }

std::size_t encode(const Packet& packet, std::span<std::byte> out) {
  const OpcodeInfo& row = info(packet.opcode);
  TULLE_CHECK(row.kind != Kind::none);
  TULLE_CHECK(out.size() >= row.header_bytes);
  put(bth_of(packet), out);
  write_extensions(packet, row, out);
  return row.header_bytes;
}

Decoded decode(std::span<const std::byte> in, Packet& packet) {
  if (in.size() < sizeof(Bth)) return {DecodeStatus::truncated, 0};
  const std::size_t bytes = in.size();
  const Bth bth = take<Bth>(in);
  // IBTA 9.6.1: the version is checked before the opcode, since it decides what the opcode means.
  if ((bth.flags & Bth::version_mask) != 0) return {DecodeStatus::bad_version, 0};
  const OpcodeInfo& row = info(static_cast<Opcode>(bth.opcode));
  if (row.kind == Kind::none) return {DecodeStatus::unknown_opcode, 0};
  if (bytes < row.header_bytes) return {DecodeStatus::truncated, 0};
  packet = Packet{};
  read_bth(bth, packet);
  read_extensions(in, row, packet);
  return {DecodeStatus::ok, row.header_bytes};
}

}  // namespace tulle::wire
