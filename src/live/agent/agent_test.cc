// Tests the host agent and its processes over real sockets of a private network namespace.

#include "live/agent/agent.h"
#include "base/folder_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "live/message/connection.h"
#include "live/path/packets/socket_group.h"
#include "live/path/packets/udp_socket.h"
#include "live/process/agent_client.h"
#include "live/process/device.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Status {
  AgentStatus agent;
  std::vector<ProcessStatus> processes;
};

Status status_now() {
  Status status;
  Hello hello;
  hello.purpose = Purpose::status;
  auto answer = ask_agent(read_settings(), hello, IfAbsent::fail);
  if (!answer) {
    ADD_FAILURE() << answer.error().message;
    return status;
  }
  EXPECT_TRUE(decode(answer->message.bytes, status.agent));
  for (;;) {
    auto message = await_message(answer->connection.get(), 2'000);
    ProcessStatus process;
    if (!message || !decode(message->bytes, process)) break;
    status.processes.push_back(process);
  }
  return status;
}

std::string error_of_devices() {
  auto list = devices();
  return list ? "" : list.error().message;
}

void ignore_event(const device::Event&) {}

std::shared_ptr<Device> open_device(const char* name) {
  auto device = Device::open(name, ignore_event);
  if (device) return *device;
  ADD_FAILURE() << device.error().message;
  return nullptr;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + 5s;
  while (Clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(20ms);
  }
  return false;
}

class AgentTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    setenv("TULLE_EXECUTABLE", "/bin/false", 1);  // prevents any agent but the test's own
  }
  void TearDown() override { unsetenv("TULLE_EXECUTABLE"); }
  std::uint16_t port() { return read_settings().port; }
};

TEST_F(AgentTest, DescribesTheLoopbackDevice) {
  TestAgent agent;
  auto list = devices();
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 1u);
  const DeviceInfo& device = list->front();
  EXPECT_EQ(device.name, "tulle0");
  EXPECT_EQ(device.mtu_bytes, 4096u);
  EXPECT_TRUE(device.port_active);
  EXPECT_NE(device.node_guid, 0u);
  ASSERT_GE(device.gids.size(), 1u);
  EXPECT_EQ(device.gids[0].gid, Gid::from_ipv4(0x7F00'0001));
  EXPECT_EQ(device.gids[0].interface, "lo");
}

// Returns the time for which a process has had a processor.
std::chrono::milliseconds processor_time(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return std::chrono::milliseconds((user + system) * 1'000 / sysconf(_SC_CLK_TCK));
}

// A process such as lsof holds an agent's descriptor for a moment, in which the agent may close it.
TEST_F(AgentTest, WhoeverLooksAtItsDescriptorsLeavesNoSessionBehind) {
  TestAgent agent;
  auto client = connect_to_agent(read_settings());
  ASSERT_TRUE(client);
  ASSERT_TRUE(devices());  // the agent has accepted the client too
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, agent.pid(), 0)));
  std::vector<UniqueFd> held;
  for (int fd = 3; fd < 400; ++fd) {
    held.emplace_back(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), fd, 0)));
  }
  if (std::ranges::none_of(held, [](const UniqueFd& fd) { return bool(fd); })) {
    GTEST_SKIP() << "this user may not look at the agent's descriptors";
  }
  client->reset();
  ASSERT_TRUE(devices());  // the session has ended
  const auto before = processor_time(agent.pid());
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_time(agent.pid()) - before, 50ms) << "the agent finds something to do";
  EXPECT_TRUE(devices());
}

TEST_F(AgentTest, NamesComeFromTheProgram) {
  TestAgent agent;
  setenv("TULLE_DEVICE", "mlx5_0", 1);
  auto list = devices();
  unsetenv("TULLE_DEVICE");
  ASSERT_TRUE(list);
  EXPECT_EQ(list->front().name, "mlx5_0");
}

TEST_F(AgentTest, AnUnknownInterfaceIsRefused) {
  TestAgent agent;
  setenv("TULLE_INTERFACE", "nosuch0", 1);
  const std::string error = error_of_devices();
  unsetenv("TULLE_INTERFACE");
  EXPECT_NE(error.find("no network interface \"nosuch0\""), std::string::npos) << error;
}

TEST_F(AgentTest, NoAgentAndNoneToStart) {
  const Folder folder;
  const std::string program = folder.path("tulle");
  std::filesystem::copy_file(std::filesystem::canonical("/bin/false"), program);
  setenv("TULLE_EXECUTABLE", program.c_str(), 1);
  const std::string error = error_of_devices();
  EXPECT_NE(error.find("did not start"), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST_F(AgentTest, EachDeviceHasItsOwnSlotAndNumbers) {
  TestAgent agent;
  const auto one = open_device("one");
  const auto two = open_device("two");
  ASSERT_TRUE(one && two);
  const Status status = status_now();
  EXPECT_EQ(status.agent.pid, agent.pid());
  ASSERT_EQ(status.processes.size(), 2u);
  EXPECT_NE(status.processes[0].slot, status.processes[1].slot);
  for (const ProcessStatus& process : status.processes) {
    EXPECT_NE(process.slot, agent_slot);
    EXPECT_EQ(process.pid, getpid());
    EXPECT_TRUE(process.connected);
    EXPECT_EQ(slot_of(QpNumber(process.first_qp)), process.slot);
    EXPECT_EQ(slot_of(QpNumber(process.first_qp + process.qp_count - 1)), process.slot);
  }
}

TEST_F(AgentTest, OpenTwiceIsOneDevice) {
  TestAgent agent;
  const auto one = open_device("tulle0");
  EXPECT_EQ(one, open_device("tulle0"));
  EXPECT_EQ(status_now().processes.size(), 1u);
}

TEST_F(AgentTest, AClosedDeviceFreesItsSlot) {
  TestAgent agent;
  open_device("tulle0").reset();
  EXPECT_TRUE(eventually([] { return status_now().processes.empty(); }));
}

TEST_F(AgentTest, ProcessesOutliveTheirAgentAndTheNextOneFindsThem) {
  TestAgent agent;
  const auto one = open_device("one");
  const auto two = open_device("two");
  ASSERT_TRUE(one && two);
  const Status before = status_now();
  agent.stop(SIGKILL);
  std::this_thread::sleep_for(50ms);
  agent.start();
  ASSERT_TRUE(eventually([] {
    const Status status = status_now();
    return status.processes.size() == 2 && status.processes[0].connected &&
           status.processes[1].connected;
  }));
  const Status after = status_now();
  EXPECT_NE(after.agent.pid, before.agent.pid);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(after.processes[i].slot, before.processes[i].slot);
    EXPECT_EQ(after.processes[i].first_qp, before.processes[i].first_qp);
    EXPECT_EQ(after.processes[i].device, before.processes[i].device);
  }
  // A new process takes a slot of the same group.
  const auto three = open_device("three");
  ASSERT_TRUE(three);
  EXPECT_EQ(status_now().processes.size(), 3u);
}

TEST_F(AgentTest, APortThatAnotherProgramHasIsNamed) {
  auto foreign = bind_udp(port(), PortUse::exclusive);
  ASSERT_TRUE(foreign) << foreign.error().message;
  const pid_t pid = fork();
  if (pid == 0) {
    AgentOptions options;
    options.settings = read_settings();
    _exit(run_agent(options));
  }
  // While the agent waits for survivors, a client must wait, and is then told.
  std::string error;
  EXPECT_TRUE(eventually([&] {
    error = error_of_devices();
    return error.find("in use") != std::string::npos;
  })) << error;
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(AgentTest, APortThatIsFreeAMomentLaterIsTaken) {
  auto bound = bind_udp(port(), PortUse::exclusive);
  ASSERT_TRUE(bound) << bound.error().message;
  const pid_t leaving = fork();
  if (leaving == 0) {
    std::this_thread::sleep_for(200ms);
    _exit(0);
  }
  bound->reset();
  TestAgent agent;  // the constructor returns when the agent is ready
  EXPECT_TRUE(devices());
  waitpid(leaving, nullptr, 0);
}

TEST_F(AgentTest, SomebodyOnTheSocketWhoSaysNothingIsNamed) {
  auto listener = listen_at(read_settings().agent);
  ASSERT_TRUE(listener);
  const std::string hanging = error_of_devices();
  EXPECT_NE(hanging.find(fmt::format("process {} at the agent socket", getpid())),
            std::string::npos)
      << hanging;
  EXPECT_NE(hanging.find("did not answer within 2000 ms"), std::string::npos) << hanging;
}

TEST_F(AgentTest, RubbishIsRefused) {
  TestAgent agent;
  auto connection = connect_to_agent(read_settings());
  ASSERT_TRUE(connection);
  const std::string rubbish = "GET / HTTP/1.1";
  ASSERT_TRUE(send_message(connection->get(), std::as_bytes(std::span(rubbish))));
  auto answer = await_message(connection->get(), 2'000);
  ASSERT_TRUE(answer);
  Refused refused;
  EXPECT_TRUE(decode(answer->bytes, refused));
  EXPECT_TRUE(devices());  // other clients are not disturbed
}

SocketAddress loopback(std::uint16_t at_port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(at_port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&name), sizeof(name));
}

// A channel for connections, with one endpoint.
struct Channel {
  UniqueFd connection;
  UniqueFd events;
  EndpointId endpoint;

  template <typename Reply>
  std::optional<Reply> execute(ConnectionCommand command) {
    ReplyMessage answer;
    if (!send_message(connection.get(), encode(CommandMessage{0, std::move(command)}))) return {};
    auto message = await_message(connection.get(), 2'000);
    if (!message || !decode(message->bytes, answer)) return {};
    const auto* reply = std::get_if<Reply>(&answer.reply);
    return reply == nullptr ? std::nullopt : std::optional<Reply>(*reply);
  }
  bool bind(std::uint16_t to_port) {
    return execute<reply::Bound>(command::Bind{endpoint, loopback(to_port)}).has_value();
  }
};

Channel open_channel() {
  Hello hello;
  hello.purpose = Purpose::connect;
  hello.device = read_settings().device;
  auto answer = ask_agent(read_settings(), hello, IfAbsent::fail);
  if (!answer || answer->message.fds.size() != 1) {
    ADD_FAILURE() << "no channel";
    return {};
  }
  Channel channel{std::move(answer->connection), std::move(answer->message.fds[0]), {}};
  auto created =
      channel.execute<reply::Created>(command::Create{PortSpace::tcp, ConnectionQpType::rc});
  EXPECT_TRUE(created);
  if (created) channel.endpoint = created->endpoint;
  return channel;
}

TEST_F(AgentTest, RubbishEndsAChannelWithAllThatItHolds) {
  TestAgent agent;
  Channel channel = open_channel();
  ASSERT_TRUE(channel.bind(7'471));
  Channel another = open_channel();
  EXPECT_FALSE(another.bind(7'471)) << "the port is taken";
  const std::string rubbish = "GET / HTTP/1.1";
  ASSERT_TRUE(send_message(channel.connection.get(), std::as_bytes(std::span(rubbish))));
  ASSERT_TRUE(await_message(channel.connection.get(), 2'000));
  EXPECT_TRUE(another.bind(7'471));
}

TEST_F(AgentTest, EventsThatNobodyCanHearKeepItNotBusy) {
  TestAgent agent;
  Channel channel = open_channel();
  channel.events.reset();
  ASSERT_TRUE(channel.execute<reply::Done>(
      command::ResolveAddress{channel.endpoint, SocketAddress{}, loopback(7'471)}));
  const auto before = processor_time(agent.pid());
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_time(agent.pid()) - before, 100ms) << "the agent finds something to do";
}

TEST_F(AgentTest, AnotherVersionIsTold) {
  TestAgent agent;
  auto connection = connect_to_agent(read_settings());
  ASSERT_TRUE(connection);
  std::vector<std::byte> hello = encode(Hello{});
  const std::uint16_t version = protocol_version + 1;
  std::memcpy(hello.data() + offsetof(MessageHeader, version), &version, sizeof(version));
  ASSERT_TRUE(send_message(connection->get(), hello));
  auto answer = await_message(connection->get(), 2'000);
  ASSERT_TRUE(answer);
  Refused refused;
  ASSERT_TRUE(decode(answer->bytes, refused));
  EXPECT_NE(refused.reason.find("another version"), std::string::npos) << refused.reason;
}

TEST_F(AgentTest, LeavesWhenIdle) {
  const pid_t pid = fork();
  if (pid == 0) {
    AgentOptions options;
    options.settings = read_settings();
    options.settings.idle_exit_seconds = 1;
    _exit(run_agent(options));
  }
  int status = 0;
  EXPECT_TRUE(eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(status, 0);
}

// One that is to stay has nothing to do while nobody comes.
TEST_F(AgentTest, OneThatStaysSleepsWhileItIsIdle) {
  setenv("TULLE_IDLE_EXIT", "1", 1);
  TestAgent agent;
  unsetenv("TULLE_IDLE_EXIT");
  std::this_thread::sleep_for(1'200ms);
  const auto before = processor_time(agent.pid());
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_time(agent.pid()) - before, 100ms) << "the agent finds something to do";
  EXPECT_TRUE(devices());
}

// A child that never calls exec inherits all descriptors. It must not keep the port from the next
// agent once the program and its agent are gone, even if it may open no descriptor.
class ForkedChildTest : public AgentTest, public testing::WithParamInterface<bool> {};

TEST_P(ForkedChildTest, DoesNotHoldThePort) {
  const bool has_descriptors = GetParam();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  TestAgent agent;
  const pid_t program = fork();
  if (program == 0) {
    const auto device = open_device("tulle0");
    const rlimit none{0, 0};
    if (!has_descriptors) setrlimit(RLIMIT_NOFILE, &none);
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    [[maybe_unused]] const ssize_t written = write(ends[1], &child, sizeof(child));
    for (;;) pause();
  }
  pid_t child = -1;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), ssize_t{sizeof(child)});
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  agent.stop(SIGKILL);
  EXPECT_TRUE(eventually([&] { return bool{bind_udp(port(), PortUse::exclusive)}; }));
  EXPECT_EQ(kill(child, SIGKILL), 0) << "the child lives all the while";
  close(ends[0]);
  close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(AgentTest, ForkedChildTest, testing::Bool());

// The handler runs while its own thread holds the device's lock.
TEST_F(AgentTest, AProgramMayExitInASignalHandlerWhileItPolls) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer reports calls of exit() in a signal handler";
#endif
  TestAgent agent;
  for (int i = 0; i < 20; ++i) {
    const pid_t program = fork();
    if (program == 0) {
      const auto device = open_device("tulle0");
      std::signal(SIGALRM, [](int) { std::_Exit(3); });
      std::signal(SIGUSR1, [](int) { exit(0); });
      alarm(5);
      const auto lock = device->lock();
      raise(SIGUSR1);
      for (;;) device->progress();
    }
    int status = 0;
    waitpid(program, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST_F(AgentTest, AStoppedAgentHoldsNoConnectionUp) {
  TestAgent agent;
  const auto device = open_device("tulle0");
  ASSERT_TRUE(device);
  const auto lock = device->lock();
  device::Adapter& adapter = device->adapter();
  verbs::VerbsStatus status{};
  auto* pd = adapter.objects().create_pd(status);
  auto* cq = adapter.objects().create_cq(16, nullptr, status);
  transport::QueuePairInit init;
  init.pd = pd;
  init.send_cq = init.receive_cq = cq;
  init.send_work_requests = init.receive_work_requests = 1;
  init.send_sges = init.receive_sges = 1;
  kill(agent.pid(), SIGSTOP);
  const auto before = Clock::now();
  constexpr int connections = 20;
  for (int i = 0; i < connections; ++i) {
    transport::QueuePair* qp = adapter.create_qp(init, status);
    ASSERT_NE(qp, nullptr);
    using enum verbs::QpAttribute;
    transport::QueuePairAttributes to;
    to.state = verbs::QpState::init;
    ASSERT_EQ(adapter.modify(*qp, to,
                             verbs::QpAttributeMask(state) | pkey_index | verbs::QpAttribute::port |
                                 access_flags),
              verbs::VerbsStatus::ok);
    to.state = verbs::QpState::rtr;
    to.path_mtu = verbs::Mtu::b1024;
    to.destination_qp = qp->number;
    to.address.destination = device->info().gids[0].gid;
    ASSERT_EQ(adapter.modify(*qp, to,
                             verbs::QpAttributeMask(state) | address_vector | path_mtu |
                                 destination_qp | rq_psn | max_dest_rd_atomic | min_rnr_timer),
              verbs::VerbsStatus::ok);
    to.state = verbs::QpState::rts;
    ASSERT_EQ(adapter.modify(*qp, to,
                             verbs::QpAttributeMask(state) | sq_psn | timeout | retry_count |
                                 rnr_retry | max_rd_atomic),
              verbs::VerbsStatus::ok);
    const verbs::Sge sge{};
    verbs::SendRequest request;
    request.opcode = verbs::SendOpcode::write;
    request.sges = {&sge, 0};
    ASSERT_EQ(adapter.post_send(*qp, request), verbs::VerbsStatus::ok);
    device->transmit();
  }
  const auto taken = Clock::now() - before;
  kill(agent.pid(), SIGCONT);
  EXPECT_LT(taken, 1s) << "2 s for each connection would be 40 s";
}

TEST_F(AgentTest, AForkedChildHasNoDeviceButMayOpenItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in a child of a process with threads";
#endif
  TestAgent agent;
  const auto device = open_device("tulle0");
  ASSERT_TRUE(device);
  const pid_t pid = fork();
  if (pid == 0) {
    {
      const auto lock = device->lock();
      device->progress();
    }
    auto own = Device::open("tulle0", ignore_event);
    const bool is_new = own && *own != device;
    _exit(is_new && status_now().processes.size() == 2 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(eventually([] { return status_now().processes.size() == 1; }));
}

}  // namespace
}  // namespace tulle::live
