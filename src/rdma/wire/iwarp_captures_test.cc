// Reads and writes again the streams that siw on two Linux kernels (6.1) exchanged over TCP. Each
// file is named after the event that it shows.

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "places.h"
#include "rdma/wire/ddp.h"
#include "rdma/wire/mpa.h"
#include "rdma/wire/rdmap.h"
#include "rdma/wire/tcp_streams_test.h"

namespace tulle::wire {
namespace {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

// The contents of one stream.
struct Read {
  mpa::StartFrame start;
  mpa::EnhancedSetup setup;
  std::map<rdmap::Opcode, std::size_t> segments;
  std::vector<rdmap::Terminate> terminates;
  std::size_t checked = 0;  // FPDUs whose CRC was checked
};

// Reads the start frame and the enhanced set-up, with the private data behind it.
void read_start(View& stream, Bytes& written, Read& read) {
  ASSERT_GE(stream.size(), mpa::start_frame_bytes);
  const auto start = mpa::decode_start(stream.first<mpa::start_frame_bytes>());
  ASSERT_TRUE(start.has_value());
  read.start = *start;
  written.resize(mpa::start_frame_bytes);
  mpa::encode(*start, std::span(written).first<mpa::start_frame_bytes>());
  stream = stream.subspan(mpa::start_frame_bytes);
  ASSERT_LE(start->private_data_bytes, stream.size());
  ASSERT_TRUE(start->flags.enhanced);
  ASSERT_GE(start->private_data_bytes, mpa::enhanced_setup_bytes);
  read.setup = mpa::decode_enhanced(stream.first<mpa::enhanced_setup_bytes>());
  written.resize(mpa::start_frame_bytes + mpa::enhanced_setup_bytes);
  mpa::encode(read.setup, std::span(written).last<mpa::enhanced_setup_bytes>());
  const View rest = stream.first(start->private_data_bytes).subspan(mpa::enhanced_setup_bytes);
  written.insert(written.end(), rest.begin(), rest.end());
  stream = stream.subspan(start->private_data_bytes);
}

Bytes read_terminate(View data, Read& read) {
  std::size_t used = 0;
  const auto terminate = rdmap::decode_terminate(data, used);
  EXPECT_TRUE(terminate.has_value());
  if (!terminate) return {};
  read.terminates.push_back(*terminate);
  Bytes written(rdmap::terminate_bytes_max);
  EXPECT_EQ(rdmap::encode(*terminate, written), used);
  written.resize(used);
  written.insert(written.end(), data.begin() + static_cast<std::ptrdiff_t>(used), data.end());
  return written;
}

void read_segment(View segment, Bytes& written, Read& read) {
  ddp::Header header;
  ASSERT_TRUE(ddp::decode(segment, header));
  EXPECT_EQ(header.version, ddp::version);
  const auto control = rdmap::Control::decoded(header.ulp_control);
  EXPECT_EQ(control.version, rdmap::version);
  EXPECT_EQ(control.encoded(), header.ulp_control);
  const rdmap::OpcodeInfo* info = rdmap::info(control.opcode);
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->tagged, header.tagged);
  EXPECT_TRUE(header.tagged || info->queue == header.queue);
  ++read.segments[control.opcode];

  const std::size_t start = written.size();
  written.resize(start + header.bytes());
  ddp::encode(header, std::span(written).subspan(start));
  const View data = segment.subspan(header.bytes());
  Bytes again(data.begin(), data.end());
  if (control.opcode == rdmap::Opcode::read_request) {
    ASSERT_EQ(data.size(), rdmap::read_request_bytes);
    const auto request = rdmap::decode_read_request(data.first<rdmap::read_request_bytes>());
    rdmap::encode(request, std::span(again).first<rdmap::read_request_bytes>());
  } else if (control.opcode == rdmap::Opcode::terminate) {
    again = read_terminate(data, read);
  }
  written.insert(written.end(), again.begin(), again.end());
}

Read read_stream(const TcpStream& from, bool crc) {
  Read read;
  View stream = from.bytes;
  Bytes written;
  read_start(stream, written, read);
  while (!stream.empty() && !testing::Test::HasFatalFailure()) {
    const std::uint32_t length = tcp_streams::number(stream, 0, 2);
    const std::uint32_t fpdu = mpa::fpdu_bytes(length);
    EXPECT_LE(fpdu, stream.size());
    if (fpdu > stream.size()) break;
    const std::size_t start = written.size();
    written.push_back(static_cast<std::byte>(length >> 8));
    written.push_back(static_cast<std::byte>(length));
    read_segment(stream.subspan(mpa::length_bytes, length), written, read);
    // siw pads with the bytes that lay there before instead of zeros, and its CRC covers them.
    const auto pad = stream.subspan(mpa::length_bytes + length, mpa::pad_bytes(length));
    written.insert(written.end(), pad.begin(), pad.end());
    const auto trailer = stream.subspan(fpdu - mpa::crc_bytes).first<mpa::crc_bytes>();
    mpa::Crc sum;
    sum.update(std::span(written).subspan(start));
    if (crc) {
      EXPECT_EQ(mpa::take_crc(trailer), sum.value());
      ++read.checked;
    }
    written.resize(written.size() + mpa::crc_bytes);
    if (crc) mpa::put_crc(sum.value(), std::span(written).last<mpa::crc_bytes>());
    stream = stream.subspan(fpdu);
  }
  EXPECT_EQ(written, from.bytes);
  return read;
}

std::pair<Read, Read> read_connection(const IwarpConnection& connection) {
  EXPECT_TRUE(connection.request.complete && connection.reply.complete);
  const auto start_of = [](const TcpStream& stream) {
    return mpa::decode_start(View(stream.bytes).first<mpa::start_frame_bytes>());
  };
  const auto request = start_of(connection.request), reply = start_of(connection.reply);
  EXPECT_TRUE(request && reply && !request->is_reply && reply->is_reply);
  // RFC 5044 7.1.1: both ends use CRCs unless neither asks for them.
  const bool crc = request->flags.crc || reply->flags.crc;
  return {read_stream(connection.request, crc), read_stream(connection.reply, crc)};
}

TEST(IwarpCapturesTest, every_fpdu_is_read_and_written_again_byte_for_byte) {
  std::map<rdmap::Opcode, std::size_t> segments;
  std::size_t checked = 0;
  const auto files = iwarp_captures();
  EXPECT_EQ(files.size(), 19u);
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename());
    const auto connections = iwarp_connections_of(file);
    EXPECT_FALSE(connections.empty());
    for (const IwarpConnection& connection : connections) {
      const auto [client, server] = read_connection(connection);
      if (testing::Test::HasFatalFailure()) return;
      for (const Read& read : {client, server}) {
        EXPECT_EQ(read.start.revision, 2);
        EXPECT_FALSE(read.start.flags.markers || read.start.flags.rejected);
        for (const auto& [opcode, count] : read.segments) segments[opcode] += count;
        checked += read.checked;
      }
    }
  }
  for (const auto opcode :
       {rdmap::Opcode::write, rdmap::Opcode::read_request, rdmap::Opcode::read_response,
        rdmap::Opcode::send, rdmap::Opcode::terminate}) {
    EXPECT_GT(segments[opcode], 2u) << rdmap::info(opcode)->name;
  }
  EXPECT_GT(checked, 50u) << "else this test has shown little of the CRC";
}

std::pair<Read, Read> named(const std::string& name) {
  const auto connections = iwarp_connections_of(TULLE_TEST_DATA "/captures/" + name + ".pcap");
  EXPECT_EQ(connections.size(), 1u);
  return read_connection(connections.at(0));
}

TEST(IwarpCapturesTest, ready_to_receive_is_a_write_of_no_bytes_where_peers_are_equal) {
  const auto [client, server] = named("iwarp_read_p2p");
  EXPECT_TRUE(client.setup.peer_to_peer && client.setup.ready_by_write);
  EXPECT_TRUE(server.setup.peer_to_peer && server.setup.ready_by_write);
  EXPECT_EQ(client.segments.at(rdmap::Opcode::write), 1u);
  EXPECT_EQ(named("iwarp_read").first.segments.count(rdmap::Opcode::write), 0u);
}

// siw writes the halves of TERMINATE's first byte in the wrong order, and its flags into reserved
// bits. A byte that RFC 5040 reads as layer 1 and type 0 is meant as layer 0 and type 1, the error
// of a READ with a wrong STag.
TEST(IwarpCapturesTest, terminates_are_read_as_the_specification_has_them) {
  const auto read = named("iwarp_term_bad_stag_read").second.terminates;
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].code, (rdmap::TerminateCode{rdmap::Layer::ddp, 0, 0}));
  EXPECT_EQ(read[0].reserved, 0x0700);
  EXPECT_FALSE(read[0].segment_bytes || read[0].ddp_header || read[0].read_request);
  const auto written = named("iwarp_term_bad_stag_write").second.terminates;
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].code.layer, rdmap::Layer::ddp);
  EXPECT_EQ(written[0].code.type, 1);
  const auto bounds = named("iwarp_term_out_of_bounds").second.terminates;
  ASSERT_EQ(bounds.size(), 1u);
  EXPECT_EQ(bounds[0].code, rdmap::error::tagged_bounds);
}

}  // namespace
}  // namespace tulle::wire
