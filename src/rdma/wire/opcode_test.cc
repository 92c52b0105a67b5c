#include "rdma/wire/opcode.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tulle::wire {
namespace {

struct Expected {
  unsigned code;
  std::string_view name;
  Kind kind;
  Position position;
  std::string_view headers;  // behind the BTH, in wire order; *: may carry payload
  unsigned header_bytes;
};

// Written out by hand from the specification's table. `build_table` must compute the same.
constexpr Expected expected[] = {
    {0x00, "RC SEND First", Kind::send, Position::first, "*", 12},
    {0x01, "RC SEND Middle", Kind::send, Position::middle, "*", 12},
    {0x02, "RC SEND Last", Kind::send, Position::last, "*", 12},
    {0x03, "RC SEND Last with Immediate", Kind::send, Position::last, "imm *", 16},
    {0x04, "RC SEND Only", Kind::send, Position::only, "*", 12},
    {0x05, "RC SEND Only with Immediate", Kind::send, Position::only, "imm *", 16},
    {0x06, "RC RDMA WRITE First", Kind::write, Position::first, "reth *", 28},
    {0x07, "RC RDMA WRITE Middle", Kind::write, Position::middle, "*", 12},
    {0x08, "RC RDMA WRITE Last", Kind::write, Position::last, "*", 12},
    {0x09, "RC RDMA WRITE Last with Immediate", Kind::write, Position::last, "imm *", 16},
    {0x0A, "RC RDMA WRITE Only", Kind::write, Position::only, "reth *", 28},
    {0x0B, "RC RDMA WRITE Only with Immediate", Kind::write, Position::only, "reth imm *", 32},
    {0x0C, "RC RDMA READ Request", Kind::read_request, Position::only, "reth", 28},
    {0x0D, "RC RDMA READ Response First", Kind::read_response, Position::first, "aeth *", 16},
    {0x0E, "RC RDMA READ Response Middle", Kind::read_response, Position::middle, "*", 12},
    {0x0F, "RC RDMA READ Response Last", Kind::read_response, Position::last, "aeth *", 16},
    {0x10, "RC RDMA READ Response Only", Kind::read_response, Position::only, "aeth *", 16},
    {0x11, "RC Acknowledge", Kind::acknowledge, Position::only, "aeth", 16},
    {0x12, "RC ATOMIC Acknowledge", Kind::atomic_acknowledge, Position::only, "aeth atomicack", 24},
    {0x13, "RC CmpSwap", Kind::atomic, Position::only, "atomic", 40},
    {0x14, "RC FetchAdd", Kind::atomic, Position::only, "atomic", 40},
    {0x16, "RC SEND Last with Invalidate", Kind::send, Position::last, "ieth *", 16},
    {0x17, "RC SEND Only with Invalidate", Kind::send, Position::only, "ieth *", 16},
    {0x1C, "RC FLUSH", Kind::flush, Position::only, "feth reth", 32},
    {0x1D, "RC ATOMIC WRITE", Kind::atomic_write, Position::only, "reth *", 28},

    {0x20, "UC SEND First", Kind::send, Position::first, "*", 12},
    {0x21, "UC SEND Middle", Kind::send, Position::middle, "*", 12},
    {0x22, "UC SEND Last", Kind::send, Position::last, "*", 12},
    {0x23, "UC SEND Last with Immediate", Kind::send, Position::last, "imm *", 16},
    {0x24, "UC SEND Only", Kind::send, Position::only, "*", 12},
    {0x25, "UC SEND Only with Immediate", Kind::send, Position::only, "imm *", 16},
    {0x26, "UC RDMA WRITE First", Kind::write, Position::first, "reth *", 28},
    {0x27, "UC RDMA WRITE Middle", Kind::write, Position::middle, "*", 12},
    {0x28, "UC RDMA WRITE Last", Kind::write, Position::last, "*", 12},
    {0x29, "UC RDMA WRITE Last with Immediate", Kind::write, Position::last, "imm *", 16},
    {0x2A, "UC RDMA WRITE Only", Kind::write, Position::only, "reth *", 28},
    {0x2B, "UC RDMA WRITE Only with Immediate", Kind::write, Position::only, "reth imm *", 32},

    {0x64, "UD SEND Only", Kind::send, Position::only, "deth *", 20},
    {0x65, "UD SEND Only with Immediate", Kind::send, Position::only, "deth imm *", 24},

    {0x80, "CN", Kind::congestion_notification, Position::only, "", 12},
    {0x81, "CNP", Kind::congestion_notification, Position::only, "", 28},

    {0xA0, "XRC SEND First", Kind::send, Position::first, "xrceth *", 16},
    {0xA1, "XRC SEND Middle", Kind::send, Position::middle, "xrceth *", 16},
    {0xA2, "XRC SEND Last", Kind::send, Position::last, "xrceth *", 16},
    {0xA3, "XRC SEND Last with Immediate", Kind::send, Position::last, "xrceth imm *", 20},
    {0xA4, "XRC SEND Only", Kind::send, Position::only, "xrceth *", 16},
    {0xA5, "XRC SEND Only with Immediate", Kind::send, Position::only, "xrceth imm *", 20},
    {0xA6, "XRC RDMA WRITE First", Kind::write, Position::first, "xrceth reth *", 32},
    {0xA7, "XRC RDMA WRITE Middle", Kind::write, Position::middle, "xrceth *", 16},
    {0xA8, "XRC RDMA WRITE Last", Kind::write, Position::last, "xrceth *", 16},
    {0xA9, "XRC RDMA WRITE Last with Immediate", Kind::write, Position::last, "xrceth imm *", 20},
    {0xAA, "XRC RDMA WRITE Only", Kind::write, Position::only, "xrceth reth *", 32},
    {0xAB, "XRC RDMA WRITE Only with Immediate", Kind::write, Position::only, "xrceth reth imm *",
     36},
    {0xAC, "XRC RDMA READ Request", Kind::read_request, Position::only, "xrceth reth", 32},
    {0xAD, "XRC RDMA READ Response First", Kind::read_response, Position::first, "aeth *", 16},
    {0xAE, "XRC RDMA READ Response Middle", Kind::read_response, Position::middle, "*", 12},
    {0xAF, "XRC RDMA READ Response Last", Kind::read_response, Position::last, "aeth *", 16},
    {0xB0, "XRC RDMA READ Response Only", Kind::read_response, Position::only, "aeth *", 16},
    {0xB1, "XRC Acknowledge", Kind::acknowledge, Position::only, "aeth", 16},
    {0xB2, "XRC ATOMIC Acknowledge", Kind::atomic_acknowledge, Position::only, "aeth atomicack",
     24},
    {0xB3, "XRC CmpSwap", Kind::atomic, Position::only, "xrceth atomic", 44},
    {0xB4, "XRC FetchAdd", Kind::atomic, Position::only, "xrceth atomic", 44},
    {0xB6, "XRC SEND Last with Invalidate", Kind::send, Position::last, "xrceth ieth *", 20},
    {0xB7, "XRC SEND Only with Invalidate", Kind::send, Position::only, "xrceth ieth *", 20},
    {0xBC, "XRC FLUSH", Kind::flush, Position::only, "xrceth feth reth", 36},
    {0xBD, "XRC ATOMIC WRITE", Kind::atomic_write, Position::only, "xrceth reth *", 32},
    // Not in IBTA's table: opcodes of the range left to manufacturers.
    {0xD1, "Selective Acknowledge", Kind::selective_acknowledge, Position::only, "aeth saeth", 20},
    {0xE1, "SRD SEND Segment", Kind::send, Position::middle, "srdeth qkey segment *", 40 - 4},
    {0xE3, "SRD SEND Segment with Immediate", Kind::send, Position::middle,
     "srdeth qkey segment imm *", 40},
    {0xE4, "SRD SEND Only", Kind::send, Position::only, "srdeth qkey *", 28},
    {0xE5, "SRD SEND Only with Immediate", Kind::send, Position::only, "srdeth qkey imm *", 32},
    {0xE7, "SRD RDMA WRITE Segment", Kind::write, Position::middle, "srdeth reth *", 40},
    {0xE9, "SRD RDMA WRITE Immediate", Kind::write, Position::last, "srdeth qkey segment imm", 40},
    {0xF1, "SRD Acknowledge", Kind::acknowledge, Position::only, "srdack", 32},
    {0xF8, "SRD Skip", Kind::skip, Position::only, "srdeth", 24},
};

std::string headers_of(const OpcodeInfo& row) {
  std::string headers;
  const auto add = [&headers](bool present, const char* header) {
    if (present) headers += (headers.empty() ? "" : " ") + std::string(header);
  };
  add(row.srdeth, "srdeth");
  add(row.srd_qkey, "qkey");
  add(row.srd_segment, "segment");
  add(row.srd_ack, "srdack");
  add(row.deth, "deth");
  add(row.xrceth, "xrceth");
  add(row.feth, "feth");
  add(row.reth, "reth");
  add(row.atomic_eth, "atomic");
  add(row.aeth, "aeth");
  add(row.atomic_ack_eth, "atomicack");
  add(row.immediate, "imm");
  add(row.invalidate, "ieth");
  add(row.saeth, "saeth");
  add(row.payload, "*");
  return headers;
}

TEST(OpcodeTest, every_row_of_the_table_is_as_the_specification_has_it) {
  std::map<unsigned, Expected> rows;
  for (const Expected& row : expected) rows.emplace(row.code, row);
  ASSERT_EQ(rows.size(), std::size(expected));

  for (unsigned code = 0; code < 256; ++code) {
    SCOPED_TRACE(testing::Message() << "opcode 0x" << std::hex << code);
    const OpcodeInfo& row = info(Opcode(code));
    const auto found = rows.find(code);
    if (found == rows.end()) {
      EXPECT_EQ(row.kind, Kind::none);
      EXPECT_EQ(headers_of(row), "");
      EXPECT_EQ(row.header_bytes, 0);
      EXPECT_EQ(name(Opcode(code)), "");
      continue;
    }
    EXPECT_EQ(row.kind, found->second.kind);
    EXPECT_EQ(row.position, found->second.position);
    EXPECT_EQ(headers_of(row), found->second.headers);
    EXPECT_EQ(row.header_bytes, found->second.header_bytes);
    EXPECT_EQ(name(Opcode(code)), found->second.name);
  }
}

TEST(OpcodeTest, a_row_says_which_usual_set_of_extension_headers_it_has) {
  const std::map<std::string, Extensions> usual = {
      {"", Extensions::none},       {"*", Extensions::none},    {"reth", Extensions::reth},
      {"reth *", Extensions::reth}, {"aeth", Extensions::aeth}, {"aeth *", Extensions::aeth}};
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeInfo& row = info(Opcode(code));
    if (row.kind == Kind::none) continue;
    SCOPED_TRACE(name(Opcode(code)));
    const auto found = usual.find(headers_of(row));
    const bool is_usual = found != usual.end() && !row.cnp_reserved;
    EXPECT_EQ(row.extensions, is_usual ? found->second : Extensions::others);
  }
}

TEST(OpcodeTest, an_opcode_is_its_transport_and_its_operation) {
  for (unsigned code = 0; code < 256; ++code) {
    const Opcode value{static_cast<std::uint8_t>(code)};
    EXPECT_EQ(opcode(transport_of(value), operation_of(value)), value);
  }
  EXPECT_EQ(opcode(TransportClass::xrc, Operation::fetch_add), Opcode(0xB4));
  EXPECT_EQ(transport_of(congestion_notification), TransportClass::cnp);
  EXPECT_EQ(transport_of(infiniband_congestion_notification), TransportClass::cnp);
}

TEST(OpcodeTest, positions_say_where_messages_start_and_end) {
  const auto row = [](Operation operation) { return info(opcode(TransportClass::rc, operation)); };
  EXPECT_TRUE(row(Operation::send_first).starts_message());
  EXPECT_FALSE(row(Operation::send_first).ends_message());
  EXPECT_FALSE(row(Operation::write_middle).starts_message());
  EXPECT_FALSE(row(Operation::write_middle).ends_message());
  EXPECT_FALSE(row(Operation::send_last_with_invalidate).starts_message());
  EXPECT_TRUE(row(Operation::send_last_with_invalidate).ends_message());
  EXPECT_TRUE(row(Operation::atomic_write).starts_message());
  EXPECT_TRUE(row(Operation::atomic_write).ends_message());
}

}  // namespace
}  // namespace tulle::wire
