#include "live/fabric/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/folder_test.h"
#include "fabric/machines/placement.h"
#include "fabric/subnet.h"
#include "live/bell.h"
#include "live/fabric/client.h"
#include "live/fabric/datagrams.h"
#include "live/fabric/fabric_folder.h"
#include "live/fabric/fabric_process_test.h"
#include "live/message/connection.h"
#include "live/message/lingering_test.h"
#include "live/message/socket.h"
#include "management/answer.h"
#include "management/waiting_questions.h"
#include "os/free_ports_test.h"
#include "rdma/wire/rmpp.h"
#include "rdma/wire/smp.h"

namespace tulle::live {
namespace {

constexpr std::uint8_t vendor_class = 0x32;

// A fabric of one switch and two hosts.
class FabricServerTest : public testing::Test {
 protected:
  void SetUp() override {
    FabricOptions options;
    options.folder = folder_;
    options.topology = *fabric::single_switch({2, {}});
    child_ = start(options);
    ASSERT_GT(child_, 0);
  }
  void TearDown() override { stop(child_); }

  FabricPlace place(const std::string& host) const { return {fabric_socket(folder_), host}; }
  FabricPortClient open(const std::string& host) {
    auto client = FabricPortClient::open(place(host));
    EXPECT_TRUE(client);
    return std::move(*client);
  }
  // True if the fabric still answers.
  bool is_well() { return static_cast<bool>(describe_host(place("h0"))); }
  // Gives a host its LID, as a manager does.
  void set_lid(const std::string& host, std::uint16_t lid);
  std::uint32_t register_subnet(FabricPortClient& client) {
    auto agent = client.add({wire::subnet_directed_class, 1, 0, {}, false});
    EXPECT_TRUE(agent);
    return *agent;
  }

  Folder files_;
  std::string folder_ = files_.path("fabric");
  pid_t child_ = -1;
};

// Asks the own node by a route without hops.
Datagram question(std::uint32_t agent) {
  Datagram out;
  out.agent = agent;
  out.lid = wire::permissive_lid;
  out.timeout_milliseconds = 1'000;
  out.bytes.resize(wire::mad_bytes);
  wire::MadHeader header;
  header.management_class = wire::subnet_directed_class;
  header.class_version = 1;
  header.method = management::method_get;
  header.transaction_id = 5;
  header.attribute_id = wire::attribute_node_info;
  std::memcpy(out.bytes.data(), &header, sizeof header);
  wire::SubnetHeader subnet;
  subnet.directed_source = subnet.directed_destination = wire::permissive_lid;
  std::memcpy(out.bytes.data() + wire::subnet_header_offset, &subnet, sizeof subnet);
  return out;
}

std::optional<Datagram> next_from(int descriptor, int milliseconds = 5'000) {
  pollfd entry{descriptor, POLLIN, 0};
  if (poll(&entry, 1, milliseconds) != 1) return std::nullopt;
  auto datagram = receive_datagram(descriptor);
  if (!datagram) return std::nullopt;
  return std::move(*datagram);
}

void FabricServerTest::set_lid(const std::string& host, std::uint16_t lid) {
  FabricPortClient client = open(host);
  Datagram request = question(register_subnet(client));
  request.bytes[3] = std::byte{management::method_set};
  request.bytes[17] = std::byte{wire::attribute_port_info};
  wire::PortInfo info;
  info.lid = lid;
  std::memcpy(request.bytes.data() + wire::subnet_data_offset, &info, sizeof info);
  ASSERT_TRUE(send_datagram(client.descriptor(), request));
  ASSERT_TRUE(next_from(client.descriptor()));
  ASSERT_EQ(describe_host(place(host))->port.lid, lid);
}

TEST_F(FabricServerTest, AnswersAQuestion) {
  FabricPortClient client = open("h0");
  const std::uint32_t agent = register_subnet(client);
  ASSERT_TRUE(send_datagram(client.descriptor(), question(agent)));
  const auto answer = next_from(client.descriptor());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->agent, agent);
  EXPECT_EQ(answer->status, 0u);
  EXPECT_EQ(std::to_integer<int>(answer->bytes[3]), management::method_get_response);
}

TEST_F(FabricServerTest, AQuestionWithoutAnAnswerComesBack) {
  FabricPortClient client = open("h0");
  Datagram lost = question(register_subnet(client));
  lost.bytes[7] = std::byte{1};  // one hop, by port 0
  lost.timeout_milliseconds = 20;
  ASSERT_TRUE(send_datagram(client.descriptor(), lost));
  const auto back = next_from(client.descriptor());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->status, static_cast<std::uint32_t>(ETIMEDOUT));
}

// The questions of a process count together, however often it opens the port.
TEST_F(FabricServerTest, AProcessHasOneShareOfTheWaitingQuestions) {
  FabricPortClient first = open("h0");
  FabricPortClient second = open("h0");
  Datagram lost = question(register_subnet(first));
  lost.bytes[7] = std::byte{1};  // one hop, by port 0
  lost.timeout_milliseconds = 60'000;
  for (std::size_t sent = 0; sent <= management::WaitingQuestions::questions_of_program_max;) {
    const auto done = send_datagram(first.descriptor(), lost);
    if (done) {
      ++sent;
    } else {
      ASSERT_EQ(done.error().error_number, EAGAIN);
      usleep(100);
    }
  }
  ASSERT_TRUE(next_from(first.descriptor())) << "one is too many, and comes back";
  EXPECT_FALSE(next_from(first.descriptor(), 0)) << "the others wait";
  lost.agent = register_subnet(second);
  ASSERT_TRUE(send_datagram(second.descriptor(), lost));
  const auto back = next_from(second.descriptor());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->status, static_cast<std::uint32_t>(ETIMEDOUT));
}

TEST_F(FabricServerTest, KnowsItsHostsAlone) {
  for (const std::string host : {"h2", "switch0", "", "h-1"}) {
    EXPECT_FALSE(describe_host(place(host))) << host;
    EXPECT_FALSE(FabricPortClient::open(place(host))) << host;
  }
  EXPECT_TRUE(is_well());
}

TEST_F(FabricServerTest, ClassesAreFreeAgainWhenTheirProgramEnds) {
  {
    FabricPortClient first = open("h0");
    ASSERT_TRUE(first.add({vendor_class, 1, 0x1405, {2, 0}, false}));
    FabricPortClient second = open("h0");
    auto taken = second.add({vendor_class, 1, 0x1405, {2, 0}, false});
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().error_number, EPERM);
    FabricPortClient elsewhere = open("h1");
    EXPECT_TRUE(elsewhere.add({vendor_class, 1, 0x1405, {2, 0}, false}));
  }
  FabricPortClient third = open("h0");
  for (int tries = 0; tries < 500; ++tries) {
    if (third.add({vendor_class, 1, 0x1405, {2, 0}, false})) return;
    usleep(10'000);
  }
  FAIL() << "the class is still taken";
}

TEST_F(FabricServerTest, EndsWhoeverSendsWhatIsNoMessage) {
  for (const std::size_t bytes : {1, 12, 100, 1'000}) {
    auto connection = connect_to(fabric_socket(folder_));
    ASSERT_TRUE(connection);
    const std::vector<std::byte> noise(bytes, std::byte{0x5A});
    ASSERT_TRUE(send_message(connection->get(), noise));
    FabricPortClient client = open("h0");
    ASSERT_TRUE(send_message(client.descriptor(), noise));
    EXPECT_FALSE(next_from(client.descriptor()));
  }
  EXPECT_TRUE(is_well());
}

// A file that its writer may still change could shrink while it is read, or never end.
TEST_F(FabricServerTest, TakesOnlySealedFiles) {
  FabricPortClient client = open("h0");
  Datagram datagram = question(register_subnet(client));
  datagram.bytes.clear();
  const auto sends = [&](int file) {
    const std::array<int, 1> fds = {file};
    return static_cast<bool>(send_message(client.descriptor(), encoded(datagram), fds));
  };
  const UniqueFd unsealed(memfd_create("datagram", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  ASSERT_TRUE(sends(unsealed.get()));
  EXPECT_FALSE(next_from(client.descriptor()));  // the fabric has closed the port
  FabricPortClient other = open("h0");
  register_subnet(other);
  const UniqueFd endless(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const std::array<int, 1> fds = {endless.get()};
  ASSERT_TRUE(send_message(other.descriptor(), encoded(datagram), fds));
  EXPECT_FALSE(next_from(other.descriptor()));
  EXPECT_TRUE(is_well());
}

// A datagram of a megabyte goes from one program to another in five thousand segments. The fabric
// reads five megabytes in several turns.
TEST_F(FabricServerTest, CarriesLongDatagrams) {
  set_lid("h0", 3);
  FabricPortClient receiver = open("h0");
  ASSERT_TRUE(receiver.add({wire::subnet_administration_class, 2, 0, {1u << 0x12, 0}, true}));
  FabricPortClient sender = open("h0");
  auto agent = sender.add({wire::subnet_administration_class, 2, 0, {}, true});
  ASSERT_TRUE(agent);
  Datagram datagram;
  datagram.agent = *agent;
  datagram.lid = 3;
  datagram.qp = 1;
  for (const std::size_t bytes : {1u << 20, 5u << 20}) {
    datagram.bytes.resize(bytes);
    for (std::size_t i = 56; i < bytes; ++i) datagram.bytes[i] = static_cast<std::byte>(i % 251);
    wire::MadHeader header;
    header.management_class = wire::subnet_administration_class;
    header.class_version = 2;
    header.method = 0x12;
    header.transaction_id = bytes;
    std::memcpy(datagram.bytes.data(), &header, sizeof header);
    datagram.bytes[wire::rmpp_header_offset + 2] = std::byte{wire::RmppHeader::active};
    ASSERT_TRUE(send_datagram(sender.descriptor(), datagram));
    const auto came = next_from(receiver.descriptor(), 30'000);
    ASSERT_TRUE(came);
    ASSERT_EQ(came->bytes.size(), bytes);
    EXPECT_TRUE(
        std::equal(came->bytes.begin() + 56, came->bytes.end(), datagram.bytes.begin() + 56));
  }
}

// Returns a sealed file of that size, without memory, that begins with a datagram's first bytes.
UniqueFd sparse_file(const Datagram& datagram, std::size_t bytes) {
  UniqueFd file(memfd_create("datagram", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(pwrite(file.get(), datagram.bytes.data(), datagram.bytes.size(), 0),
            static_cast<ssize_t>(datagram.bytes.size()));
  EXPECT_EQ(
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), 0);
  return file;
}

// Returns how many bytes a process has read from anything, and none if the system does not say.
std::optional<std::uint64_t> bytes_read_by(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/io");
  std::string name;
  std::uint64_t bytes = 0;
  if (!(file >> name >> bytes) || name != "rchar:") return std::nullopt;
  return bytes;
}

// One small message must not have the fabric read 64 MiB for nothing. What comes back keeps its
// order.
TEST_F(FabricServerTest, DoesNotReadTheFilesOfDatagramsThatCannotBeSent) {
  constexpr std::uint32_t pairs = 20;
  FabricPortClient client = open("h0");
  Datagram datagram = question(register_subnet(client));  // an agent without transactions
  const std::uint32_t unknown = datagram.agent + 1;
  const auto before = bytes_read_by(child_);
  if (!before) GTEST_SKIP() << "the system does not say what a process has read";
  for (std::uint32_t i = 0; i < pairs; ++i) {
    for (const std::uint32_t agent : {datagram.agent, unknown}) {
      const UniqueFd file = sparse_file(datagram, datagram_bytes_max);
      Datagram in_message = datagram;
      in_message.agent = agent;
      in_message.bytes.clear();
      const std::array<int, 1> fds = {file.get()};
      ASSERT_TRUE(send_message(client.descriptor(), encoded(in_message), fds));
      Datagram shorter = datagram;
      shorter.agent = unknown + 1 + i;
      ASSERT_TRUE(send_datagram(client.descriptor(), shorter));
    }
  }
  for (std::uint32_t i = 0; i < pairs; ++i) {
    for (const std::uint32_t agent : {datagram.agent, unknown}) {
      for (const std::uint32_t expected : {agent, unknown + 1 + i}) {
        const auto back = next_from(client.descriptor());
        ASSERT_TRUE(back);
        EXPECT_EQ(back->agent, expected);
        EXPECT_EQ(back->status, static_cast<std::uint32_t>(ETIMEDOUT));
      }
    }
  }
  EXPECT_LT(*bytes_read_by(child_) - *before, 1u << 20);
}

TEST_F(FabricServerTest, NobodyWaitsForAProgramThatDoesNotRead) {
  FabricPortClient lazy = open("h0");
  const std::uint32_t agent = register_subnet(lazy);
  for (int i = 0; i < 20'000; ++i) {
    const auto sent = send_datagram(lazy.descriptor(), question(agent));
    if (!sent) {
      ASSERT_EQ(sent.error().error_number, EAGAIN);
      usleep(100);
    }
  }
  FabricPortClient other = open("h0");
  const std::uint32_t others = register_subnet(other);
  ASSERT_TRUE(send_datagram(other.descriptor(), question(others)));
  EXPECT_TRUE(next_from(other.descriptor()));
}

// A process that has connections until this object ends.
class Holder {
 public:
  Holder(const std::string& socket, std::size_t count) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    process_ = fork();
    if (process_ == 0) {
      // What the parent holds must end with the parent.
      dup2(ends[1], 3);
      close_range(4, ~0u, 0);
      ends[1] = 3;
      const auto held = connect_and_say(socket, count);
      static_cast<void>(write(ends[1], "h", held.size() == count ? 1 : 0));
      for (;;) pause();
    }
    close(ends[1]);
    pollfd entry{ends[0], POLLIN, 0};
    char byte = 0;
    EXPECT_EQ(poll(&entry, 1, 60'000), 1);
    EXPECT_EQ(read(ends[0], &byte, 1), 1) << "it has fewer connections";
    close(ends[0]);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  // Returns the connections on which the fabric answers, at most so many.
  static std::vector<UniqueFd> connect_and_say(const std::string& socket, std::size_t count,
                                               std::string* refusal = nullptr) {
    FabricHello hello;
    hello.purpose = FabricPurpose::describe;
    hello.host = "h0";
    std::vector<UniqueFd> held;
    while (held.size() < count) {
      UniqueFd connection = connect_once_there_is_room(socket);
      if (!connection || !send_message(connection.get(), encoded(hello))) break;
      auto answer = await_message(connection.get(), 5'000);
      if (!answer) break;
      Refused refused;
      if (decode(answer->bytes, refused)) {
        if (refusal != nullptr) *refusal = refused.reason;
        break;
      }
      held.push_back(std::move(connection));
    }
    return held;
  }

 private:
  pid_t process_ = -1;
};

TEST_F(FabricServerTest, ConnectionsAreBounded) {
  allow_descriptors(2'000);
  {
    std::vector<std::unique_ptr<Holder>> holders;
    holders.reserve(4);
    for (int i = 0; i < 4; ++i) {
      holders.push_back(std::make_unique<Holder>(fabric_socket(folder_), 256));
    }
    std::string reason;
    EXPECT_TRUE(Holder::connect_and_say(fabric_socket(folder_), 1, &reason).empty());
    EXPECT_EQ(reason, "the fabric has 1024 connections, which is the most");
    // The owner's commands have connections left where programs have none.
    EXPECT_TRUE(fabric_status(fabric_socket(folder_)));
    EXPECT_FALSE(describe_host(place("h0")));
  }
  for (int tries = 0; tries < 500 && !is_well(); ++tries) usleep(10'000);
  EXPECT_TRUE(is_well());
}

// Those of the owner's commands count, too.
TEST_F(FabricServerTest, AProcessHasAShareOfTheConnections) {
  allow_descriptors(2'000);
  std::string reason;
  auto held = Holder::connect_and_say(fabric_socket(folder_), 1'100, &reason);
  EXPECT_EQ(held.size(), 256u);
  EXPECT_EQ(reason, "process " + std::to_string(getpid()) +
                        " has 256 connections to the fabric, which is the most for one process");
  EXPECT_FALSE(fabric_status(fabric_socket(folder_)));
  const Holder other(fabric_socket(folder_), 1);
  held.clear();
  for (int tries = 0; tries < 500 && !is_well(); ++tries) usleep(10'000);
  EXPECT_TRUE(is_well());
}

TEST_F(FabricServerTest, ConnectionsThatSayNothingKeepNobodyOut) {
  allow_descriptors(3'000);
  std::vector<UniqueFd> many;
  many.reserve(1'200);
  for (int i = 0; i < 1'200; ++i)
    many.push_back(connect_once_there_is_room(fabric_socket(folder_)));
  EXPECT_TRUE(is_well());
  EXPECT_TRUE(fabric_status(fabric_socket(folder_)));
  auto ended = await_message(many.front().get(), 5'000);
  EXPECT_FALSE(ended) << "the oldest goes";
}

// Programs that all begin before the fabric's process looks at the first of them.
TEST_F(FabricServerTest, ProgramsThatBeginAtOnceAllGetAnswers) {
  kill(child_, SIGSTOP);
  ASSERT_EQ(waitpid(child_, nullptr, WUNTRACED), child_);
  FabricHello hello;
  hello.purpose = FabricPurpose::describe;
  hello.host = "h0";
  std::vector<UniqueFd> programs;
  while (auto connection = connect_to(fabric_socket(folder_))) {
    EXPECT_TRUE(send_message(connection->get(), encoded(hello)));
    programs.push_back(std::move(*connection));
  }
  EXPECT_GE(programs.size(), 128u);
  // One more, for which the queue has no room.
  std::thread late([this] {
    usleep(50'000);
    kill(child_, SIGCONT);
  });
  EXPECT_TRUE(is_well());
  late.join();
  for (const UniqueFd& program : programs) EXPECT_TRUE(await_message(program.get(), 5'000));
}

// A manager is whoever holds the host's file open, until it ends.
TEST_F(FabricServerTest, AManagerIsWhoHoldsTheFile) {
  const auto is_manager = [&] {
    return (describe_host(place("h1"))->port.capability_mask & wire::capability_is_sm) != 0;
  };
  EXPECT_FALSE(is_manager());
  UniqueFd file(::open(describe_host(place("h1"))->manager_file.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(file);
  for (int tries = 0; tries < 500 && !is_manager(); ++tries) usleep(10'000);
  EXPECT_TRUE(is_manager());
  file.reset();
  for (int tries = 0; tries < 500 && is_manager(); ++tries) usleep(10'000);
  EXPECT_FALSE(is_manager());
}

FabricDataPort open_for_data(const FabricPlace& place) {
  auto bell = create_bell();
  EXPECT_TRUE(bell);
  auto port = open_data_port(place, bell->button.get());
  EXPECT_TRUE(port);
  return port ? std::move(*port) : FabricDataPort();
}

TEST_F(FabricServerTest, ASlotIsFreeAgainWhenItsProgramEnds) {
  const std::uint32_t first = open_for_data(place("h0")).opened.slot;
  for (int tries = 0; tries < 500; ++tries) {
    if (open_for_data(place("h0")).opened.slot == first) return;
    usleep(10'000);
  }
  FAIL() << "the slot is still taken";
}

TEST_F(FabricServerTest, AProgramIsToldOnceThatItsPortHasChanged) {
  const FabricDataPort port = open_for_data(place("h0"));
  set_lid("h0", 3);
  std::vector<PortChanged> told;
  while (auto message = await_message(port.connection.get(), told.empty() ? 5'000 : 100)) {
    ASSERT_TRUE(decoded(message->bytes, told.emplace_back()));
    ASSERT_LT(told.size(), 10u);
  }
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().port.lid, 3);
  EXPECT_FALSE(told.back().must_register_anew) << "no manager has asked for that";
  EXPECT_TRUE(is_well());  // the fabric has looked at its ports once more
  EXPECT_FALSE(await_message(port.connection.get(), 100));
}

// Descriptors that come to a fabric and close slowly. The fabric serves others meanwhile.
class SlowDescriptorsTest : public FabricServerTest {
 protected:
  // Sends messages, each with a descriptor whose close takes a minute. The fabric has the last one.
  void send(int socket, std::span<const std::byte> bytes, int descriptors = 1, int messages = 1) {
    int status = 0;
    kill(child_, SIGSTOP);  // it must not close its descriptor before this process does
    ASSERT_EQ(waitpid(child_, &status, WUNTRACED), child_);
    for (int i = 0; i < messages; ++i) {
      Lingering lingering = linger_for(60);
      EXPECT_TRUE(lingering.own);
      const std::vector<int> fds(static_cast<std::size_t>(descriptors), lingering.own.get());
      EXPECT_TRUE(send_message(socket, bytes, fds));
      peers_.push_back(std::move(lingering.peer));
    }
    kill(child_, SIGCONT);
  }
  static std::vector<std::byte> hello(FabricPurpose purpose) {
    FabricHello hello;
    hello.purpose = purpose;
    hello.host = "h0";
    return encoded(hello);
  }
  UniqueFd connect() { return connect_once_there_is_room(fabric_socket(folder_)); }

  const std::vector<std::byte> noise_ = std::vector<std::byte>(12, std::byte{0x5A});

 private:
  std::vector<UniqueFd> peers_;
};

TEST_F(SlowDescriptorsTest, WithMessages) {
  const UniqueFd first = connect();
  send(first.get(), hello(FabricPurpose::describe));
  EXPECT_TRUE(is_well());
  const UniqueFd second = connect();
  send(second.get(), hello(FabricPurpose::describe), 2);
  EXPECT_TRUE(is_well());
}

TEST_F(SlowDescriptorsTest, WithWhatIsNoMessage) {
  const UniqueFd first = connect();
  send(first.get(), {});
  EXPECT_TRUE(is_well());
}

// The connection ends at the first one, and the others are still unread.
TEST_F(SlowDescriptorsTest, InAConnectionThatEnds) {
  const UniqueFd first = connect();
  send(first.get(), noise_, 1, 3);
  EXPECT_TRUE(is_well());
  auto answer = await_message(first.get(), 5'000);
  Refused refused;
  EXPECT_TRUE(answer && decode(answer->bytes, refused)) << "it is told at once";
}

TEST_F(SlowDescriptorsTest, AsAButton) {
  const UniqueFd first = connect();
  send(first.get(), hello(FabricPurpose::data));
  EXPECT_TRUE(is_well());
  const UniqueFd second = connect();
  send(second.get(), hello(FabricPurpose::data), 2);
  EXPECT_TRUE(is_well());
}

TEST_F(SlowDescriptorsTest, WithDatagrams) {
  FabricPortClient client = open("h0");
  Datagram datagram = question(register_subnet(client));
  send(client.descriptor(), encoded(datagram), 2);
  EXPECT_TRUE(is_well());
  FabricPortClient other = open("h0");
  send(other.descriptor(), encoded(datagram));
  EXPECT_TRUE(is_well());
  FabricPortClient last = open("h0");
  send(last.descriptor(), noise_, 1, 3);
  EXPECT_TRUE(is_well());
}

TEST_F(SlowDescriptorsTest, WithRings) {
  const FabricDataPort port = open_for_data(place("h0"));
  send(port.button.get(), noise_, 2, 3);
  EXPECT_TRUE(is_well());
}

// A button's own queue may have some, since its other end is the program's.
TEST_F(SlowDescriptorsTest, InAButtonThatGoes) {
  auto bell = create_bell();
  ASSERT_TRUE(bell);
  auto port = open_data_port(place("h0"), bell->button.get());
  ASSERT_TRUE(port);
  send(bell->bell.get(), noise_);
  bell->button.reset();
  port->connection.reset();
  EXPECT_TRUE(is_well());
}

// The answers of a connection are in the order of its questions: one that gets lost would leave the
// program with those of other questions.
TEST_F(FabricServerTest, EndsWhoeverDoesNotReadItsAnswers) {
  auto connection = connect_to(fabric_socket(folder_));
  ASSERT_TRUE(connection);
  FabricHello hello;
  hello.purpose = FabricPurpose::status;
  for (int tries = 0; tries < 20'000; ++tries) {
    const auto sent = send_message(connection->get(), encoded(hello));
    if (sent) continue;
    if (sent.error().error_number != EAGAIN) return;
    usleep(1'000);
  }
  FAIL() << "the connection is still there";
}

// More events than its socket holds wait for a program, and come when it reads again.
TEST_F(FabricServerTest, AProgramThatReadsLateGetsAllEventsOfItsConnections) {
  auto channel = open_fabric_channel(place("h0"));
  ASSERT_TRUE(channel);
  const auto ask = [&](const ConnectionCommand& command) {
    ReplyMessage reply;
    EXPECT_TRUE(send_message(channel->commands.get(), encode(CommandMessage{0, command})));
    auto answer = await_message(channel->commands.get(), 5'000);
    EXPECT_TRUE(answer && decode(answer->bytes, reply));
    return reply.reply;
  };
  const auto created = ask(command::Create{PortSpace::tcp, ConnectionQpType::rc});
  ASSERT_TRUE(std::holds_alternative<reply::Created>(created));
  command::ResolveAddress nowhere{std::get<reply::Created>(created).endpoint, {}, {}};
  nowhere.destination.family = AF_INET;
  nowhere.destination.address = {std::byte{192}, std::byte{0}, std::byte{2}, std::byte{1}};
  constexpr int events = 2'000;
  for (int i = 0; i < events; ++i) {
    ASSERT_TRUE(std::holds_alternative<reply::Done>(ask(nowhere))) << i;
  }
  for (int i = 0; i < events; ++i) {
    ASSERT_TRUE(await_message(channel->events.get(), 5'000)) << i;
  }
}

TEST(FabricServersTest, MachinesOfOneFabricHearOneAnother) {
  const Folder files;
  FabricOptions options;
  options.topology = *fabric::single_switch({2, {}});
  const auto ports = free_ports(SOCK_DGRAM, 2);
  options.machines = {{"a", "127.0.0.1:" + ports[0], {}}, {"b", "127.0.0.1:" + ports[1], {}}};
  auto placed = fabric::place(options.topology, options.machines);
  ASSERT_TRUE(placed);
  options.machine_of = *placed;
  std::vector<pid_t> children;
  for (const fabric::Machine& machine : options.machines) {
    options.folder = files.path(machine.name);
    options.machine = machine.name;
    children.push_back(start(options));
    ASSERT_GT(children.back(), 0);
  }
  const auto state_of_other = [&](const std::string& own, std::size_t other) {
    auto all = fabric_machines(fabric_socket(files.path(own)));
    return all && all->machines.size() == 2 ? all->machines[other].state : std::string();
  };
  const auto are_connected = [&] {
    return state_of_other("a", 1) == "connected" && state_of_other("b", 0) == "connected";
  };
  for (int tries = 0; tries < 500 && !are_connected(); ++tries) usleep(10'000);
  EXPECT_EQ(state_of_other("a", 1), "connected");
  EXPECT_EQ(state_of_other("b", 0), "connected");
  for (const pid_t child : children) stop(child);
}

// Their list comes in several messages.
TEST(FabricServersTest, ManyNodesAreAllListed) {
  const Folder files;
  FabricOptions options;
  options.folder = files.path("fabric");
  constexpr std::uint32_t hosts = 2 * FabricNodes::nodes_max;
  options.topology = *fabric::single_switch({hosts, {}});
  const pid_t child = start(options);
  ASSERT_GT(child, 0);
  auto all = fabric_status(fabric_socket(options.folder));
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->nodes.size(), hosts + 1);
  for (std::uint32_t host = 0; host < hosts; ++host) {
    EXPECT_EQ(all->nodes[host].name, fabric::host_name(host));
    EXPECT_FALSE(all->nodes[host].is_switch);
  }
  EXPECT_TRUE(all->nodes[hosts].is_switch);
  stop(child);
}

}  // namespace
}  // namespace tulle::live
