#include "rdma/optional/iwarp/deframer.h"

#include <gtest/gtest.h>

#include "rdma/optional/iwarp/protocol_test.h"

namespace tulle::transport::iwarp {
namespace {

using Found = Deframer::Found;
using testing::bytes_of;

ddp::Header header() { return header_of(rdmap::Opcode::write); }

TEST(IwarpDeframer, FindsFpdusWhereverTheStreamIsCut) {
  Bytes stream;
  for (std::uint32_t bytes = 0; bytes < 9; ++bytes) {
    const Bytes one = fpdu(header(), bytes_of(bytes));
    stream.insert(stream.end(), one.begin(), one.end());
  }
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    SCOPED_TRACE(step);
    Deframer deframer;
    std::uint32_t found = 0;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      StreamPart part{std::span(stream).subspan(at, std::min(step, stream.size() - at)), 0};
      for (Ulpdu ulpdu; deframer.next(part, true, ulpdu) == Found::ulpdu;) {
        const auto data = ulpdu.bytes.subspan(ddp::tagged_header_bytes);
        const Bytes expected = bytes_of(found++);
        EXPECT_TRUE(std::equal(data.begin(), data.end(), expected.begin(), expected.end()));
      }
      EXPECT_EQ(part.size(), 0u);
    }
    EXPECT_EQ(found, 9u);
  }
}

TEST(IwarpDeframer, WhatLiesWholeIsNotCopied) {
  const Bytes stream = fpdu(header(), bytes_of(20));
  Deframer deframer;
  StreamPart part{stream, 0};
  Ulpdu ulpdu;
  ASSERT_EQ(deframer.next(part, true, ulpdu), Found::ulpdu);
  EXPECT_EQ(ulpdu.bytes.data(), stream.data() + mpa::length_bytes);
}

TEST(IwarpDeframer, TheLongestFpduComesInParts) {
  const Bytes stream = fpdu(header(), bytes_of(0xFFFF - ddp::tagged_header_bytes));
  Deframer deframer;
  Ulpdu ulpdu;
  StreamPart first{std::span(stream).first(70), 0};
  EXPECT_EQ(deframer.next(first, true, ulpdu), Found::nothing);
  StreamPart rest{std::span(stream).subspan(70), 0};
  ASSERT_EQ(deframer.next(rest, true, ulpdu), Found::ulpdu);
  EXPECT_EQ(ulpdu.size(), 0xFFFFu);
}

TEST(IwarpDeframer, GhostsBelongBehindBytes) {
  const Bytes whole = fpdu(header(), bytes_of(100));
  const auto head = std::span(whole).first(mpa::length_bytes + ddp::tagged_header_bytes);
  const auto ghosts = static_cast<std::uint32_t>(whole.size() - head.size());
  Deframer deframer;
  Ulpdu ulpdu;
  StreamPart part{head, ghosts};
  ASSERT_EQ(deframer.next(part, true, ulpdu), Found::ulpdu);
  EXPECT_EQ(ulpdu.bytes.size(), ddp::tagged_header_bytes);
  EXPECT_EQ(ulpdu.size(), ddp::tagged_header_bytes + 100u);
  EXPECT_EQ(part.size(), 0u);

  part = {head.first(1), ghosts};
  EXPECT_EQ(deframer.next(part, true, ulpdu), Found::bad_ghost) << "a length is no ghost";
  Deframer other;
  part = {head, 1};
  EXPECT_EQ(other.next(part, true, ulpdu), Found::nothing);
  part = {head, 0};
  EXPECT_EQ(other.next(part, true, ulpdu), Found::bad_ghost) << "bytes behind ghosts";
}

TEST(IwarpDeframer, TheCrcIsLookedAtWhereAgreed) {
  Bytes damaged = fpdu(header(), bytes_of(20));
  damaged[25] ^= std::byte{1};
  for (const bool checked : {true, false}) {
    Deframer deframer;
    Ulpdu ulpdu;
    StreamPart part{damaged, 0};
    EXPECT_EQ(deframer.next(part, checked, ulpdu), checked ? Found::bad_crc : Found::ulpdu);
  }
}

}  // namespace
}  // namespace tulle::transport::iwarp
