// Networks of hosts in namespaces, where this machine lets the test make some.

#include "live/fabric/host_networks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/folder_test.h"
#include "live/fabric/network_keeper.h"
#include "os/codec.h"
#include "os/users.h"

namespace tulle::live {
namespace {

TEST(HostNetworksTest, EachHostHasAnAddressInBothNetworks) {
  EXPECT_EQ(host_address(0), "10.0.0.1");
  EXPECT_EQ(infiniband_address(0), "10.1.0.1");
  EXPECT_EQ(host_address(255), "10.0.1.0");
  EXPECT_EQ(infiniband_address(1'000), "10.1.3.233");
  for (const std::uint32_t host : {0u, 1u, 254u, 255u, 65'534u}) {
    EXPECT_EQ(host_at_address(host_address_bytes(host)), host);
    EXPECT_EQ(host_at_address(infiniband_address_bytes(host)), host);
  }
  for (const std::array<std::uint8_t, 4> nobody :
       {std::array<std::uint8_t, 4>{10, 0, 0, 0}, {10, 1, 0, 0}, {10, 2, 0, 1}, {11, 0, 0, 1}}) {
    EXPECT_FALSE(host_at_address(nobody));
  }
}

// Takes answers until there is one about each of so many hosts, or none for a while.
std::set<std::uint32_t> hosts_made(HostNetworks& networks, std::size_t wanted) {
  std::set<std::uint32_t> made;
  pollfd entry{networks.descriptor(), POLLIN, 0};
  while (made.size() < wanted && poll(&entry, 1, 10'000) == 1) {
    networks.take_answers([&](HostNetworks::Answer answer) {
      EXPECT_EQ(answer.reason, "");
      made.insert(answer.host);
    });
  }
  return made;
}

// All can be reached before a program enters them. Those of other machines are not made here.
TEST(HostNetworksTest, AllHostsOfASmallFabricAreMadeAtOnce) {
  const Folder files;
  auto networks = HostNetworks::start(files.path(), {false, true, false});
  if (!networks) GTEST_SKIP() << networks.error().message;
  networks->ask_for_all();
  EXPECT_EQ(hosts_made(*networks, 2), (std::set<std::uint32_t>{0, 2}));
  EXPECT_TRUE(networks->is_made(0));
  EXPECT_FALSE(networks->is_made(1));
  EXPECT_TRUE(networks->is_made(2));
}

TEST(HostNetworksTest, HostsOfALargeFabricWaitForAProgram) {
  const Folder files;
  auto networks = HostNetworks::start(files.path(), std::vector<bool>(65));
  if (!networks) GTEST_SKIP() << networks.error().message;
  networks->ask_for_all();
  ASSERT_TRUE(networks->ask(64));
  EXPECT_EQ(hosts_made(*networks, 1), std::set<std::uint32_t>{64}) << "it waits for no other";
}

// The keeper, in a process of its own, at the other end of a socket.
class NetworkKeeperTest : public testing::Test {
 protected:
  void SetUp() override {
    start(geteuid());
    auto first = await_message(socket_.get(), 10'000);
    ASSERT_TRUE(first);
    if (first->fds.empty()) GTEST_SKIP() << fault_in(*first);
  }
  void start(uid_t user) {
    files_.write("hosts", "127.0.0.1\tlocalhost\n");
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    socket_.reset(ends[0]);
    process_ = fork();
    ASSERT_GE(process_, 0);
    if (process_ == 0) {
      socket_.reset();
      if (user != geteuid() && setuid(user) != 0) _exit(1);
      prctl(PR_SET_DUMPABLE, 1);  // so that the process owns its files in /proc
      keep_networks(ends[1], files_.path("hosts"), 2);
      _exit(0);
    }
    close(ends[1]);
  }
  void TearDown() override {
    socket_.reset();
    if (process_ > 0) waitpid(process_, nullptr, 0);
  }
  static std::string fault_in(const ReceivedMessage& message) {
    const auto ready = from_fields<KeeperReady>(message.bytes);
    return ready ? ready->fault : "no such message";
  }
  void ask(const KeeperRequest& request) {
    ASSERT_TRUE(send_message(socket_.get(), fields_of(request)));
  }
  Result<ReceivedMessage> answer() { return await_message(socket_.get(), 10'000); }

  Folder files_;
  UniqueFd socket_;
  pid_t process_ = -1;
};

TEST_F(NetworkKeeperTest, EachRequestHasOneAnswer) {
  for (const std::uint32_t host : {0u, 1u}) {
    ask({.host = host});
    auto made = answer();
    ASSERT_TRUE(made);
    const auto said = from_fields<KeeperAnswer>(made->bytes);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->host, host);
    EXPECT_EQ(said->fault, "");
    EXPECT_GE(made->fds.size(), 3u) << "network, mounts and name";
  }
  ask({KeeperRequest::Kind::interface, 0, "ib0", 2'044, {}});  // without the host's namespaces
  auto refused = answer();
  ASSERT_TRUE(refused);
  const auto said = from_fields<KeeperAnswer>(refused->bytes);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->name, "ib0");
  EXPECT_EQ(said->fault, "the host has no network");
  EXPECT_TRUE(refused->fds.empty());
}

// In a user namespace, the programs of this user would look like those of any other.
class NetworkKeeperOfNobodyTest : public NetworkKeeperTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0 || !user_numbers().has_all) GTEST_SKIP() << "only root becomes nobody";
    start(65'534);
  }
};

TEST_F(NetworkKeeperOfNobodyTest, MakesNoNetworks) {
  auto first = answer();
  ASSERT_TRUE(first);
  if (fault_in(*first).starts_with("cannot make namespaces")) GTEST_SKIP() << fault_in(*first);
  EXPECT_EQ(fault_in(*first),
            "user 65534 may be any user in a user namespace: start the fabric as another one");
  EXPECT_TRUE(first->fds.empty());
}

// The fabric's process has ended, or says what no fabric of this version does.
TEST_F(NetworkKeeperTest, EndsAtAHostThatIsNotThere) {
  ask({.host = 2});
  EXPECT_FALSE(answer());
}

// A name is a word of a command of `ip`, which runs with the hosts' rights.
TEST_F(NetworkKeeperTest, EndsAtANameThatIsMoreThanAWord) {
  ask({KeeperRequest::Kind::mtu, 0, "ib0 up\nlink delete ib0", 2'044, {}});
  EXPECT_FALSE(answer());
}

}  // namespace
}  // namespace tulle::live
