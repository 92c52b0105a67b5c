#include "live/agent/user_descriptors.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "live/agent/session_table.h"
#include "live/message/socket.h"

namespace tulle::live {
namespace {

class UserDescriptorsTest : public testing::Test {
 protected:
  // Adds a session. `program` gets the other end of its connection.
  Session& add(uid_t user, UniqueFd& program) {
    std::array<int, 2> ends{};
    constexpr int type = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    EXPECT_EQ(socketpair(AF_UNIX, type, 0, ends.data()), 0);
    auto session = std::make_unique<Session>();
    session->peer.uid = user;
    session->connection.reset(ends[0]);
    program.reset(ends[1]);
    Session& added = *session;
    sessions.add(std::move(session));
    return added;
  }
  bool send(Session& session) {
    const std::array<int, 1> fds = {STDERR_FILENO};
    return static_cast<bool>(descriptors.send(session, std::vector<std::byte>(8), fds));
  }
  // Reads all messages.
  static void read(const UniqueFd& program) {
    while (receive_message(program.get())) {
    }
  }

  const uid_t own = geteuid();
  const uid_t other = own + 1'000;
  SessionTable sessions;
  UserDescriptors descriptors{sessions};
};

TEST_F(UserDescriptorsTest, AConnectionHasAFewUnread) {
  UniqueFd program, own_program;
  Session& session = add(other, program);
  for (std::size_t i = 0; i < UserDescriptors::unread_of_connection_max; ++i) {
    EXPECT_TRUE(send(session));
  }
  EXPECT_FALSE(send(session));
  read(program);
  EXPECT_TRUE(send(session)) << "the program has read";
  Session& of_own_user = add(own, own_program);
  for (std::size_t i = 0; i < 2 * UserDescriptors::unread_of_connection_max; ++i) {
    EXPECT_TRUE(send(of_own_user));
  }
  EXPECT_EQ(of_own_user.descriptors_unread, 0u);
}

TEST_F(UserDescriptorsTest, ACaptureHasMore) {
  UniqueFd program;
  Session& session = add(other, program);
  session.state = Session::State::capture;
  EXPECT_TRUE(descriptors.has_room(session, 2 * UserDescriptors::unread_of_connection_max));
}

TEST_F(UserDescriptorsTest, ConnectionsThatEndCountUntilTheyAreRead) {
  UniqueFd program, next_program, strange_program;
  Session& session = add(other, program);
  ASSERT_TRUE(send(session));
  session.descriptors_unread = UserDescriptors::unread_of_user_max;
  descriptors.close_connection(session);
  session.descriptors_unread = 0;
  session.state = Session::State::closing;
  EXPECT_TRUE(sessions.remove_closing());
  descriptors.close_read();
  EXPECT_EQ(descriptors.unclosed(other), 1u);
  const Session& next = add(other, next_program);
  EXPECT_FALSE(descriptors.has_room(next, 1));
  const Session& strange = add(other + 1, strange_program);
  EXPECT_TRUE(descriptors.has_room(strange, 1));
  read(program);
  descriptors.close_read();
  EXPECT_EQ(descriptors.unclosed(other), 0u);
  EXPECT_TRUE(descriptors.has_room(next, 1));
}

TEST_F(UserDescriptorsTest, AConnectionWithoutAnythingUnreadClosesAtOnce) {
  UniqueFd program;
  Session& session = add(other, program);
  descriptors.close_connection(session);
  EXPECT_FALSE(session.connection);
  EXPECT_EQ(descriptors.unclosed(other), 0u);
  EXPECT_FALSE(descriptors.has_many_connections());
}

}  // namespace
}  // namespace tulle::live
