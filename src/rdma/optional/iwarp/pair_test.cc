// Tests two engines with random work and a stream between them that is cut anywhere. The promises
// of the verbs must hold whatever is drawn. A run that fails prints its seed; TULLE_SEED repeats a
// run.

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "rdma/optional/iwarp/protocol_test.h"

namespace tulle::transport::iwarp {
namespace {

using testing::iova;
using verbs::CompletionStatus;
using verbs::SendFlag;
using verbs::SendOpcode;

constexpr std::uint32_t block_bytes = 900;  // three segments and a bit
constexpr std::uint32_t blocks = 8;

// The memory has three parts: one for data to send and the results of READs, one that the peer
// writes to and reads from, and one that receive requests fill. At most one request at a time uses
// a block of the first two.
struct Side : End {
  Side() : End(deep()) { connect(); }
  static testing::Options deep() {
    testing::Options options;
    options.receive_depth = 16;
    return options;
  }
  static std::uint64_t local(std::uint32_t block) { return std::uint64_t{block} * block_bytes; }
  static std::uint64_t remote(std::uint32_t block) { return 8'192 + local(block); }
  static std::uint64_t receive(std::uint32_t block) { return 16'384 + local(block); }

  std::span<std::byte> at(std::uint64_t offset, std::uint32_t bytes) {
    return std::span(memory).subspan(offset, bytes);
  }
};

struct Asked {
  std::uint64_t wr_id = 0;
  SendOpcode opcode{};
  std::uint32_t block = 0;
  std::uint32_t bytes = 0;
  Bytes data;  // the data at the time of posting
};

// One direction: the requests that `from` makes to `to`, and the checks of their effects.
class Asker {
 public:
  Asker(Side& from, Side& to, Random& random) : from_(from), to_(to), random_(random) {}

  void post_receives() {
    while (posted_ - received_ < blocks) {
      const verbs::Sge two[] = {to_.sge(Side::receive(posted_ % blocks), 300),
                                to_.sge(Side::receive(posted_ % blocks) + 300, 600)};
      to_.must(to_.qp->post_receive({receive_bit | posted_++, two}));
    }
  }

  void ask() {
    const std::uint32_t block = asked_ % blocks;
    if (under_way_.size() == blocks || sends_ - received_ == blocks) return;
    Asked asked;
    asked.wr_id = asked_++;
    asked.block = block;
    asked.bytes =
        static_cast<std::uint32_t>(random_.below(4) == 0 ? 0 : random_.below(block_bytes));
    const auto draw = random_.below(3);
    asked.opcode = draw == 0 ? SendOpcode::send : draw == 1 ? SendOpcode::write : SendOpcode::read;
    for (auto& byte : from_.at(Side::local(block), asked.bytes)) {
      byte = static_cast<std::byte>(random_.next());
    }
    // For a READ, this is the peer's memory when the answer is made: nothing else writes this
    // block.
    const auto source = asked.opcode == SendOpcode::read
                            ? to_.at(Side::remote(block), asked.bytes)
                            : from_.at(Side::local(block), asked.bytes);
    if (asked.opcode == SendOpcode::read) {
      for (auto& byte : source) byte = static_cast<std::byte>(random_.next());
    }
    asked.data.assign(source.begin(), source.end());
    post(asked);
    if (asked.opcode == SendOpcode::send) {
      ++sends_;
      expected_.push_back(asked);
    }
    under_way_.push_back(asked);
  }

  void check_sent(const verbs::Completion& completion) {
    ASSERT_EQ(completion.status, CompletionStatus::success);
    ASSERT_FALSE(under_way_.empty());
    const Asked asked = under_way_.front();
    under_way_.pop_front();
    ASSERT_EQ(completion.wr_id, asked.wr_id) << "completions come in the order of posting";
    ++done_;
    if (asked.opcode == SendOpcode::send) return;
    const auto there = asked.opcode == SendOpcode::write
                           ? to_.at(Side::remote(asked.block), asked.bytes)
                           : from_.at(Side::local(asked.block), asked.bytes);
    ASSERT_TRUE(std::equal(there.begin(), there.end(), asked.data.begin(), asked.data.end()));
  }

  void check_received(const verbs::Completion& completion) {
    ASSERT_EQ(completion.status, CompletionStatus::success);
    ASSERT_FALSE(expected_.empty());
    const Asked asked = expected_.front();
    expected_.pop_front();
    ASSERT_EQ(completion.wr_id, receive_bit | received_);
    ASSERT_EQ(completion.byte_length, asked.bytes);
    const auto there = to_.at(Side::receive(received_ % blocks), asked.bytes);
    ASSERT_TRUE(std::equal(there.begin(), there.end(), asked.data.begin(), asked.data.end()));
    ++received_;
  }

  bool is_idle() const { return under_way_.empty() && expected_.empty(); }
  std::uint64_t done() const { return done_; }
  static constexpr std::uint64_t receive_bit = 1ull << 40;

 private:
  void post(const Asked& asked) {
    verbs::SendRequest request;
    request.wr_id = asked.wr_id;
    request.opcode = asked.opcode;
    request.flags = SendFlag::signaled;
    if (random_.below(8) == 0) request.flags |= SendFlag::fence;
    request.rkey = to_.region.rkey();
    request.remote_address = iova + Side::remote(asked.block);
    const auto cut = static_cast<std::uint32_t>(random_.below(asked.bytes + 1));
    const verbs::Sge two[] = {from_.sge(Side::local(asked.block), cut),
                              from_.sge(Side::local(asked.block) + cut, asked.bytes - cut)};
    request.sges = two;
    from_.must(from_.qp->post_send(request));
  }

  Side& from_;
  Side& to_;
  Random& random_;
  std::uint64_t asked_ = 0, done_ = 0, sends_ = 0, posted_ = 0, received_ = 0;
  std::deque<Asked> under_way_, expected_;
};

void look(Side& side, Asker& own, Asker& peers) {
  for (const auto& completion : side.completions()) {
    if ((completion.wr_id & Asker::receive_bit) != 0) {
      peers.check_received(completion);
    } else {
      own.check_sent(completion);
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void play(std::uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "TULLE_SEED=" << seed);
  Random random(seed);
  Side one, other;
  Wire there(one, other, random), back(other, one, random);
  Asker asks(one, other, random), answers(other, one, random);
  for (int i = 0; i < 2'000 || !asks.is_idle() || !answers.is_idle(); ++i) {
    ASSERT_LT(i, 100'000) << "it hangs";
    asks.post_receives();
    answers.post_receives();
    if (i < 2'000 && random.below(3) == 0) (random.below(2) == 0 ? asks : answers).ask();
    (random.below(2) == 0 ? there : back).step();
    look(one, asks, answers);
    look(other, answers, asks);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(asks.done() + answers.done(), 50u);
  EXPECT_EQ(one.qp->state(), verbs::QpState::rts);
  EXPECT_EQ(other.qp->state(), verbs::QpState::rts);
}

TEST(IwarpPair, RandomWorkOnAStreamThatIsCutAnywhere) {
  if (const char* given = std::getenv("TULLE_SEED")) return play(std::stoull(given));
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    play(seed);
    if (::testing::Test::HasFailure()) return;
  }
  play(std::random_device()());
}

// One bit of the stream is wrong. Nothing of that FPDU is placed, and both ends learn of it.
TEST(IwarpPair, DamageEndsBothEnds) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Random random(seed);
    Side one, other;
    Asker asks(one, other, random);
    asks.post_receives();
    Bytes stream;
    while (stream.empty()) {
      asks.ask();
      while (const auto bytes = one.next())
        stream.insert(stream.end(), bytes->begin(), bytes->end());
    }
    // The bit is not in a length: with a wrong length, another FPDU may seem to begin, or none to
    // end.
    const std::size_t bit = 16 + random.below(8 * stream.size() - 16);
    const bool in_length = [&] {
      std::size_t at = 0;
      while (at + 2 <= stream.size()) {
        if (bit / 8 - at < 2) return true;
        at += mpa::fpdu_bytes(std::to_integer<std::uint32_t>(stream[at]) << 8 |
                              std::to_integer<std::uint32_t>(stream[at + 1]));
      }
      return false;
    }();
    if (in_length) continue;
    const Bytes before = other.memory;
    stream[bit / 8] ^= std::byte{1} << (bit % 8);
    other.take(stream);
    EXPECT_EQ(other.qp->state(), verbs::QpState::error);
    const auto told = other.told();
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->code, rdmap::error::crc);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 16'384, other.memory.begin()) ||
                bit / 8 > segment_bytes)
        << "a part of the damaged message was placed";
  }
}

}  // namespace
}  // namespace tulle::transport::iwarp
