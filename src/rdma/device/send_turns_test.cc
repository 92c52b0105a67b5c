#include "rdma/device/send_turns.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "rdma/transport/host_test.h"

namespace tulle::device {
namespace {

using transport::QueuePair;
using transport::testing::Host;

// Connects a queue pair whose packets have this service level.
std::unique_ptr<Host> host_at(std::uint8_t service_level) {
  auto host = std::make_unique<Host>();
  transport::QueuePairAttributes to;
  to.path_mtu = verbs::Mtu::b256;
  to.address.service_level = service_level & 15;
  using enum verbs::QpAttribute;
  Host::must(host->step(to, verbs::QpState::rtr,
                        verbs::QpAttributeMask(address_vector) | path_mtu | destination_qp |
                            rq_psn | max_dest_rd_atomic | min_rnr_timer));
  return host;
}

class SendTurnsTest : public ::testing::Test {
 protected:
  // Makes a queue pair of this service level.
  QueuePair& make(std::uint8_t service_level = 0) {
    hosts_.push_back(host_at(service_level));
    return *hosts_.back()->qp;
  }
  // Lets the queue pair whose turn it is send one packet. Returns the queue pair.
  QueuePair* send(std::uint32_t held_back = 0) {
    QueuePair* qp = turns.next(held_back);
    if (qp != nullptr) count = turns.sent(*qp);
    return qp;
  }

  SendTurns turns;
  std::uint32_t count = 0;  // packets that the last sender has sent in its turn

 private:
  std::vector<std::unique_ptr<Host>> hosts_;
};

TEST_F(SendTurnsTest, AQueuePairLeavesTheTurnsOfTheOthers) {
  std::array<QueuePair*, 3> qps{&make(), &make(), &make()};
  QueuePair& last = make();
  for (QueuePair* gone : qps) {
    for (QueuePair* qp : qps) turns.add(*qp, false);
    turns.remove(*gone);
    EXPECT_FALSE(gone->scheduled);
    turns.remove(*gone);  // it is gone already
    turns.add(last, false);
    for (QueuePair* qp : qps) {
      if (qp == gone) continue;
      EXPECT_EQ(turns.take(), qp);
    }
    EXPECT_EQ(turns.take(), &last);
    EXPECT_EQ(turns.take(), nullptr);
    EXPECT_FALSE(turns.has_ready(0));
    EXPECT_EQ(turns.ready_levels(), 0u);
  }
}

TEST_F(SendTurnsTest, AnswersComeBeforeRequests) {
  QueuePair &asks = make(1), &answers = make(6);
  turns.add(asks, false);
  turns.add(answers, true);
  EXPECT_FALSE(SendTurns::is_among_answers(asks));
  EXPECT_TRUE(SendTurns::is_among_answers(answers));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(send(), &answers);
  turns.remove(answers);
  EXPECT_EQ(send(), &asks);
}

TEST_F(SendTurnsTest, ServiceLevelsTakeTurns) {
  // Levels n and n + 8 share one turn.
  QueuePair &at_0 = make(0), &at_3 = make(3), &at_7 = make(15);
  for (QueuePair* qp : {&at_7, &at_3, &at_0}) turns.add(*qp, false);
  EXPECT_EQ(turns.ready_levels(), 0b1000'1001u);
  for (int i = 0; i < 3; ++i) {
    for (QueuePair* qp : {&at_0, &at_3, &at_7}) EXPECT_EQ(send(), qp);
  }
}

TEST_F(SendTurnsTest, AHeldBackLevelWaits) {
  QueuePair &asks = make(2), &answers = make(2), &other = make(5);
  turns.add(asks, false);
  turns.add(answers, true);
  EXPECT_TRUE(turns.has_ready(0));
  EXPECT_FALSE(turns.has_ready(1u << 2));
  EXPECT_EQ(turns.next(1u << 2), nullptr);
  turns.add(other, false);
  EXPECT_TRUE(turns.has_ready(1u << 2));
  EXPECT_EQ(turns.next(1u << 2), &other);
  EXPECT_EQ(turns.next(SendTurns::all_levels & ~(1u << 2)), &answers);
}

// The count tells when a turn ends, so each queue pair's begins at one.
TEST_F(SendTurnsTest, PacketsAreCountedFromTheBeginningOfATurn) {
  QueuePair &first = make(), &second = make(), &third = make();
  for (QueuePair* qp : {&first, &second, &third}) turns.add(*qp, false);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(send(), &first);
    EXPECT_EQ(count, i);
    if (i == 3) turns.remove(third);  // it was not its turn
  }
  turns.remove(first);
  turns.add(first, false);
  EXPECT_EQ(send(), &second);
  EXPECT_EQ(count, 1u);
}

TEST_F(SendTurnsTest, NotificationsGoOutInTheirOrderAndOnceEach) {
  std::array<QueuePair*, 3> qps{&make(), &make(), &make()};
  QueuePair& last = make();
  EXPECT_EQ(turns.first_notification(), nullptr);
  for (QueuePair* gone : qps) {
    for (QueuePair* qp : qps) turns.add_notification(*qp);
    turns.add_notification(*qps[0]);
    // Nothing holds a notification back, as far as the turns know.
    EXPECT_TRUE(turns.has_ready(SendTurns::all_levels));
    turns.remove_notification(*gone);
    turns.remove_notification(*gone);
    turns.add_notification(last);
    for (QueuePair* qp : {qps[0], qps[1], qps[2], &last}) {
      if (qp == gone) continue;
      EXPECT_EQ(turns.first_notification(), qp);
      turns.remove_notification(*qp);
    }
    EXPECT_EQ(turns.first_notification(), nullptr);
    EXPECT_FALSE(turns.has_ready(0));
  }
}

}  // namespace
}  // namespace tulle::device
