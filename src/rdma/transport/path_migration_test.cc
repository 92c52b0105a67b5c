// Automatic path migration (IBTA 17.2.8), from packet to packet.

#include <gtest/gtest.h>

#include <algorithm>

#include "rdma/transport/host_test.h"

namespace tulle::transport {
namespace {

using testing::first_psn;
using testing::Host;
using testing::Options;
using verbs::CompletionStatus;
using verbs::MigrationState;
using verbs::QpAttribute;
using verbs::QpAttributeMask;
using verbs::VerbsStatus;

constexpr Lid first_lid{8}, second_lid{9}, stranger{12};

class PathMigrationTest : public ::testing::TestWithParam<bool> {
 protected:
  PathMigrationTest() : host_(options()) { host_.connect(); }

  // Both ways of recovery from losses.
  static Options options() {
    Options options;
    options.peer_address = first_lid;
    options.retry_count = 1;
    options.timeout = 10;
    if (GetParam()) {
      options.recovery.kind = Recovery::selective_repeat;
      options.recovery.window_packets = 64;
    }
    return options;
  }
  VerbsStatus load(MigrationState state, std::uint8_t port = 1, std::uint16_t pkey_index = 0) {
    AlternatePath alternate;
    alternate.address.destination = second_lid;
    alternate.address.path_bits = 1;
    alternate.address.port = port;
    alternate.timeout = 12;
    alternate.pkey_index = pkey_index;
    QueuePairAttributes to;
    to.alternate = &alternate;
    to.migration = state;
    return host_.qp->modify(
        to, QpAttributeMask(QpAttribute::alternate_path) | QpAttribute::path_migration_state);
  }
  VerbsStatus set(MigrationState state) {
    QueuePairAttributes to;
    to.migration = state;
    return host_.qp->modify(to, QpAttribute::path_migration_state);
  }
  // Delivers an acknowledgement of the packet with that offset.
  void acknowledge(std::uint32_t offset, Lid from, bool migrates) {
    wire::Packet packet =
        testing::packet(wire::TransportClass::rc, wire::Operation::acknowledge, first_psn + offset);
    packet.syndrome = {wire::AckKind::ack, 31};
    packet.migration_state = migrates;
    host_.deliver_from(from, packet);
  }
  void arm() {
    ASSERT_EQ(load(MigrationState::rearm), VerbsStatus::ok);
    host_.post(verbs::SendOpcode::send, 10);
    const auto sent = host_.pull();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_FALSE(sent[0].packet.migration_state) << "the peer learns that a path is loaded";
    acknowledge(0, first_lid, false);
    ASSERT_EQ(state(), MigrationState::armed);
    ASSERT_EQ(host_.completions().size(), 1u);
  }
  MigrationState state() const { return host_.qp->attributes().migration; }
  Lid lid() const { return host_.qp->attributes().address.destination.lid; }
  // Lets time pass until a deadline has made the queue pair send, and returns what it sent.
  std::vector<testing::Pulled> pass_until_sent() {
    for (int i = 0; i < 100; ++i) {
      const Time next = host_.qp->agenda().deadline;
      if (next.is_never()) return {};
      host_.pass(std::max(next - host_.now, Time::zero()));
      if (auto sent = host_.pull(); !sent.empty()) return sent;
    }
    return {};
  }

  Host host_;
};

TEST_P(PathMigrationTest, TakesTheOtherPathWhenItsRetriesAreOver) {
  arm();
  host_.post(verbs::SendOpcode::send, 10);
  EXPECT_EQ(host_.pull().size(), 1u);
  std::vector<testing::Pulled> sent = pass_until_sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_FALSE(sent[0].packet.migration_state) << "a retry on the first path";
  for (int i = 0; i < 1'000 && state() == MigrationState::armed; ++i) sent = pass_until_sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].packet.migration_state) << "by which the peer follows";
  EXPECT_EQ(sent[0].packet.psn, first_psn + 1);
  EXPECT_EQ(lid(), second_lid);
  EXPECT_EQ(host_.qp->attributes().address.path_bits, 1);
  EXPECT_EQ(host_.qp->attributes().timeout, 12);
  EXPECT_EQ(state(), MigrationState::migrated);
  EXPECT_EQ(PathMigration::alternate(*host_.qp), nullptr);
  EXPECT_EQ(host_.raised(), std::vector{verbs::EventType::path_migrated});
  EXPECT_TRUE(host_.completions().empty());

  acknowledge(1, first_lid, true);
  EXPECT_TRUE(host_.completions().empty()) << "the old path is no longer the peer's";
  acknowledge(1, second_lid, true);
  EXPECT_EQ(host_.completions().size(), 1u);
  // There is no third path, and all retries are those of the second.
  host_.post(verbs::SendOpcode::send, 10);
  EXPECT_EQ(host_.pull().size(), 1u);
  int retries = 0;
  for (; retries < 1'000 && !pass_until_sent().empty(); ++retries) continue;
  EXPECT_GE(retries, 1);
  const auto completions = host_.completions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, CompletionStatus::retry_exceeded_error);
}

TEST_P(PathMigrationTest, FollowsItsPeer) {
  arm();
  wire::Packet message =
      testing::packet(wire::TransportClass::rc, wire::Operation::send_only, first_psn);
  message.ack_request = true;
  host_.post_receive(100);
  host_.deliver_from(stranger, message);
  EXPECT_EQ(state(), MigrationState::armed);
  message.migration_state = false;
  host_.deliver_from(second_lid, message);
  EXPECT_EQ(state(), MigrationState::armed) << "it does not ask to migrate";
  EXPECT_TRUE(host_.completions().empty());
  message.migration_state = true;
  host_.deliver_from(second_lid, message);
  EXPECT_EQ(state(), MigrationState::migrated);
  EXPECT_EQ(lid(), second_lid);
  EXPECT_EQ(host_.completions().size(), 1u) << "the message is taken";
  EXPECT_EQ(host_.raised(), std::vector{verbs::EventType::path_migrated});
  const auto answers = host_.pull();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].packet.migration_state);
}

TEST_P(PathMigrationTest, IsNotArmedUntilThePeerIs) {
  ASSERT_EQ(load(MigrationState::rearm), VerbsStatus::ok);
  host_.post(verbs::SendOpcode::send, 10);
  host_.pull();
  acknowledge(0, first_lid, true);  // the peer has no alternate path
  EXPECT_EQ(state(), MigrationState::rearm);
  host_.post(verbs::SendOpcode::send, 10);
  host_.pull();
  while (!pass_until_sent().empty()) continue;
  EXPECT_EQ(lid(), first_lid);
  const auto completions = host_.completions();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[1].status, CompletionStatus::retry_exceeded_error);
}

TEST_P(PathMigrationTest, AProgramMigratesAndArmsAgain) {
  EXPECT_EQ(set(MigrationState::rearm), VerbsStatus::ok);
  EXPECT_EQ(state(), MigrationState::migrated) << "no path is loaded";
  EXPECT_EQ(load(MigrationState::armed), VerbsStatus::invalid_argument);
  EXPECT_EQ(load(MigrationState::rearm, 2), VerbsStatus::invalid_argument) << "another port";
  arm();
  ASSERT_EQ(set(MigrationState::migrated), VerbsStatus::ok);
  EXPECT_EQ(lid(), second_lid);
  EXPECT_EQ(host_.raised(), std::vector{verbs::EventType::path_migrated});
  ASSERT_EQ(load(MigrationState::rearm), VerbsStatus::ok);
  EXPECT_EQ(state(), MigrationState::rearm);
  QueuePairAttributes to;
  ASSERT_EQ(host_.step(to, verbs::QpState::reset), VerbsStatus::ok);
  EXPECT_EQ(state(), MigrationState::migrated);
  EXPECT_EQ(PathMigration::alternate(*host_.qp), nullptr);
}

// A manager may change the port's table of partitions, or make it shorter, while the path waits.
TEST_P(PathMigrationTest, KeepsThePartitionThatWasLoaded) {
  constexpr Pkey other{0x8001};
  host_.environment.port(1).pkeys = {default_pkey, other};
  EXPECT_EQ(load(MigrationState::rearm, 1, 2), VerbsStatus::invalid_argument);
  arm();
  ASSERT_EQ(load(MigrationState::rearm, 1, 1), VerbsStatus::ok);
  acknowledge(0, first_lid, false);
  ASSERT_EQ(state(), MigrationState::armed);
  host_.environment.port(1).pkeys = {default_pkey, Pkey{0x8002}};
  ASSERT_EQ(set(MigrationState::migrated), VerbsStatus::ok);
  EXPECT_EQ(host_.qp->pkey(), other);
  EXPECT_EQ(host_.qp->attributes().pkey_index, 1);
}

INSTANTIATE_TEST_SUITE_P(Recoveries, PathMigrationTest, ::testing::Bool());

}  // namespace
}  // namespace tulle::transport
