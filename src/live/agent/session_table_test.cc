#include "live/agent/session_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "live/slots.h"

namespace tulle::live {
namespace {

using State = Session::State;

class SessionTableTest : public testing::Test {
 protected:
  Session& add(uid_t user, State state, const std::string& device = "tulle0") {
    auto session = std::make_unique<Session>();
    session->peer.uid = user;
    session->state = state;
    session->hello.device.name = device;
    Session& added = *session;
    sessions.add(std::move(session));
    return added;
  }

  const uid_t own = geteuid();
  const uid_t other = own + 1'000;
  SessionTable sessions;
};

TEST_F(SessionTableTest, OtherUsersHaveABoundOfConnections) {
  for (std::size_t i = 0; i < SessionTable::connections_max; ++i) {
    EXPECT_TRUE(sessions.may_connect(other, 0));
    EXPECT_TRUE(sessions.may_connect(own, 1'000'000));
    add(other, State::greeting);
  }
  EXPECT_FALSE(sessions.may_connect(other, 0));
  EXPECT_TRUE(sessions.may_connect(other + 1, 0));
  EXPECT_FALSE(sessions.may_connect(other + 1, SessionTable::connections_max));
}

TEST_F(SessionTableTest, OtherUsersHaveFewKindsOfDevices) {
  for (int i = 0; i < 16; ++i) add(other, State::process, "device" + std::to_string(i));
  const Session& known = add(other, State::greeting, "device3");
  EXPECT_TRUE(sessions.may_choose(known));
  const Session& one_more = add(other, State::greeting, "another");
  EXPECT_FALSE(sessions.may_choose(one_more));
  EXPECT_TRUE(sessions.may_choose(add(own, State::greeting, "another")));
  EXPECT_TRUE(sessions.may_choose(add(other + 1, State::greeting, "another")));
}

TEST_F(SessionTableTest, OtherUsersLeaveSlots) {
  for (std::uint32_t i = 0; i < slots / 2; ++i) {
    EXPECT_TRUE(sessions.has_place_for(other));
    add(other, State::process);
  }
  EXPECT_FALSE(sessions.has_place_for(other));
  uid_t next = other + 1;
  while (sessions.has_place_for(next)) add(next++, State::process);
  EXPECT_TRUE(sessions.has_place_for(own));
}

TEST_F(SessionTableTest, RootsCaptureComesFirst) {
  EXPECT_EQ(sessions.capture_for(other), nullptr);
  Session& of_user = add(other, State::capture);
  EXPECT_EQ(sessions.capture_for(other), &of_user);
  Session& of_root = add(0, State::capture);
  EXPECT_EQ(sessions.capture_for(other), &of_root);
  EXPECT_EQ(sessions.capture_of(other), &of_user);
  of_root.state = State::closing;
  EXPECT_EQ(sessions.capture_for(other), &of_user);
  EXPECT_TRUE(sessions.remove_closing());
  EXPECT_FALSE(sessions.remove_closing());
}

TEST_F(SessionTableTest, AProcessUsesAnAddressUntilItSaysOtherwise) {
  Session& process = add(own, State::process);
  process.slot = 5;
  EXPECT_EQ(sessions.owner_of(5), &process);
  EXPECT_EQ(sessions.owner_of(6), nullptr);
  const DeviceChoice key = process.hello.device;
  EXPECT_TRUE(sessions.is_used(key));
  EXPECT_EQ(sessions.holder_of(key, 3, 2), HeldBy::own_user);
  process.version_noted = 2;
  EXPECT_EQ(sessions.holder_of(key, 3, 2), HeldBy::nobody);
  process.gids_held[3] = true;
  EXPECT_EQ(sessions.holder_of(key, 3, 2), HeldBy::own_user);
  process.state = State::closing;
  EXPECT_FALSE(sessions.is_used(key));
}

}  // namespace
}  // namespace tulle::live
