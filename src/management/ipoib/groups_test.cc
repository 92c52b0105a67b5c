#include "management/ipoib/groups.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "management/ipoib/subnet_test.h"

namespace tulle::ipoib {
namespace {

using testing::ipv4_packet;
using testing::Subnet;
using wire::MemberRecord;

const Gid broadcast = wire::broadcast_group(testing::partition);
Gid group(std::uint32_t last) { return Gid::from_ipv4(0xEF00'0000 + last); }
Gid of_ip(const Gid& ip) { return wire::group_of_ip(ip, testing::partition); }

class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() { groups.join_anew(now, testing::ipv6(0x80, 0x10), true); }
  std::optional<Groups::Joined> send(const Gid& to) {
    return groups.find_to_send(now, to, ipv4_packet(Subnet::ip(0), to));
  }
  // Returns what is asked now.
  std::vector<Question> progress() {
    std::vector<Question> questions;
    groups.progress(now, next_number, questions);
    return questions;
  }
  // Lets all be joined that is asked for, and returns the questions. The groups are all alike.
  std::vector<Question> join_all(const MemberRecord& like = {}) {
    std::vector<Question> asked;
    for (auto questions = progress(); !questions.empty(); questions = progress()) {
      for (const Question& question : questions) {
        MemberRecord record = like;
        record.group_gid = std::get<MemberRecord>(question.record).group_gid;
        take(question, record);
      }
      asked.insert(asked.end(), questions.begin(), questions.end());
    }
    return asked;
  }
  void take(const Question& question, const MemberRecord& record) {
    std::optional<Groups::Joined> joined;
    WaitingPackets packets;
    EXPECT_TRUE(groups.take(now, question.number, &record, joined, packets));
  }

  Time now = Time::seconds(1);
  Groups groups{testing::partition};
  std::uint32_t next_number = 1;
};

// IBTA 15.2.5.17 says where the parts of a group's path are in its record.
TEST_F(GroupsTest, PacketsGoAsTheRecordOfTheirGroupSays) {
  MemberRecord record;
  record.lid = 0xC005;
  record.traffic_class = 0x55;
  record.sl_flow_and_hops = 0x9ABC'DE40;
  send(group(1));
  join_all(record);
  const auto joined = send(group(1));
  ASSERT_TRUE(joined);
  for (const Groups::Joined& route : {*joined, groups.broadcast_route()}) {
    EXPECT_EQ(route.lid, Lid(0xC005));
    EXPECT_EQ(route.service_level, 9);
    EXPECT_EQ(route.traffic_class, 0x55);
    EXPECT_EQ(route.flow_label, 0xA'BCDEu);
    EXPECT_EQ(route.hop_limit, 0x40);
  }
  EXPECT_EQ(joined->gid, of_ip(group(1)));
  EXPECT_EQ(groups.broadcast_route().gid, broadcast);
}

// A manager that names another group in its answer does not lead packets there.
TEST_F(GroupsTest, PacketsGoToTheGroupThatWasAskedFor) {
  join_all();
  send(group(1));
  const auto questions = progress();
  ASSERT_EQ(questions.size(), 1u);
  MemberRecord record;
  record.group_gid = of_ip(group(2)).bytes;
  take(questions[0], record);
  const auto joined = send(group(1));
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->gid, of_ip(group(1)));
}

TEST_F(GroupsTest, NoMoreGroupsAreJoinedThanMay) {
  std::set<Gid> wanted;
  for (std::uint32_t i = 0; i < Groups::groups_max + 10; ++i) wanted.insert(group(i));
  groups.set_wanted(now, wanted);
  EXPECT_EQ(join_all().size(), Groups::groups_max);  // that of broadcasts is one
}

TEST_F(GroupsTest, GroupsThatAreNotSentToAnyMoreAreLeftTogether) {
  send(group(1));
  send(group(2));
  join_all();
  now += Time::seconds(59);
  EXPECT_TRUE(progress().empty());
  now += Time::seconds(1);
  std::vector<Gid> left;
  for (const Question& question : progress()) {
    EXPECT_EQ(question.kind, Question::Kind::leave);
    left.push_back({std::get<MemberRecord>(question.record).group_gid});
  }
  EXPECT_EQ(left, (std::vector<Gid>{of_ip(group(1)), of_ip(group(2))}));
  EXPECT_TRUE(progress().empty());
}

// Questions for paths take their numbers from the same row. No late answer is taken for another's.
TEST_F(GroupsTest, EachQuestionHasANumberOfItsOwn) {
  groups.set_wanted(now, {group(1), group(2), group(3)});
  const auto questions = join_all();
  ASSERT_EQ(questions.size(), 4u);
  std::set<std::uint32_t> numbers;
  for (const Question& question : questions) numbers.insert(question.number);
  EXPECT_EQ(numbers.size(), questions.size());
  EXPECT_LT(*numbers.rbegin(), next_number);
  EXPECT_FALSE(numbers.contains(0));  // "none is asked"
}

}  // namespace
}  // namespace tulle::ipoib
