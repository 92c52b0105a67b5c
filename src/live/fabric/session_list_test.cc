#include "live/fabric/session_list.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "live/fabric/unclosed_descriptors.h"
#include "live/message/socket.h"

namespace tulle::live {
namespace {

std::array<UniqueFd, 2> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

constexpr std::size_t mebibyte = 1 << 20;

class SessionListTest : public testing::Test {
 protected:
  FabricSession& add(pid_t process, bool has_said = true) {
    auto session = std::make_unique<FabricSession>();
    session->id = sessions.unused_id();
    session->process = process;
    session->has_said = has_said;
    FabricSession& added = *session;
    sessions.add(std::move(session));
    return added;
  }

  SessionList sessions;
};

TEST_F(SessionListTest, EachSessionHasANumber) {
  std::set<std::uint32_t> ids;
  for (int i = 0; i < 10; ++i) ids.insert(add(1).id);
  EXPECT_EQ(ids.size(), 10u);
  for (const std::uint32_t id : ids) EXPECT_EQ(sessions.find(id)->id, id);
  EXPECT_EQ(sessions.find(99), nullptr);
  sessions.remove_closed();
  EXPECT_EQ(sessions.find(*ids.begin()), nullptr) << "it has no connection";
}

TEST_F(SessionListTest, AProcessHasAShare) {
  for (std::size_t i = 0; i < SessionList::sessions_of_process_max; ++i) {
    EXPECT_EQ(sessions.no_place_for(add(7), false), "");
  }
  FabricSession& one_more = add(7);
  EXPECT_NE(sessions.no_place_for(one_more, false), "");
  EXPECT_EQ(sessions.no_place_for(add(8), false), "");
  one_more.is_over = true;
  EXPECT_EQ(sessions.no_place_for(add(8), false), "");
}

TEST_F(SessionListTest, ProcessesThatNobodyTellsApartShareHalf) {
  for (std::size_t i = 0; i < SessionList::sessions_of_unknown_max; ++i) {
    EXPECT_EQ(sessions.no_place_for(add(0), false), "");
  }
  EXPECT_NE(sessions.no_place_for(add(0), false), "");
}

TEST_F(SessionListTest, CommandsHavePlaceWhereProgramsHaveNone) {
  for (std::size_t i = 0; i < SessionList::sessions_max; ++i) add(static_cast<pid_t>(1 + i / 100));
  EXPECT_NE(sessions.no_place_for(add(99), false), "");
  EXPECT_EQ(sessions.no_place_for(add(99), true), "");
  for (std::size_t i = 0; i < SessionList::commands_max; ++i) add(99);
  EXPECT_NE(sessions.no_place_for(add(99), true), "");
}

TEST_F(SessionListTest, TheOldestSilentConnectionEnds) {
  std::vector<UniqueFd> others;
  const auto add_silent = [&]() -> FabricSession& {
    FabricSession& session = add(1, false);
    auto ends = connection();
    session.connection = std::move(ends[0]);
    others.push_back(std::move(ends[1]));
    return session;
  };
  FabricSession& speaks = add_silent();
  ASSERT_EQ(send(others[0].get(), "x", 1, 0), 1);
  FabricSession& oldest = add_silent();
  for (std::size_t i = 1; i < SessionList::silent_max; ++i) add_silent();
  sessions.end_silent();
  EXPECT_FALSE(oldest.is_over);
  add_silent();
  sessions.end_silent();
  EXPECT_TRUE(oldest.is_over);
  EXPECT_FALSE(speaks.is_over) << "its message has not been read yet";
}

TEST_F(SessionListTest, UnreadFilesHaveABoundForEachProcess) {
  std::vector<UniqueFd> others;
  const auto add_reader = [&](pid_t process, std::size_t bytes) -> FabricSession& {
    FabricSession& session = add(process);
    auto ends = connection();
    session.datagrams = std::move(ends[0]);
    others.push_back(std::move(ends[1]));
    // The program has not read this.
    EXPECT_EQ(send(session.datagrams.get(), "x", 1, 0), 1);
    session.unread_file_bytes = bytes;
    return session;
  };
  FabricSession& session = add_reader(1, 128 * mebibyte - 10);
  EXPECT_TRUE(sessions.has_room_for_file(session, 10));
  EXPECT_FALSE(sessions.has_room_for_file(session, 11));
  for (pid_t process = 2; process <= 8; ++process) add_reader(process, 126 * mebibyte);
  FabricSession& other = add(9);
  EXPECT_TRUE(sessions.has_room_for_file(other, 14 * mebibyte + 10));
  EXPECT_FALSE(sessions.has_room_for_file(other, 14 * mebibyte + 11)) << "all have too many";
  std::array<char, 1> byte;
  ASSERT_EQ(recv(others[0].get(), byte.data(), byte.size(), 0), 1);
  EXPECT_TRUE(sessions.has_room_for_file(session, 11)) << "the program has read";
}

TEST_F(SessionListTest, UnreadFilesCountAfterTheirSession) {
  FabricSession& session = add(1);
  auto ends = connection();
  session.datagrams = std::move(ends[0]);
  EXPECT_EQ(send(session.datagrams.get(), "x", 1, 0), 1);
  session.unread_file_bytes = 100 * mebibyte;
  sessions.leave_unread(session);
  sessions.remove_closed();
  const FabricSession& next = add(1);
  EXPECT_TRUE(sessions.has_room_for_file(next, 28 * mebibyte));
  EXPECT_FALSE(sessions.has_room_for_file(next, 29 * mebibyte));
  int closed = 0;
  const auto close = [&](Closer::Sender sender, UniqueFd) {
    EXPECT_EQ(sender, 1u);
    ++closed;
  };
  sessions.take_read(close);
  EXPECT_EQ(closed, 0);
  std::array<char, 1> byte;
  ASSERT_EQ(recv(ends[1].get(), byte.data(), byte.size(), 0), 1);
  EXPECT_TRUE(sessions.has_room_for_file(next, 128 * mebibyte));
  sessions.take_read(close);
  EXPECT_EQ(closed, 1);
}

TEST_F(SessionListTest, ConnectionsCountUntilTheirFilesAreRead) {
  std::vector<UniqueFd> others;
  for (std::size_t i = 1; i < SessionList::sessions_of_process_max; ++i) add(1);
  FabricSession& session = add(1);
  auto ends = connection();
  session.datagrams = std::move(ends[0]);
  EXPECT_EQ(send(session.datagrams.get(), "x", 1, 0), 1);
  session.is_over = true;
  EXPECT_EQ(sessions.no_place_for(add(1), false), "");
  sessions.leave_unread(session);
  EXPECT_NE(sessions.no_place_for(session, false), "");
}

TEST(UnclosedDescriptorsTest, ADescriptorIsNotTakenBeyondTheBound) {
  auto ends = connection();
  FabricSession session;
  session.process = 1;
  const UnclosedDescriptors none(0);
  const UnclosedDescriptors one(1);
  EXPECT_EQ(none.objection_to_reading(session, ends[1].get()), nullptr);
  const std::array<int, 1> fds = {ends[0].get()};
  ASSERT_TRUE(send_message(ends[0].get(), std::vector<std::byte>(8), fds));
  EXPECT_NE(none.objection_to_reading(session, ends[1].get()), nullptr);
  EXPECT_EQ(one.objection_to_reading(session, ends[1].get()), nullptr);
}

TEST(UnclosedDescriptorsTest, SendersOfUnknownProcessesAreToldApartByConnection) {
  FabricSession a, b;
  a.id = 1;
  b.id = 2;
  EXPECT_NE(a.sender(), b.sender());
  a.process = b.process = 5;
  EXPECT_EQ(a.sender(), b.sender());
}

}  // namespace
}  // namespace tulle::live
