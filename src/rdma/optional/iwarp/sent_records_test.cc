#include "rdma/optional/iwarp/sent_records.h"

#include <gtest/gtest.h>

#include <vector>

namespace tulle::transport::iwarp {
namespace {

namespace ddp = wire::ddp;
namespace mpa = wire::mpa;

MadeRecord record_of(std::uint32_t data_bytes) {
  ddp::Header header;
  header.tagged = true;
  header.last = true;
  MadeRecord made;
  made.data_bytes = data_bytes;
  made.put_head(header);
  return made;
}

TEST(SentRecords, AreForgottenWhenAllTheirBytesAreAcknowledged) {
  SentRecords records;
  MadeRecord first = record_of(5), second = record_of(100);
  first.address = 1;
  second.address = 2;
  const Record one = records.push(first), other = records.push(second);
  EXPECT_EQ(one.number, 0u);
  EXPECT_EQ(one.bytes, mpa::fpdu_bytes(ddp::tagged_header_bytes + 5));
  EXPECT_EQ(other.number, 1u);
  EXPECT_FALSE(records.pop_acknowledged(one.bytes - 1).has_value());
  const auto popped = records.pop_acknowledged(one.bytes + other.bytes - 1);
  ASSERT_TRUE(popped.has_value());
  EXPECT_EQ(popped->address, 1u);
  EXPECT_FALSE(records.pop_acknowledged(one.bytes + other.bytes - 1).has_value());
  EXPECT_EQ(records[1].address, 2u);
  EXPECT_TRUE(records.pop_acknowledged(one.bytes + other.bytes).has_value());
  EXPECT_TRUE(records.empty());
}

TEST(SentRecordsDeathTest, OneThatIsAcknowledgedIsGone) {
  SentRecords records;
  MadeRecord made = record_of(5);
  const Record sent = records.push(made);
  EXPECT_TRUE(records.pop_acknowledged(sent.bytes).has_value());
  EXPECT_DEATH(static_cast<void>(records[sent.number]), "internal error");
}

TEST(SentRecords, TheHeadHasTheLengthOfWhatFollows) {
  const MadeRecord made = record_of(300);
  const std::uint32_t length = ddp::tagged_header_bytes + 300;
  EXPECT_EQ(made.head[0], static_cast<std::byte>(length >> 8));
  EXPECT_EQ(made.head[1], static_cast<std::byte>(length & 0xFF));
  EXPECT_EQ(made.head_bytes, mpa::length_bytes + ddp::tagged_header_bytes);
}

TEST(SentRecords, EndInAPadAndTheCrc) {
  const std::vector<std::byte> data(5, std::byte{7});
  const MadeRecord made = record_of(5);
  const auto filled = [&] {
    FilledRecord out;
    out.pieces[0] = std::span(made.head).first(made.head_bytes);
    out.pieces[1] = data;
    out.piece_count = 2;
    return out;
  };
  FilledRecord with = filled(), without = filled();
  made.end(true, with);
  made.end(false, without);
  ASSERT_EQ(with.piece_count, 3u);
  std::uint32_t bytes = 0;
  for (int i = 0; i < 3; ++i) bytes += static_cast<std::uint32_t>(with.pieces[i].size());
  EXPECT_EQ(bytes, mpa::fpdu_bytes(ddp::tagged_header_bytes + 5));
  mpa::Crc crc;
  for (int i = 0; i < 2; ++i) crc.update(with.pieces[i]);
  crc.update(with.pieces[2].first(made.pad_bytes()));
  EXPECT_EQ(mpa::take_crc(with.pieces[2].last<mpa::crc_bytes>()), crc.value());
  EXPECT_EQ(mpa::take_crc(without.pieces[2].last<mpa::crc_bytes>()), 0u);
}

TEST(SentRecords, BehindGhostsThePadAndTheCrcAreGhosts) {
  const MadeRecord made = record_of(5);
  FilledRecord filled;
  filled.piece_count = 1;
  filled.ghost_bytes = 5;
  made.end(true, filled);
  EXPECT_EQ(filled.piece_count, 1u);
  EXPECT_EQ(filled.ghost_bytes, 5 + made.pad_bytes() + mpa::crc_bytes);
}

}  // namespace
}  // namespace tulle::transport::iwarp
