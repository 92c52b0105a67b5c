// A host agent, or a program, in a user namespace that has numbers for some users alone, beside
// users of the machine who have none there. All of these have the number 65534.

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "live/process/agent_client.h"
#include "live/process/device.h"
#include "live/slots.h"
#include "live/test_network_test.h"
#include "os/user_namespace_test.h"
#include "os/users.h"

namespace tulle::live {
namespace {

constexpr uid_t nobody = 65'534;
constexpr uid_t unmapped = 70'000;
constexpr int answer_milliseconds = 5'000;

// Two ends of a pipe, for a process to wait for another.
class Gate {
 public:
  Gate() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    out_.reset(ends[0]);
    in_.reset(ends[1]);
  }
  void open(char letter = 0) const { EXPECT_EQ(write(in_.get(), &letter, 1), 1); }
  char wait() const {
    char letter = 0;
    EXPECT_EQ(read(out_.get(), &letter, 1), 1);
    return letter;
  }

 private:
  UniqueFd out_, in_;
};

// Runs a function as a user of the machine, in a child process. Returns its status.
int as_user(uid_t user, const std::function<int()>& function) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_user = setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0;
    _exit(is_user ? function() : 99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// Returns the agent's answer to a message.
std::optional<ReceivedMessage> answer_to(std::span<const std::byte> message) {
  auto connection = connect_to_agent(read_settings());
  if (!connection || !send_message(connection->get(), message)) return std::nullopt;
  auto answer = await_message(connection->get(), answer_milliseconds);
  if (!answer) return std::nullopt;
  return std::move(*answer);
}

// Returns 1 if the agent hands over the memory of that slot's process, and 0 if it refuses.
int gets_memory(std::uint32_t slot) {
  Hello hello;
  hello.purpose = Purpose::find_peer;
  hello.slot = slot;
  const auto answer = answer_to(encode(hello));
  PeerProcess peer;
  Refused refused;
  if (!answer) return 2;
  if (decode(answer->bytes, peer) && answer->fds.size() == 2) return 1;
  return decode(answer->bytes, refused) ? 0 : 3;
}

// Returns 1 if this process may capture, and 0 if the agent refuses it.
int may_capture() {
  Hello hello;
  hello.purpose = Purpose::capture;
  const auto answer = answer_to(encode(hello));
  Refused refused;
  if (!answer) return 2;
  return decode(answer->bytes, refused) ? 0 : 1;
}

// A program of a user of the machine, which has a device open until this object goes.
class Program {
 public:
  explicit Program(uid_t user) {
    thread_ = std::thread([this, user] {
      status_ = as_user(user, [this] {
        auto device = Device::open("tulle0", [](const device::Event&) {});
        const auto first = device ? (*device)->adapter().configuration().first_qp : QpNumber();
        is_open_.open(device ? static_cast<char>(slot_of(first)) : '\0');
        may_leave_.wait();
        return device ? 0 : 1;
      });
    });
    slot_ = static_cast<unsigned char>(is_open_.wait());
  }
  ~Program() {
    may_leave_.open();
    thread_.join();
    EXPECT_EQ(status_, 0);
  }
  std::uint32_t slot() const { return slot_; }

 private:
  Gate is_open_, may_leave_;
  std::thread thread_;
  std::uint32_t slot_ = 0;
  int status_ = -1;
};

class FewUsersTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    if (geteuid() != 0 || !user_numbers().has_all) {
      GTEST_SKIP() << "only root of the machine has other users to test with";
    }
    if (!in_user_namespace(few_users, [] { return std::string(); })) {
      GTEST_SKIP() << "no user namespaces here";
    }
    setenv("TULLE_EXECUTABLE", "/bin/false", 1);  // prevents any agent but the test's own
  }
  void TearDown() override { unsetenv("TULLE_EXECUTABLE"); }
};

// The agent of a container's root, and users of the machine outside it.
TEST_F(FewUsersTest, TheAgentGivesNobodysMemoryToNobody) {
  const Gate is_ready, may_leave;
  std::optional<std::string> said;
  std::thread container([&] {
    said = in_user_namespace(few_users, [&] {
      const TestAgent agent;
      is_ready.open();
      may_leave.wait();
      return std::string();
    });
  });
  is_ready.wait();
  {
    const Program of_nobody(nobody), of_a_user(1'000);
    ASSERT_NE(of_nobody.slot(), of_a_user.slot());
    for (const uid_t user : {unmapped, nobody}) {
      EXPECT_EQ(as_user(user, [&] { return gets_memory(of_nobody.slot()); }), 0) << user;
      EXPECT_EQ(as_user(user, [] { return may_capture(); }), 0) << user;
    }
    EXPECT_EQ(as_user(1'000, [&] { return gets_memory(of_a_user.slot()); }), 1);
    EXPECT_EQ(as_user(1'001, [&] { return gets_memory(of_a_user.slot()); }), 0);
    EXPECT_EQ(as_user(unmapped, [&] { return gets_memory(of_a_user.slot()); }), 0);
    EXPECT_EQ(as_user(1'000, [] { return may_capture(); }), 1);
  }
  may_leave.open();
  container.join();
  EXPECT_EQ(said, "");
}

// The other way round: a container's nobody, and the agent of a user of the machine.
TEST_F(FewUsersTest, AnAgentOfAUserWithoutANumberIsNobodysOwn) {
  const Gate is_ready, may_leave;
  std::thread agent([&] {
    EXPECT_EQ(as_user(unmapped,
                      [&] {
                        const TestAgent agent;
                        is_ready.open();
                        may_leave.wait();
                        return 0;
                      }),
              0);
  });
  is_ready.wait();
  const auto said = in_user_namespace(few_users, [] {
    if (setuid(nobody) != 0) return std::string("no such user");
    auto connection = connect_to_agent(read_settings());
    return connection ? "it is accepted" : connection.error().message;
  });
  may_leave.open();
  agent.join();
  ASSERT_TRUE(said);
  EXPECT_TRUE(
      said->starts_with("the Tulle agent of this network namespace belongs to user 65534 "
                        "(any user who has no number in this user namespace), and serves"))
      << *said;
}

TEST_F(FewUsersTest, AUserWithoutANumberRunsNoAgent) {
  const auto said = in_user_namespace("", [] {
    testing::internal::CaptureStderr();
    AgentOptions options;
    options.settings = read_settings();
    const int status = run_agent(options);
    return std::to_string(status) + " " + testing::internal::GetCapturedStderr();
  });
  EXPECT_EQ(said,
            "1 tulle agent: user 65534 (any user who has no number in this user namespace) cannot "
            "run an agent, which could not tell programs of this user from those of others: run it "
            "as another user\n");
}

}  // namespace
}  // namespace tulle::live
