#include "rdma/wire/opcode.h"

#include <cstddef>

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

struct OperationRow {
  Operation operation;
  std::string_view name;
  OpcodeInfo info;  // as RC carries it
};

// Contents of each operation's packets, before a transport adds or forbids anything (IBTA 9.2.1 and
// 9.3; FLUSH and ATOMIC WRITE: annex A19).
constexpr OperationRow operation_rows[] = {
    {Operation::send_first,
     "SEND First",
     {.kind = Kind::send, .position = Position::first, .payload = true}},
    {Operation::send_middle,
     "SEND Middle",
     {.kind = Kind::send, .position = Position::middle, .payload = true}},
    {Operation::send_last,
     "SEND Last",
     {.kind = Kind::send, .position = Position::last, .payload = true}},
    {Operation::send_last_with_immediate,
     "SEND Last with Immediate",
     {.kind = Kind::send, .position = Position::last, .immediate = true, .payload = true}},
    {Operation::send_only,
     "SEND Only",
     {.kind = Kind::send, .position = Position::only, .payload = true}},
    {Operation::send_only_with_immediate,
     "SEND Only with Immediate",
     {.kind = Kind::send, .position = Position::only, .immediate = true, .payload = true}},
    {Operation::write_first,
     "RDMA WRITE First",
     {.kind = Kind::write, .position = Position::first, .reth = true, .payload = true}},
    {Operation::write_middle,
     "RDMA WRITE Middle",
     {.kind = Kind::write, .position = Position::middle, .payload = true}},
    {Operation::write_last,
     "RDMA WRITE Last",
     {.kind = Kind::write, .position = Position::last, .payload = true}},
    {Operation::write_last_with_immediate,
     "RDMA WRITE Last with Immediate",
     {.kind = Kind::write, .position = Position::last, .immediate = true, .payload = true}},
    {Operation::write_only,
     "RDMA WRITE Only",
     {.kind = Kind::write, .position = Position::only, .reth = true, .payload = true}},
    {Operation::write_only_with_immediate,
     "RDMA WRITE Only with Immediate",
     {.kind = Kind::write,
      .position = Position::only,
      .reth = true,
      .immediate = true,
      .payload = true}},
    {Operation::read_request, "RDMA READ Request", {.kind = Kind::read_request, .reth = true}},
    {Operation::read_response_first,
     "RDMA READ Response First",
     {.kind = Kind::read_response, .position = Position::first, .aeth = true, .payload = true}},
    {Operation::read_response_middle,
     "RDMA READ Response Middle",
     {.kind = Kind::read_response, .position = Position::middle, .payload = true}},
    {Operation::read_response_last,
     "RDMA READ Response Last",
     {.kind = Kind::read_response, .position = Position::last, .aeth = true, .payload = true}},
    {Operation::read_response_only,
     "RDMA READ Response Only",
     {.kind = Kind::read_response, .position = Position::only, .aeth = true, .payload = true}},
    {Operation::acknowledge, "Acknowledge", {.kind = Kind::acknowledge, .aeth = true}},
    {Operation::atomic_acknowledge,
     "ATOMIC Acknowledge",
     {.kind = Kind::atomic_acknowledge, .aeth = true, .atomic_ack_eth = true}},
    {Operation::compare_swap, "CmpSwap", {.kind = Kind::atomic, .atomic_eth = true}},
    {Operation::fetch_add, "FetchAdd", {.kind = Kind::atomic, .atomic_eth = true}},
    {Operation::send_last_with_invalidate,
     "SEND Last with Invalidate",
     {.kind = Kind::send, .position = Position::last, .invalidate = true, .payload = true}},
    {Operation::send_only_with_invalidate,
     "SEND Only with Invalidate",
     {.kind = Kind::send, .position = Position::only, .invalidate = true, .payload = true}},
    {Operation::flush, "FLUSH", {.kind = Kind::flush, .reth = true, .feth = true}},
    {Operation::atomic_write,
     "ATOMIC WRITE",
     {.kind = Kind::atomic_write, .reth = true, .payload = true}},
};

// SRD's operations: docs/decisions/009-scalable-reliable-datagram.md.
constexpr OperationRow srd_rows[] = {
    {Operation::send_middle,
     "SEND Segment",
     {.kind = Kind::send,
      .position = Position::middle,
      .srdeth = true,
      .srd_qkey = true,
      .srd_segment = true,
      .payload = true}},
    {Operation::send_last_with_immediate,
     "SEND Segment with Immediate",
     {.kind = Kind::send,
      .position = Position::middle,
      .immediate = true,
      .srdeth = true,
      .srd_qkey = true,
      .srd_segment = true,
      .payload = true}},
    {Operation::send_only,
     "SEND Only",
     {.kind = Kind::send,
      .position = Position::only,
      .srdeth = true,
      .srd_qkey = true,
      .payload = true}},
    {Operation::send_only_with_immediate,
     "SEND Only with Immediate",
     {.kind = Kind::send,
      .position = Position::only,
      .immediate = true,
      .srdeth = true,
      .srd_qkey = true,
      .payload = true}},
    {Operation::write_middle,
     "RDMA WRITE Segment",
     {.kind = Kind::write,
      .position = Position::middle,
      .reth = true,
      .srdeth = true,
      .payload = true}},
    {Operation::write_last_with_immediate,
     "RDMA WRITE Immediate",
     {.kind = Kind::write,
      .position = Position::last,
      .immediate = true,
      .srdeth = true,
      .srd_qkey = true,
      .srd_segment = true}},
    {Operation::acknowledge, "Acknowledge", {.kind = Kind::acknowledge, .srd_ack = true}},
    {Operation::skip, "Skip", {.kind = Kind::skip, .srdeth = true}},
};

constexpr bool is_response(Kind kind) {
  return kind == Kind::read_response || kind == Kind::acknowledge ||
         kind == Kind::atomic_acknowledge;
}

// True if the transport has the operation at all (IBTA 9.2.1; UC: 9.8, UD: 9.8.3, XRC: A14).
constexpr bool offers(TransportClass transport, const OperationRow& row) {
  switch (transport) {
    case TransportClass::rc:
    case TransportClass::xrc:
      return true;
    case TransportClass::uc:
      return (row.info.kind == Kind::send || row.info.kind == Kind::write) && !row.info.invalidate;
    case TransportClass::ud:
      return row.operation == Operation::send_only ||
             row.operation == Operation::send_only_with_immediate;
    case TransportClass::rd:   // left out: see docs/spec-exceptions.md
    case TransportClass::cnp:  // its opcodes are not messages
    case TransportClass::srd:  // has its own rows
      return false;
  }
  return false;
}

constexpr std::uint8_t bytes_of(const OpcodeInfo& row) {
  std::size_t bytes = sizeof(Bth);
  if (row.deth) bytes += sizeof(Deth);
  if (row.xrceth) bytes += sizeof(Xrceth);
  if (row.feth) bytes += sizeof(Feth);
  if (row.reth) bytes += sizeof(Reth);
  if (row.atomic_eth) bytes += sizeof(AtomicEth);
  if (row.aeth) bytes += sizeof(Aeth);
  if (row.atomic_ack_eth) bytes += sizeof(AtomicAckEth);
  if (row.immediate) bytes += sizeof(ImmDt);
  if (row.invalidate) bytes += sizeof(Ieth);
  if (row.saeth) bytes += sizeof(Saeth);
  if (row.cnp_reserved) bytes += sizeof(CnpReserved);
  if (row.srdeth) bytes += sizeof(Srdeth);
  if (row.srd_qkey) bytes += sizeof(SrdQkeyEth);
  if (row.srd_segment) bytes += sizeof(SrdSegmentEth);
  if (row.srd_ack) bytes += sizeof(SrdAckEth);
  return static_cast<std::uint8_t>(bytes);
}

constexpr Extensions extensions_of(const OpcodeInfo& row) {
  if (row.header_bytes == sizeof(Bth)) return Extensions::none;
  if (row.reth && row.header_bytes == sizeof(Bth) + sizeof(Reth)) return Extensions::reth;
  if (row.aeth && row.header_bytes == sizeof(Bth) + sizeof(Aeth)) return Extensions::aeth;
  return Extensions::others;
}

constexpr TransportClass transports[] = {TransportClass::rc, TransportClass::uc, TransportClass::ud,
                                         TransportClass::xrc};

constexpr std::array<OpcodeInfo, 256> build_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const TransportClass transport : transports) {
    for (const OperationRow& operation : operation_rows) {
      if (!offers(transport, operation)) continue;
      OpcodeInfo row = operation.info;
      row.deth = transport == TransportClass::ud;
      row.xrceth = transport == TransportClass::xrc && !is_response(row.kind);
      row.header_bytes = bytes_of(row);
      table[static_cast<std::size_t>(opcode(transport, operation.operation))] = row;
    }
  }
  for (const OperationRow& operation : srd_rows) {
    OpcodeInfo row = operation.info;
    row.header_bytes = bytes_of(row);
    table[static_cast<std::size_t>(opcode(TransportClass::srd, operation.operation))] = row;
  }
  OpcodeInfo& notification = table[static_cast<std::size_t>(congestion_notification)];
  notification = {.kind = Kind::congestion_notification, .cnp_reserved = true};
  notification.header_bytes = bytes_of(notification);
  OpcodeInfo& bare = table[static_cast<std::size_t>(infiniband_congestion_notification)];
  bare.kind = Kind::congestion_notification;
  bare.header_bytes = bytes_of(bare);
  OpcodeInfo& selective = table[static_cast<std::size_t>(selective_acknowledge)];
  selective = {.kind = Kind::selective_acknowledge, .aeth = true, .saeth = true};
  selective.header_bytes = bytes_of(selective);
  for (OpcodeInfo& row : table) row.extensions = extensions_of(row);
  return table;
}

constexpr std::array<OpcodeInfo, 256> table = build_table();

constexpr const OpcodeInfo& row(TransportClass transport, Operation operation) {
  return table[static_cast<std::size_t>(opcode(transport, operation))];
}

constexpr std::size_t rows_of(TransportClass transport) {
  std::size_t rows = 0;
  for (std::size_t operation = 0; operation < 32; ++operation) {
    rows += row(transport, static_cast<Operation>(operation)).kind != Kind::none;
  }
  return rows;
}
static_assert(rows_of(TransportClass::rc) == 25);
static_assert(rows_of(TransportClass::uc) == 12);
static_assert(rows_of(TransportClass::rd) == 0);
static_assert(rows_of(TransportClass::ud) == 2);
static_assert(rows_of(TransportClass::cnp) == 2);
static_assert(rows_of(TransportClass::xrc) == 25);
static_assert(row(TransportClass::rc, Operation::write_only_with_immediate).header_bytes == 32);
static_assert(row(TransportClass::rc, Operation::compare_swap).header_bytes == 40);
static_assert(row(TransportClass::ud, Operation::send_only).header_bytes == 20);
static_assert(row(TransportClass::xrc, Operation::fetch_add).header_bytes == 44);
static_assert(row(TransportClass::xrc, Operation::acknowledge).header_bytes == 16);
static_assert(table[0x80].header_bytes == 12);
static_assert(rows_of(TransportClass::srd) == 8);
static_assert(row(TransportClass::srd, Operation::send_only).header_bytes == 28);
static_assert(row(TransportClass::srd, Operation::write_middle).header_bytes == 40);
static_assert(row(TransportClass::srd, Operation::acknowledge).header_bytes == 32);
static_assert(table[0x81].header_bytes == 28);
static_assert(table[0xD1].header_bytes == 20);

// Names are built at compile time too, so that the views which `name` returns stay valid
// indefinitely.
struct Name {
  char text[40] = {};
  std::uint8_t length = 0;

  constexpr void append(std::string_view part) {
    for (const char c : part) text[length++] = c;
  }
};

constexpr std::string_view name_of(TransportClass transport) {
  switch (transport) {
    case TransportClass::rc:
      return "RC ";
    case TransportClass::uc:
      return "UC ";
    case TransportClass::rd:
      return "RD ";
    case TransportClass::ud:
      return "UD ";
    case TransportClass::xrc:
      return "XRC ";
    case TransportClass::srd:
      return "SRD ";
    case TransportClass::cnp:
      return "";
  }
  return "";
}

constexpr std::array<Name, 256> build_names() {
  std::array<Name, 256> names{};
  for (const TransportClass transport : transports) {
    for (const OperationRow& operation : operation_rows) {
      if (!offers(transport, operation)) continue;
      Name& name = names[static_cast<std::size_t>(opcode(transport, operation.operation))];
      name.append(name_of(transport));
      name.append(operation.name);
    }
  }
  names[static_cast<std::size_t>(infiniband_congestion_notification)].append("CN");
  for (const OperationRow& operation : srd_rows) {
    Name& name = names[static_cast<std::size_t>(opcode(TransportClass::srd, operation.operation))];
    name.append(name_of(TransportClass::srd));
    name.append(operation.name);
  }
  names[static_cast<std::size_t>(congestion_notification)].append("CNP");
  names[static_cast<std::size_t>(selective_acknowledge)].append("Selective Acknowledge");
  return names;
}

constexpr std::array<Name, 256> names = build_names();

}  // namespace

constinit const std::array<OpcodeInfo, 256> opcode_rows = table;

std::string_view name(Opcode code) {
  const Name& name = names[static_cast<std::size_t>(code)];
  return {name.text, name.length};
}

}  // namespace tulle::wire
