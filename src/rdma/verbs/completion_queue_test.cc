#include "rdma/verbs/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace tulle::verbs {
namespace {

Completion completion(std::uint64_t wr_id, bool solicited = false,
                      CompletionStatus status = CompletionStatus::success,
                      QpNumber qp = QpNumber(1)) {
  Completion out;
  out.wr_id = wr_id;
  out.solicited = solicited;
  out.status = status;
  out.qp = qp;
  return out;
}

std::vector<std::uint64_t> drain(CompletionQueue& cq) {
  std::vector<std::uint64_t> out;
  for (std::array<Completion, 3> batch;;) {
    const std::uint32_t count = cq.poll(batch);
    for (std::uint32_t i = 0; i < count; ++i) out.push_back(batch[i].wr_id);
    if (count == 0) return out;
  }
}

TEST(CompletionQueue, FirstInFirstOut) {
  CompletionEvents events;
  CompletionQueue cq(4, events, nullptr);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(cq.push(completion(2 * i)));
    EXPECT_TRUE(cq.push(completion(2 * i + 1)));
    EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{2 * i, 2 * i + 1}));
  }
  std::array<Completion, 0> none;
  EXPECT_EQ(cq.poll(none), 0u);
}

// IBTA 10.2.6.2: a completion that does not fit is lost, and the queue is in error from then on.
// Completions that were queued before stay.
TEST(CompletionQueue, Overrun) {
  CompletionEvents events;
  CompletionQueue cq(2, events, nullptr);
  EXPECT_TRUE(cq.push(completion(1)));
  EXPECT_TRUE(cq.push(completion(2)));
  EXPECT_FALSE(cq.overrun());
  EXPECT_FALSE(cq.push(completion(3)));
  EXPECT_TRUE(cq.overrun());
  EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_FALSE(cq.push(completion(4)));
  EXPECT_TRUE(drain(cq).empty());
}

TEST(CompletionQueue, ResizeKeepsWhatIsQueued) {
  CompletionEvents events;
  CompletionQueue cq(3, events, nullptr);
  for (std::uint64_t i = 0; i < 5; ++i) {
    cq.push(completion(100 + i));
    if (i < 2) drain(cq);
  }
  EXPECT_FALSE(cq.resize(2));
  EXPECT_EQ(cq.capacity(), 3u);
  EXPECT_TRUE(cq.resize(8));
  EXPECT_EQ(cq.capacity(), 8u);
  EXPECT_TRUE(cq.push(completion(105)));
  EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{102, 103, 104, 105}));
  EXPECT_TRUE(cq.resize(1));
  EXPECT_TRUE(cq.push(completion(106)));
  EXPECT_FALSE(cq.push(completion(107)));
}

TEST(CompletionQueue, ResizeToExactlyWhatIsQueued) {
  CompletionEvents events;
  CompletionQueue cq(8, events, nullptr);
  for (std::uint64_t i = 0; i < 3; ++i) cq.push(completion(i));
  EXPECT_FALSE(cq.resize(2));
  EXPECT_TRUE(cq.resize(3));
  EXPECT_EQ(cq.capacity(), 3u);
  EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{0, 1, 2}));
}

TEST(CompletionQueue, OneEventForEachArming) {
  CompletionEvents events;
  CompletionQueue cq(16, events, nullptr);
  cq.push(completion(1));
  EXPECT_EQ(events.take(), nullptr) << "not armed";
  cq.arm(false);
  EXPECT_EQ(events.take(), nullptr) << "what was there before raises none";
  cq.push(completion(2));
  cq.push(completion(3));
  EXPECT_EQ(events.take(), &cq);
  EXPECT_EQ(events.take(), nullptr);
  cq.push(completion(4));
  EXPECT_EQ(events.take(), nullptr) << "disarmed by its event";
}

TEST(CompletionQueue, ArmedQueuesAreCounted) {
  CompletionEvents events;
  CompletionQueue one(16, events, nullptr);
  EXPECT_EQ(events.armed, 0u);
  {
    CompletionQueue other(16, events, nullptr);
    one.arm(true);
    one.arm(false);
    other.arm(true);
    EXPECT_EQ(events.armed, 2u);
    one.push(completion(1));
    EXPECT_EQ(events.armed, 1u) << "disarmed by its event";
    other.push(completion(2));
    EXPECT_EQ(events.armed, 1u) << "not solicited";
  }
  EXPECT_EQ(events.armed, 0u) << "destroyed while it was armed";
}

// IBTA 11.4.2.2.
TEST(CompletionQueue, SolicitedOnly) {
  CompletionEvents events;
  CompletionQueue cq(16, events, nullptr);
  cq.arm(true);
  cq.push(completion(1));
  EXPECT_EQ(events.take(), nullptr);
  cq.push(completion(2, true));
  EXPECT_EQ(events.take(), &cq);
  cq.arm(true);
  cq.push(completion(3, false, CompletionStatus::flushed));
  EXPECT_EQ(events.take(), &cq) << "a failure counts as solicited";
  // The wider request stands, in either order.
  cq.arm(true);
  cq.arm(false);
  cq.push(completion(4));
  EXPECT_EQ(events.take(), &cq);
  cq.arm(false);
  cq.arm(true);
  cq.push(completion(5));
  EXPECT_EQ(events.take(), &cq);
}

TEST(CompletionQueue, EventsInTheOrderInWhichTheyCame) {
  CompletionEvents events;
  std::array<std::unique_ptr<CompletionQueue>, 4> cqs;
  for (auto& cq : cqs) cq = std::make_unique<CompletionQueue>(8, events, nullptr);
  const auto raise = [&](std::size_t i) {
    cqs[i]->arm(false);
    cqs[i]->push(completion(1));
  };
  for (const std::size_t i : {2, 0, 3, 1}) raise(i);
  EXPECT_EQ(events.take(), cqs[2].get());
  EXPECT_EQ(events.take(), cqs[0].get());
  raise(3);  // it waits already, and keeps its place
  raise(2);
  for (const std::size_t i : {3, 1, 2}) EXPECT_EQ(events.take(), cqs[i].get()) << i;
  EXPECT_EQ(events.take(), nullptr);
}

// A destroyed queue owes no event, and the others keep theirs, wherever it stood among them.
TEST(CompletionQueue, ADestroyedQueueLeavesTheEventsOfTheOthers) {
  for (std::size_t destroyed = 0; destroyed < 3; ++destroyed) {
    SCOPED_TRACE(destroyed);
    CompletionEvents events;
    std::array<std::unique_ptr<CompletionQueue>, 4> cqs;
    for (auto& cq : cqs) cq = std::make_unique<CompletionQueue>(4, events, nullptr);
    const auto raise = [&](std::size_t i) {
      cqs[i]->arm(false);
      cqs[i]->push(completion(1));
    };
    for (const std::size_t i : {0, 1, 2}) raise(i);
    cqs[destroyed].reset();
    raise(3);  // comes behind those that are left
    for (std::size_t i = 0; i < 4; ++i) {
      if (i == destroyed) continue;
      EXPECT_EQ(events.take(), cqs[i].get()) << i;
    }
    EXPECT_EQ(events.take(), nullptr);
  }
}

TEST(CompletionQueue, TheOnlyQueueWithAnEventIsDestroyed) {
  CompletionEvents events;
  CompletionQueue other(4, events, nullptr);
  {
    CompletionQueue only(4, events, nullptr);
    only.arm(false);
    only.push(completion(1));
  }
  EXPECT_EQ(events.take(), nullptr);
  other.arm(false);
  other.push(completion(1));
  EXPECT_EQ(events.take(), &other);
}

TEST(CompletionQueue, ForgetsOneQueuePair) {
  CompletionEvents events;
  CompletionQueue cq(8, events, nullptr);
  for (std::uint64_t i = 0; i < 6; ++i) {
    cq.push(completion(i, false, CompletionStatus::success, QpNumber(i % 2 == 0 ? 7 : 8)));
  }
  cq.forget(QpNumber(7));
  EXPECT_EQ(drain(cq), (std::vector<std::uint64_t>{1, 3, 5}));
}

// A clock that ticks with every reading.
class Ticks : public CompletionClock {
 public:
  std::uint64_t nanoseconds() const override { return ++count; }
  mutable std::uint64_t count = 0;
};

TEST(CompletionQueue, StampsAreKeptInStep) {
  CompletionEvents events;
  Ticks ticks;
  CompletionQueue cq(4, events, nullptr);
  EXPECT_EQ(cq.nanoseconds_of_last(), 0u);
  cq.keep_times(ticks);
  std::array<Completion, 1> one;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(cq.push(completion(i, false, CompletionStatus::success, QpNumber(i % 2 + 1))));
  }
  ASSERT_FALSE(cq.push(completion(5)));
  EXPECT_EQ(ticks.count, 4u) << "what is lost is not stamped";
  ASSERT_EQ(cq.poll(one), 1u);
  EXPECT_EQ(cq.nanoseconds_of_last(), 1u);
  ASSERT_TRUE(cq.resize(6));
  cq.forget(QpNumber(2));  // also removes completion 3
  ASSERT_EQ(cq.poll(one), 1u);
  EXPECT_EQ(one[0].wr_id, 2u);
  EXPECT_EQ(cq.nanoseconds_of_last(), 2u);
  std::array<Completion, 4> rest;
  ASSERT_EQ(cq.poll(rest), 1u);
  EXPECT_EQ(rest[0].wr_id, 4u);
  EXPECT_EQ(cq.nanoseconds_of_last(), 4u);
  EXPECT_EQ(cq.poll(rest), 0u);
  EXPECT_EQ(cq.nanoseconds_of_last(), 4u) << "still the last's";
}

constexpr Time period = Time::microseconds(10);

class Moderated : public testing::Test {
 protected:
  Moderated() {
    events.tell = [](void* count) { ++*static_cast<int*>(count); };
    events.tell_context = &told;
    cq.moderate(3, period);
    cq.arm(false);
  }
  CompletionEvents events;
  int told = 0;
  CompletionQueue cq{16, events, nullptr};
};

TEST_F(Moderated, EventWaitsForTheCount) {
  cq.push(completion(1));
  cq.push(completion(2));
  EXPECT_EQ(told, 1);
  EXPECT_EQ(events.take(), nullptr);
  cq.push(completion(3));
  EXPECT_EQ(events.take(), &cq);
  EXPECT_TRUE(events.held.empty());
  for (int i = 0; i < 5; ++i) cq.push(completion(4));
  EXPECT_EQ(events.take(), nullptr) << "one arming, one event";
  EXPECT_EQ(events.raise_due(Time::seconds(1)), Time::never());
}

TEST_F(Moderated, EventWaitsNoLongerThanThePeriod) {
  cq.push(completion(1));
  const Time start = Time::seconds(1);
  EXPECT_EQ(events.raise_due(start), start + period) << "it counts from when it is first seen";
  cq.push(completion(2));
  EXPECT_EQ(events.raise_due(start + Time::microseconds(9)), start + period);
  EXPECT_EQ(events.take(), nullptr);
  const Time moved = Time::milliseconds(900);  // the clock's zero moves
  events.rebase(moved);
  EXPECT_EQ(events.raise_due(start + period - moved - Time{1}), start + period - moved);
  EXPECT_EQ(events.raise_due(start + period - moved), Time::never());
  EXPECT_EQ(events.take(), &cq);
  cq.arm(false);
  cq.push(completion(3));
  EXPECT_EQ(events.take(), nullptr) << "and the next waits again";
  EXPECT_EQ(told, 2);
}

TEST_F(Moderated, QueueThatGoesAwayIsForgotten) {
  {
    CompletionQueue other(4, events, nullptr);
    other.moderate(2, period);
    other.arm(false);
    other.push(completion(1));
    EXPECT_EQ(events.held.size(), 1u);
  }
  EXPECT_TRUE(events.held.empty());
}

TEST_F(Moderated, ANewModerationRaisesNothingWhereNothingWaits) {
  cq.moderate(2, period);
  EXPECT_EQ(events.take(), nullptr);
  cq.push(completion(1));
  EXPECT_EQ(events.take(), nullptr);
  cq.push(completion(2));
  EXPECT_EQ(events.take(), &cq) << "it is armed still";
}

TEST_F(Moderated, NoLongerModeratedIsRaisedAtOnce) {
  cq.push(completion(1));
  cq.moderate(0, Time());
  EXPECT_EQ(events.take(), &cq);
  cq.arm(false);
  cq.push(completion(2));
  EXPECT_EQ(events.take(), &cq);
}

}  // namespace
}  // namespace tulle::verbs
