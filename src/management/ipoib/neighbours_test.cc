#include "management/ipoib/neighbours.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "management/ipoib/subnet_test.h"

namespace tulle::ipoib {
namespace {

using testing::ipv4_packet;
using testing::Subnet;

const Gid ip = Subnet::ip(1);      // the neighbour's address
const Gid own_ip = Subnet::ip(0);  // the host's
const wire::IpoibAddress address{0, 0x101, testing::ipv6(0x80, 0x11).bytes};

class NeighboursTest : public ::testing::Test {
 protected:
  NeighboursTest() { neighbours.route_anew(now, testing::ipv6(0x80, 0x10)); }
  std::optional<Neighbours::Route> send() {
    return neighbours.find_to_send(now, ip, ipv4_packet(own_ip, ip));
  }
  void hear(const std::optional<Gid>& owed_target) {
    neighbours.hear(now, ip, address, owed_target.has_value(), owed_target);
  }
  // Puts what is asked now into `questions` and `searches`.
  void progress() {
    questions.clear();
    searches.clear();
    neighbours.progress(now, next_number, questions, searches);
  }
  // Asks what is due, which is one path, and answers with this record.
  std::optional<Neighbours::Found> answer(const wire::PathRecord* record) {
    progress();
    std::optional<Neighbours::Found> found;
    EXPECT_EQ(questions.size(), 1u);
    if (questions.size() == 1) {
      EXPECT_TRUE(neighbours.take(now, questions[0].number, record, found));
    }
    return found;
  }

  Time now = Time::seconds(1);
  Neighbours neighbours{testing::partition};
  std::uint32_t next_number = 1;
  std::vector<Question> questions;
  std::vector<Neighbours::Search> searches;
  const wire::PathRecord path;
};

// IBTA 15.2.5.16 says where the parts of a path are in its record.
TEST_F(NeighboursTest, PacketsTakeThePathThatAdministrationHasGiven) {
  wire::PathRecord record;
  record.destination_lid = 7;
  record.raw_flow_and_hops = 0x0A'BCDE'40;  // flow label and hop limit
  record.traffic_class = 0x55;
  record.qos_class_and_sl = 0x0129;
  hear(own_ip);
  ASSERT_TRUE(answer(&record));
  const auto route = send();
  ASSERT_TRUE(route);
  EXPECT_EQ(route->qp, QpNumber(0x101));
  EXPECT_EQ(route->lid, Lid(7));
  EXPECT_EQ(route->service_level, 9);
  EXPECT_TRUE(route->has_global);
  EXPECT_EQ(route->gid.bytes, address.gid);
  EXPECT_EQ(route->traffic_class, 0x55);
  EXPECT_EQ(route->flow_label, 0xA'BCDEu);
  EXPECT_EQ(route->hop_limit, 0x40);
}

TEST_F(NeighboursTest, NoMorePacketsWaitThanMay) {
  for (std::size_t i = 0; i < Neighbours::waiting_max; ++i) EXPECT_FALSE(send());
  EXPECT_EQ(neighbours.unresolved(), 0u);
  EXPECT_FALSE(send());
  EXPECT_EQ(neighbours.unresolved(), 1u);
  hear(std::nullopt);
  const auto found = answer(&path);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->packets.size(), Neighbours::waiting_max);
}

// RFC 4861 §10: RETRANS_TIMER.
TEST_F(NeighboursTest, ANeighbourIsLookedForOnceASecond) {
  send();
  for (int i = 0; i < 3; ++i) {
    progress();
    EXPECT_EQ(searches.size(), 1u) << i;
    EXPECT_EQ(neighbours.next_deadline(), now + Time::seconds(1)) << i;
    now += Time::milliseconds(999);
    progress();
    EXPECT_EQ(searches.size(), 0u) << i;
    now += Time::milliseconds(1);
  }
}

// It was away, and tells of itself before it would be looked for again.
TEST_F(NeighboursTest, ANeighbourThatWasNotFoundMayTellOfItself) {
  send();
  while (neighbours.unresolved() == 0) {
    ASSERT_LT(now, Time::seconds(10));
    now += Time::seconds(1);
    progress();
  }
  hear(std::nullopt);
  EXPECT_FALSE(send());
  const auto found = answer(&path);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->packets.size(), 1u);
  EXPECT_TRUE(send());
}

// Its own memory may be shorter.
TEST_F(NeighboursTest, ANeighbourThatIsKnownIsAnsweredAtOnceToo) {
  for (int i = 0; i < 2; ++i) {
    hear(own_ip);
    const auto found = answer(&path);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->owed_targets, std::vector<Gid>{own_ip}) << i;
    EXPECT_EQ(found->address, address) << i;
    now += Time::seconds(5);
  }
}

TEST_F(NeighboursTest, AQuestionThatCouldNotBeAnsweredIsForgotten) {
  hear(own_ip);
  EXPECT_FALSE(answer(nullptr));  // there is no path
  now += Time::seconds(1);
  hear(own_ip);
  const auto found = answer(&path);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->owed_targets, std::vector<Gid>{own_ip});
}

// The address for which it was asked is forgotten by then, and later the neighbour is given up.
TEST_F(NeighboursTest, AnAnswerThatComesTooLateCountsForNothing) {
  hear(own_ip);
  ASSERT_TRUE(answer(&path));
  now += Time::seconds(30);
  ASSERT_TRUE(send());
  progress();
  std::uint32_t last = 0;
  for (; send(); now += Time::seconds(1), progress()) {
    ASSERT_LT(now, Time::seconds(60));
    ASSERT_EQ(questions.size(), 1u) << "its path is looked up again";
    last = questions[0].number;
  }
  const auto expect_nothing = [&] {
    std::optional<Neighbours::Found> found;
    EXPECT_FALSE(neighbours.take(now, last, &path, found));
    EXPECT_FALSE(found);
    EXPECT_FALSE(send());
  };
  expect_nothing();
  while (neighbours.unresolved() == 0) {
    ASSERT_LT(now, Time::seconds(60));
    now += Time::seconds(1);
    progress();
  }
  expect_nothing();
}

TEST_F(NeighboursTest, TheOneThatWasNotUsedForLongestGivesItsPlace) {
  hear(own_ip);
  ASSERT_TRUE(answer(&path));
  const auto send_to = [&](std::size_t host) {
    const Gid other = Gid::from_ipv4(0x0B00'0000 + static_cast<std::uint32_t>(host));
    neighbours.find_to_send(now, other, ipv4_packet(own_ip, other));
    now += Time::microseconds(1);
  };
  for (std::size_t host = 1; host < Neighbours::neighbours_max; ++host) send_to(host);
  EXPECT_TRUE(send()) << "it is the oldest, and used again";
  EXPECT_EQ(neighbours.size(), Neighbours::neighbours_max);
  for (std::size_t i = 1; i < Neighbours::neighbours_max; ++i) {
    send_to(Neighbours::neighbours_max + i);
    EXPECT_EQ(neighbours.unresolved(), i) << "the packet of the oldest";
  }
  EXPECT_TRUE(send());
  send_to(2 * Neighbours::neighbours_max);
  EXPECT_TRUE(send());
  EXPECT_EQ(neighbours.size(), Neighbours::neighbours_max);
}

}  // namespace
}  // namespace tulle::ipoib
