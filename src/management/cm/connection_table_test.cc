#include "management/cm/connection_table.h"

#include <gtest/gtest.h>

#include <set>

namespace tulle::management::cm {
namespace {

using State = Connection::State;

class ConnectionTableTest : public ::testing::Test {
 protected:
  static Route route_of(std::uint32_t peer) {
    return {Gid::from_ipv4(0x0A00'0001), Gid::from_ipv4(peer), 0};
  }
  Connection& requested(State state = State::request_received) {
    EXPECT_TRUE(table.make_room_for_request());
    return *table.create_requested(route_of(2), state);
  }
  Connection& active(State state = State::request_sent) {
    return *table.create_active(route_of(2), state);
  }
  // Makes a connection expendable, with a deadline.
  void release(Connection& connection, State state, Time deadline) {
    connection.is_released = true;
    connection.state = state;
    table.set_deadline(connection, deadline);
  }

  Time now = Time::seconds(10);
  ConnectionTable table{{RandomSource{1}, 6, 3}};
};

TEST_F(ConnectionTableTest, EachHasItsIdAndIsFoundByIt) {
  std::set<ConnectionId> ids;
  for (int i = 0; i < 6; ++i) {
    Connection& connection = active();
    EXPECT_TRUE(connection.is_active);
    EXPECT_EQ(connection.transaction_id & 0xFFFF'FFFF, connection.id.value);
    EXPECT_EQ(table.find(connection.id), &connection);
    ids.insert(connection.id);
  }
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(ids.count(ConnectionId{}), 0u);
  EXPECT_EQ(table.create_active(route_of(2), State::request_sent), nullptr);

  Connection& released = *table.find(*ids.begin());
  EXPECT_EQ(table.find_owned(released.id), &released);
  released.is_released = true;
  EXPECT_EQ(table.find_owned(released.id), nullptr);
}

TEST_F(ConnectionTableTest, APeersNamesLastAsLongAsTheConnectionThatHasThemLast) {
  Connection& first = requested();
  Connection& second = requested();
  for (Connection* each : {&first, &second}) {
    each->remote_id = 5;
    each->remote_qp = QpNumber{6};
    table.name_by_remote_qp(*each);
  }
  table.name_by_remote_id(first);
  EXPECT_EQ(table.find_by_remote_id(first.remote_key()), &first);
  EXPECT_EQ(table.find_by_remote_qp(first.remote_qp_key()), &second);
  table.erase(first);
  EXPECT_EQ(table.find_by_remote_id(second.remote_key()), nullptr);
  EXPECT_EQ(table.find_by_remote_qp(second.remote_qp_key()), &second);
  table.forget_remote_qp(second);
  EXPECT_EQ(table.find_by_remote_qp(second.remote_qp_key()), nullptr);
  EXPECT_EQ(table.index_size(), 0u);
}

TEST_F(ConnectionTableTest, TheFirstDeadlineIsDueFirst) {
  EXPECT_TRUE(table.next_deadline().is_never());
  Connection& late = active();
  Connection& early = active();
  table.set_deadline(late, now + Time::seconds(2));
  table.set_deadline(early, now + Time::seconds(1));
  EXPECT_EQ(table.next_deadline(), now + Time::seconds(1));
  EXPECT_EQ(table.first_due(now), nullptr);
  EXPECT_EQ(table.first_due(now + Time::seconds(3)), &early);
  EXPECT_EQ(table.unfinished_count(), 2u);
  table.rebase(Time::seconds(10));
  EXPECT_EQ(table.next_deadline(), Time::seconds(1));
  table.set_deadline(early, Time::never());
  EXPECT_EQ(table.first_due(Time::seconds(2)), &late);
  EXPECT_EQ(table.unfinished_count(), 1u);
}

TEST_F(ConnectionTableTest, AnAnswerIsNotWaitedForAfterItsEnd) {
  Connection& connection = requested(State::reply_sent);
  connection.gives_up_at = now + Time::seconds(1);
  table.set_deadline(connection, now + Time::seconds(100));
  EXPECT_EQ(table.next_deadline(), now + Time::seconds(1));
}

TEST_F(ConnectionTableTest, AnErasedAnswerLeavesNoDeadline) {
  Connection& connection = requested(State::reply_sent);
  connection.gives_up_at = now + Time::seconds(1);
  table.set_deadline(connection, now);
  table.erase(connection);
  EXPECT_TRUE(table.next_deadline().is_never());
}

TEST_F(ConnectionTableTest, ReleasedRecordsMakeRoomTheLeastUsefulFirst) {
  Connection* own[] = {&active(), &active(), &active()};
  Connection* of_peers[] = {&requested(), &requested(), &requested()};
  table.set_deadline(*own[0], now);  // not released: stays, however early it is due
  release(*own[1], State::time_wait, now + Time::seconds(1));
  release(*own[2], State::disconnect_sent, now + Time::seconds(1));
  release(*of_peers[0], State::disconnect_sent, now + Time::seconds(2));
  release(*of_peers[1], State::time_wait, now + Time::seconds(9));
  release(*of_peers[2], State::time_wait, now + Time::seconds(8));
  for (Connection* each : {of_peers[2], of_peers[1], own[1], of_peers[0], own[2]}) {
    const ConnectionId id = each->id;
    EXPECT_EQ(table.find(id), each);
    active();
    EXPECT_EQ(table.find(id), nullptr);
    EXPECT_EQ(table.size(), 6u);
  }
  EXPECT_EQ(table.create_active(route_of(2), State::request_sent), nullptr);
}

TEST_F(ConnectionTableTest, PeersHaveALimitThatOnlyTheirOwnRecordsMakeRoomFor) {
  Connection* of_peers[] = {&requested(), &requested(), &requested()};
  release(active(), State::time_wait, now);
  EXPECT_FALSE(table.make_room_for_request());
  release(*of_peers[1], State::time_wait, now);
  EXPECT_TRUE(table.make_room_for_request());
  EXPECT_EQ(table.size(), 3u);
}

TEST_F(ConnectionTableTest, TheOldestUnansweredIsTheFirstThatStillWaits) {
  EXPECT_EQ(table.oldest_unanswered(), nullptr);
  Connection* waits[] = {&requested(State::reply_sent), &requested(State::reply_sent),
                         &requested(State::reply_sent)};
  for (const Connection* each : waits) table.add_unanswered(each->id);
  EXPECT_EQ(table.oldest_unanswered(), waits[0]);
  waits[0]->state = State::established;
  table.erase(*waits[1]);
  EXPECT_EQ(table.oldest_unanswered(), waits[2]);
  EXPECT_EQ(table.unanswered_size(), 1u);
}

}  // namespace
}  // namespace tulle::management::cm
