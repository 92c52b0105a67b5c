// Attacks by another user of the host on an agent that root runs. Each attack is made by a child
// process without privileges, while root has a device open. The agent must serve root as before.

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "live/message/connection.h"
#include "live/message/lingering_test.h"
#include "live/path/packets/socket_group.h"
#include "live/process/agent_client.h"
#include "live/process/device.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

// Not 65534, which is no user in many a container.
constexpr uid_t stranger = 65'533;
constexpr int answer_milliseconds = 5'000;

using Report = std::function<void(const std::string&)>;

// Runs attacks as another user. Returns what they report, line by line: nothing if all failed.
std::string as_stranger(const std::function<void(const Report&)>& attack, uid_t user = stranger) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t pid = fork();
  if (pid == 0) {
    const Report report = [&](const std::string& line) {
      const std::string text = line + "\n";
      [[maybe_unused]] const ssize_t written = write(ends[1], text.data(), text.size());
    };
    if (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0) {
      report("cannot become another user");
    } else {
      attack(report);
    }
    _exit(0);
  }
  close(ends[1]);
  const UniqueFd in(ends[0]);
  std::string said;
  char c;
  while (read(in.get(), &c, 1) == 1) said += c;
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status)) said += "the attacker was killed\n";
  return said;
}

Hello hello_to_open() {
  Hello hello;
  hello.purpose = Purpose::open;
  hello.command = "attacker";
  hello.device.name = "tulle0";
  return hello;
}

// A conversation with the agent that begins with this message.
struct Talk {
  UniqueFd connection;
  std::optional<ReceivedMessage> answer;
};
Talk say(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
  Talk talk;
  auto connection = connect_to_agent(read_settings());
  if (!connection) return talk;
  talk.connection = std::move(*connection);
  if (!send_message(talk.connection.get(), bytes, fds)) return talk;
  auto answer = await_message(talk.connection.get(), answer_milliseconds);
  if (answer) talk.answer = std::move(*answer);
  return talk;
}
bool is_refused(const Talk& talk) {
  Refused refused;
  return talk.answer && decode(talk.answer->bytes, refused);
}

class HostileUserTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    if (geteuid() != 0 || setgroups(0, nullptr) != 0) {
      GTEST_SKIP() << "only root has other users to test with";
    }
    setenv("TULLE_EXECUTABLE", "/bin/false", 1);  // prevents any agent but the test's own
    agent_.emplace();
    auto device = Device::open("tulle0", [](const device::Event&) {});
    ASSERT_TRUE(device) << device.error().message;
    device_ = *device;
    slot_ = slot_of(first_qp());
  }
  void TearDown() override {
    // Root's device is still there, the agent answers, and a new device opens.
    if (device_) {
      EXPECT_TRUE(is_listed()) << "root's device must stay";
      auto another = Device::open("tulle1", [](const device::Event&) {});
      EXPECT_TRUE(another) << another.error().message;
    }
    unsetenv("TULLE_EXECUTABLE");
  }
  QpNumber first_qp() { return device_->adapter().configuration().first_qp; }
  bool is_listed() {
    Hello hello;
    hello.purpose = Purpose::status;
    auto answer = ask_agent(read_settings(), hello, IfAbsent::fail);
    if (!answer) return false;
    for (;;) {
      auto message = await_message(answer->connection.get(), answer_milliseconds);
      ProcessStatus process;
      if (!message || !decode(message->bytes, process)) return false;
      if (process.slot == slot_) return process.connected && process.pid == getpid();
    }
  }

  std::optional<TestAgent> agent_;
  std::shared_ptr<Device> device_;
  std::uint32_t slot_ = 0;
};

TEST_F(HostileUserTest, WhatAStrangerHoldsSteersAndPoisonsNothing) {
  EXPECT_EQ(
      as_stranger([](const Report& report) {
        Talk talk = say(encode(hello_to_open()));
        Opened opened;
        if (!talk.answer || !decode(talk.answer->bytes, opened)) return report("not opened");
        if (!opened.is_relayed) report("not relayed");
        sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
        const sock_fprog steering{1, program};
        const int one = 1;
        for (const UniqueFd& fd : talk.answer->fds) {
          int domain = AF_UNIX;
          socklen_t size = sizeof(domain);
          getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size);
          if (domain != AF_UNIX) report("a socket of the network");
          if (setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &steering,
                         sizeof(steering)) == 0) {
            report("steered the port");
          }
          if (setsockopt(fd.get(), SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &one, sizeof(one)) == 0) {
            report("took the steering away");
          }
          if (ftruncate(fd.get(), 0) == 0) report("shortened shared memory");
          if (ftruncate(fd.get(), 1 << 20) == 0) report("lengthened shared memory");
          if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE) == 0) report("sealed shared memory");
          struct flock lock {};
          lock.l_type = F_WRLCK;
          fcntl(fd.get(), F_OFD_SETLK, &lock);  // of no use, since it locks no slot
          void* page = mmap(nullptr, 4'096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
          if (page != MAP_FAILED) std::memset(page, 0xFF, 4'096);
        }
        if (talk.answer->fds.size() != 2) report("more descriptors than it needs");
        // The agent reads the page while it says what the process counts.
        Hello hello;
        hello.purpose = Purpose::status;
        if (!say(encode(hello)).answer) report("the agent does not answer");
      }),
      "");
}

TEST_F(HostileUserTest, NoMessageHurtsTheAgent) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              Random random(1);
              const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
              const std::vector<int> some(3, null.get());
              int messages = 0;
              for (std::uint16_t kind = 0; kind < 32; ++kind) {
                for (const std::size_t bytes : {0u, 1u, 4u, 17u, 100u, 1'000u, 60'000u}) {
                  const MessageHeader header{message_magic, protocol_version, kind};
                  std::vector<std::byte> message(sizeof(header) + bytes);
                  std::memcpy(message.data(), &header, sizeof(header));
                  for (std::size_t i = sizeof(header); i < message.size(); ++i) {
                    // Small numbers are more often a valid length or choice.
                    const std::uint64_t drawn = random.next();
                    message[i] =
                        static_cast<std::byte>(drawn % 3 == 0 ? drawn >> 8 : drawn >> 8 & 3);
                  }
                  // The message comes first, and later as one of a process and of a channel.
                  auto first = connect_to_agent(read_settings());
                  if (!first) return report("the agent is gone");
                  static_cast<void>(send_message(first->get(), message,
                                                 bytes % 2 == 0 ? some : std::vector<int>()));
                  for (const Purpose purpose : {Purpose::open, Purpose::connect}) {
                    Hello hello = hello_to_open();
                    hello.purpose = purpose;
                    Talk talk = say(encode(hello));
                    if (!talk.answer || is_refused(talk)) return report("no place");
                    static_cast<void>(send_message(talk.connection.get(), message));
                    messages += 2;
                  }
                }
              }
              if (messages < 400) report("too few messages");
            }),
            "");
}

TEST_F(HostileUserTest, WhatIsOthersIsNotAStrangers) {
  const std::uint32_t slot = slot_;
  EXPECT_EQ(as_stranger([slot](const Report& report) {
              const UniqueFd memory(memfd_create("forged", MFD_CLOEXEC));
              const int both[] = {memory.get(), memory.get()};
              Rejoin rejoin;
              rejoin.slot = slot;
              rejoin.device.name = rejoin.choice.name = "tulle0";
              if (!is_refused(say(encode(rejoin), both))) report("rejoined as root");
              Hello hello = hello_to_open();
              hello.purpose = Purpose::find_peer;
              hello.slot = slot;
              if (!is_refused(say(encode(hello)))) report("got the table of root's memory");
              const Membership membership{slot, Gid::from_ipv4(0xE001'0203), false};
              if (!is_refused(say(encode(membership)))) report("joined a group for root");
              Talk own = say(encode(hello_to_open()));
              Opened opened;
              if (!own.answer || !decode(own.answer->bytes, opened)) return report("not opened");
              const Membership of_itself{opened.slot, Gid::from_ipv4(0xE001'0203), false};
              const Talk joined = say(encode(of_itself));
              MembershipChanged changed{-1};
              if (!joined.answer || !decode(joined.answer->bytes, changed) || changed.error != 0) {
                report("cannot join a group for itself");
              }
            }),
            "");
}

// A stranger's capture sees nothing of root's and keeps nobody from capturing.
TEST_F(HostileUserTest, CapturesOfUsersAreSeparate) {
  int begun[2];
  int ended[2];
  ASSERT_EQ(pipe2(begun, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ended, O_CLOEXEC), 0);
  Hello hello;
  hello.purpose = Purpose::capture;
  hello.ring_bytes = 1 << 20;
  std::thread root([&] {
    char c;
    ASSERT_EQ(read(begun[0], &c, 1), 1);
    const Talk talk = say(encode(hello));
    EXPECT_TRUE(talk.answer && !is_refused(talk)) << "root captures all the same";
    auto source = await_message(talk.connection.get(), answer_milliseconds);
    CaptureSource of;
    EXPECT_TRUE(source && decode(source->bytes, of)) << "root's own process is captured";
    EXPECT_EQ(of.pid, getpid());
    ASSERT_EQ(write(ended[1], "", 1), 1);
  });
  EXPECT_EQ(as_stranger([&](const Report& report) {
              const Talk talk = say(encode(hello));
              if (!talk.answer || is_refused(talk)) report("cannot capture");
              if (!is_refused(say(encode(hello)))) report("captures twice");
              [[maybe_unused]] const ssize_t written = write(begun[1], "", 1);
              char c;
              [[maybe_unused]] const ssize_t taken = read(ended[0], &c, 1);
              auto source = await_message(talk.connection.get(), 100);
              if (source) report("was told of a process that is not its own");
            }),
            "");
  root.join();
  for (const int fd : {begun[0], begun[1], ended[0], ended[1]}) close(fd);
}

// Whoever closes such a descriptor last waits. The agent must not: it would serve nobody meanwhile.
TEST_F(HostileUserTest, TheAgentDoesNotWaitForDescriptorsThatLinger) {
  EXPECT_EQ(
      as_stranger([](const Report& report) {
        Talk process = say(encode(hello_to_open()));
        Hello connect = hello_to_open();
        connect.purpose = Purpose::connect;
        Talk channel = say(encode(connect));
        if (!process.answer || !channel.answer) return report("not served");
        const std::vector<std::byte> too_long(message_bytes_max + 1);
        const std::span<const std::byte> nothing;
        const auto list = encode(hello_to_open());
        const auto expose = encode(Expose{});
        Rejoin return_of_another;
        return_of_another.slot = 1;
        const auto rejoin = encode(return_of_another);
        const struct {
          int socket;
          std::span<const std::byte> bytes;
        } ways[] = {{-1, list},
                    {-1, rejoin},
                    {-1, nothing},
                    {-1, too_long},
                    {process.connection.get(), expose},
                    {channel.connection.get(), list},
                    {channel.answer->fds[0].get(), list}};
        std::vector<UniqueFd> peers(5 * std::size(ways));
        for (std::size_t n = 0; n < peers.size(); ++n) {
          const std::size_t i = n % std::size(ways);
          Lingering lingering = linger_for(60);
          if (!lingering.own) return report("no TCP");
          peers[n] = std::move(lingering.peer);
          const int both[] = {lingering.own.get(), lingering.own.get()};
          auto first = connect_to_agent(read_settings());
          if (!first) return report("the agent is gone");
          const int to = ways[i].socket < 0 ? first->get() : ways[i].socket;
          static_cast<void>(send_message(to, ways[i].bytes, {both, 1 + n / std::size(ways) % 2}));
          // The attacker waits too if it is the last to close.
          std::thread([fd = lingering.own.release()] { close(fd); }).detach();
        }
        process.connection.reset();
        channel.connection.reset();
        Hello hello;
        hello.purpose = Purpose::status;
        if (!say(encode(hello)).answer) report("the agent does not answer");
      }),
      "");
}

// A new connection that names a queue pair makes the peer end that queue pair's former one.
TEST_F(HostileUserTest, ConnectionsNameNoQueuePairsOfOthers) {
  const QpNumber victims = first_qp();
  EXPECT_EQ(as_stranger([&](const Report& report) {
              Hello hello = hello_to_open();
              hello.purpose = Purpose::connect;
              Talk channel = say(encode(hello));
              ChannelOpened opened;
              if (!channel.answer || !decode(channel.answer->bytes, opened)) report("no channel");
              Talk device = say(encode(hello_to_open()));
              Opened own;
              if (!device.answer || !decode(device.answer->bytes, own)) report("no device");
              const auto error_of = [&](const ConnectionCommand& command) {
                const int socket = channel.connection.get();
                if (!send_message(socket, encode(CommandMessage{0, command}))) return -1;
                auto answer = await_message(socket, answer_milliseconds);
                ReplyMessage reply;
                if (!answer || !decode(answer->bytes, reply)) return -1;
                const auto* failed = std::get_if<reply::Failed>(&reply.reply);
                return failed != nullptr ? failed->error : 0;
              };
              const auto tell = [&](std::uint32_t number) {
                command::Connect connect;
                connect.parameters.qp_number = number;
                command::Accept accept;
                accept.parameters.qp_number = number;
                return std::pair(error_of(connect), error_of(accept));
              };
              const std::pair refused(EPERM, EPERM);
              const std::pair unknown(EINVAL, EINVAL);  // no such endpoint
              if (tell(victims.value) != refused) report("root's was named");
              if (tell(victims.value | 0xFF00'0000) != refused)
                report("root's was named by 32 bits");
              if (tell(1) != refused) report("the agent's was named");
              if (tell(own.first_qp + own.qp_count) != refused) report("a former one was named");
              if (tell(own.first_qp) == refused) report("an own one was refused");
              if (tell(own.first_qp) != unknown) report("another error");
              if (tell(0) == refused) report("none was refused");
            }),
            "");
}

TEST_F(HostileUserTest, TheAgentSendsNoFramesForOthers) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              Hello hello;
              hello.purpose = Purpose::connect;
              hello.device = {.name = "tulle0", .interfaces = "lo", .roce = RoceVersions::v1};
              if (!is_refused(say(encode(hello)))) return report("a channel for RoCE v1");
              hello.device.roce = RoceVersions::both;
              if (is_refused(say(encode(hello)))) return report("no channel for RoCE v2");
            }),
            "");
}

TEST_F(HostileUserTest, NamesDoNotSteerTheTerminalsOfOthers) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              Hello named = hello_to_open();
              named.command = "\x1B[2Jname\r\n\x7F\xC2\x9B";
              const Talk own = say(encode(named));
              if (!own.answer || is_refused(own)) return report("not opened");
              Hello hello;
              hello.purpose = Purpose::status;
              const Talk talk = say(encode(hello));
              for (;;) {
                auto message = await_message(talk.connection.get(), answer_milliseconds);
                ProcessStatus process;
                if (!message || !decode(message->bytes, process)) break;
                if (process.uid != stranger) continue;
                if (process.command != "?[2Jname????") report("it is called " + process.command);
                return;
              }
              report("it is not listed");
            }),
            "");
}

// The agent keeps, compares and copies what a program calls things.
TEST_F(HostileUserTest, TextsHaveABound) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              const std::string longest(255, 'x');
              const std::vector<std::pair<const char*, std::function<void(Hello&)>>> wrong = {
                  {"a long name", [](Hello& hello) { hello.device.name.assign(64, 'x'); }},
                  {"an escape", [](Hello& hello) { hello.device.name = "\x1B[1m"; }},
                  {"interfaces", [](Hello& hello) { hello.device.interfaces.assign(1'025, ','); }},
                  {"a command", [&](Hello& hello) { hello.command = longest + 'x'; }},
                  {"a file", [&](Hello& hello) { hello.file = longest + 'x'; }},
              };
              for (const auto& [what, change] : wrong) {
                for (const Purpose purpose :
                     {Purpose::open, Purpose::connect, Purpose::list, Purpose::attribute}) {
                  Hello hello = hello_to_open();
                  hello.purpose = purpose;
                  change(hello);
                  if (!is_refused(say(encode(hello)))) report(what);
                }
              }
              Hello hello = hello_to_open();
              hello.command = longest;
              hello.device.name.assign(63, 'x');
              if (is_refused(say(encode(hello)))) report("the longest texts are refused");
            }),
            "");
}

TEST_F(HostileUserTest, OneUserHasDevicesOfFewKinds) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              std::vector<Talk> held;
              int refused = 0;
              for (int i = 0; i < 40; ++i) {
                Hello hello = hello_to_open();
                hello.purpose = i % 2 == 0 ? Purpose::connect : Purpose::open;
                hello.device.name = "kind" + std::to_string(i);
                held.push_back(say(encode(hello)));
                refused += is_refused(held.back()) ? 1 : 0;
              }
              if (refused != 24) report("refused: " + std::to_string(refused));
              Hello known = hello_to_open();
              known.device.name = "kind0";
              if (is_refused(say(encode(known)))) report("a kind that is there is refused");
            }),
            "");
}

TEST_F(HostileUserTest, OneUserTakesHalfOfThePlacesAtMost) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              std::vector<Talk> held;
              int places = 0;
              for (int i = 0; i < 130; ++i) {
                held.push_back(say(encode(hello_to_open())));
                Opened opened;
                if (held.back().answer && decode(held.back().answer->bytes, opened)) ++places;
              }
              if (places != 64) report("has " + std::to_string(places) + " places");
              // While they are held, another user of the device is served.
              Hello hello = hello_to_open();
              hello.purpose = Purpose::list;
              if (!say(encode(hello)).answer) report("the agent does not answer");
            }),
            "");
}

// Opens the device until it is refused. Returns how often it was opened.
int take_places(std::vector<Talk>& held) {
  int places = 0;
  for (int i = 0; i < 70; ++i) {
    held.push_back(say(encode(hello_to_open())));
    Opened opened;
    places += held.back().answer && decode(held.back().answer->bytes, opened);
  }
  return places;
}

// Somebody may have several users, as by /etc/subuid.
TEST_F(HostileUserTest, AllUsersTogetherLeavePlacesToRoot) {
  int ready[2], leave[2];
  ASSERT_EQ(pipe(ready) | pipe(leave), 0);
  char byte = 0;
  std::string first;
  std::thread holder([&] {
    first = as_stranger([&](const Report& report) {
      std::vector<Talk> held;
      report(std::to_string(take_places(held)));
      if (write(ready[1], &byte, 1) == 1 && read(leave[0], &byte, 1) != 1) report("no pipe");
    });
  });
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  const std::string second = as_stranger(
      [](const Report& report) {
        std::vector<Talk> held;
        report(std::to_string(take_places(held)));
      },
      stranger - 1);
  EXPECT_EQ(write(leave[1], &byte, 1), 1);
  holder.join();
  for (const int fd : {ready[0], ready[1], leave[0], leave[1]}) close(fd);
  EXPECT_EQ(first, "64\n");
  EXPECT_EQ(second, "47\n") << "16 of 127 places are root's";
}

// Reads what has come, and returns how many descriptors came with it.
std::size_t take_descriptors(const Talk& talk) {
  std::size_t count = 0;
  while (auto message = receive_message(talk.connection.get())) count += message->fds.size();
  return count;
}

// Linux counts them for root, and the agent could send none to anybody.
TEST_F(HostileUserTest, DescriptorsThatNobodyReadsAreLimited) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              std::vector<Talk> devices, captures;
              const int places = take_places(devices);
              Hello hello;
              hello.purpose = Purpose::capture;
              hello.ring_bytes = 1 << 16;
              Hello list;
              list.purpose = Purpose::list;
              const std::vector<std::byte> rubbish(1);
              const auto capture = [&] {
                captures.push_back(say(encode(hello)));
                if (!captures.back().answer) report("no capture");
                say(encode(list));  // the agent has begun it
                static_cast<void>(send_message(captures.back().connection.get(), rubbish));
                say(encode(list));  // and ended it
              };
              for (int i = 0; i < 30; ++i) capture();
              std::size_t unread = 0;
              for (const Talk& each : captures) unread += take_descriptors(each);
              for (const Talk& each : devices) unread += take_descriptors(each);
              if (unread > 512) report(std::to_string(unread) + " unread");
              capture();
              const std::size_t rings = take_descriptors(captures.back());
              if (rings != static_cast<std::size_t>(places)) {
                report("a reader gets " + std::to_string(rings) + " rings");
              }
            }),
            "");
}

// Sends messages with 253 descriptors each until the agent takes no more. The agent closes them in
// order, and this process its own in the other one: where they meet, the agent has the last one,
// and waits for it, unless it was too fast. Returns how many messages the agent has taken, or -1.
int send_slow_descriptors(std::vector<UniqueFd>& peers) {
  constexpr int slow_ones = 32;
  Hello connect = hello_to_open();
  connect.purpose = Purpose::connect;
  Talk channel = say(encode(connect));
  if (!channel.answer) return -1;
  const int socket = channel.connection.get();
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<int> many(253, null.get());
  for (std::size_t i = 0; i < slow_ones; ++i) {
    Lingering slow = linger_for(60);
    if (!slow.own) return -1;
    many[i] = slow.own.release();
    peers.push_back(std::move(slow.peer));
  }
  std::atomic<bool> is_sent{false};
  std::thread closing([&is_sent, many] {
    while (!is_sent) std::this_thread::yield();
    for (int i = slow_ones - 1; i >= 0; --i) {
      std::thread([fd = many[static_cast<std::size_t>(i)]] { close(fd); }).detach();
    }
  });
  int taken = 0;
  for (; taken < 20; ++taken) {
    const bool was_sent =
        bool{send_message(socket, encode(CommandMessage{0, command::Query{}}), many)};
    is_sent = true;
    if (closing.joinable()) closing.join();
    if (!was_sent) break;
    auto answer = await_message(socket, answer_milliseconds);
    Refused refused;
    if (!answer || decode(answer->bytes, refused)) break;
    many.assign(many.size(), null.get());
  }
  return taken;
}

TEST_F(HostileUserTest, DescriptorsOfOneUserAreLimited) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              std::vector<UniqueFd> peers;
              int taken = 20;
              for (int tries = 0; tries < 10 && taken > 3; ++tries) {
                taken = send_slow_descriptors(peers);
              }
              if (taken < 0 || taken > 3) report(std::to_string(taken) + " messages");
            }),
            "");
}

// Counts a process's open files until this object goes. A thread does this.
class FileCount {
 public:
  explicit FileCount(pid_t process) {
    counting_ = std::thread([this, folder = "/proc/" + std::to_string(process) + "/fd"] {
      while (!is_over_) {
        std::error_code error;
        const std::filesystem::directory_iterator files(folder, error);
        if (!error) most_ = std::max(most_, std::distance(std::filesystem::begin(files), {}));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  std::ptrdiff_t most() {
    is_over_ = true;
    if (counting_.joinable()) counting_.join();
    return most_;
  }
  ~FileCount() { most(); }

 private:
  std::atomic<bool> is_over_{false};
  std::ptrdiff_t most_ = 0;
  std::thread counting_;
};

// Connects and goes, with or without a message that nobody will read, while a descriptor of the
// same user closes slowly.
TEST_F(HostileUserTest, ConnectionsThatEndDoNotPileUp) {
  FileCount files(agent_->pid());
  int sent[2];
  ASSERT_EQ(pipe2(sent, O_CLOEXEC), 0);
  kill(agent_->pid(), SIGSTOP);  // it must not close a descriptor before its sender does
  std::thread going_on([&] {
    char byte;
    EXPECT_EQ(read(sent[0], &byte, 1), 1);
    kill(agent_->pid(), SIGCONT);
  });
  EXPECT_EQ(as_stranger([&](const Report& report) {
              std::vector<UniqueFd> peers;
              auto first = connect_to_agent(read_settings());
              Lingering unread = linger_for(60);
              const std::array<int, 1> slow = {unread.own.get()};
              if (!first || !send_message(first->get(), std::vector<std::byte>(1)) ||
                  !send_message(first->get(), std::vector<std::byte>(1), slow)) {
                report("cannot send");
              }
              unread.own.reset();
              if (write(sent[1], "", 1) != 1) report("no pipe");
              if (send_slow_descriptors(peers) < 0) return report("not served");
              const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
              const std::array<int, 2> some = {null.get(), null.get()};
              for (int i = 0; i < 6'000; ++i) {
                auto connection = connect_patiently(read_settings().agent, answer_milliseconds);
                if (!connection) return report("cannot connect");
                for (int n = 0; n < i % 3; ++n) {
                  static_cast<void>(send_message(connection->get(), encode(Publish{}), some));
                }
              }
              Hello hello;
              hello.purpose = Purpose::list;
              if (!say(encode(hello)).answer) report("the agent does not answer");
            }),
            "");
  going_on.join();
  for (const int fd : sent) close(fd);
  // 764 descriptors that close slowly, 1,024 connections just being closed, and the agent's own.
  EXPECT_LT(files.most(), 2'200);
}

TEST_F(HostileUserTest, ConnectionsOfOneUserAreLimited) {
  EXPECT_EQ(as_stranger([](const Report& report) {
              std::vector<UniqueFd> held;
              int refused = 0;
              for (int i = 0; i < 700; ++i) {
                auto connection = connect_to_agent(read_settings());
                if (!connection) continue;
                held.push_back(std::move(*connection));
              }
              for (const UniqueFd& connection : held) {
                auto message = await_message(connection.get(), 3);
                Refused answer;
                if (message && decode(message->bytes, answer)) ++refused;
              }
              if (refused < 100) report("only " + std::to_string(refused) + " were refused");
            }),
            "");
}

}  // namespace
}  // namespace tulle::live
