#include "shim/rsockets/sockets/stream.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "shim/rsockets/sockets/fake_device_test.h"
#include "shim/rsockets/sockets/poll.h"

namespace tulle::rsockets {
namespace {

using namespace std::chrono_literals;

sockaddr_storage at_port(std::uint16_t port) {
  sockaddr_storage out = {};
  auto& address = reinterpret_cast<sockaddr_in&>(out);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  return out;
}

int send(Socket& socket, std::string_view text, std::size_t& bytes, int flags = 0) {
  const iovec from = {const_cast<char*>(text.data()), text.size()};
  return socket.send({&from, 1}, flags, nullptr, bytes);
}

// Returns false if the event does not hold within that time.
bool becomes(Socket& socket, short event, std::chrono::milliseconds longest = 5s) {
  const Clock::time_point due = Clock::now() + longest;
  while ((socket.ready(event) & event) == 0) {
    if (Clock::now() >= due) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

int receive(Socket& socket, std::string& text, std::size_t max, int flags = 0) {
  text.assign(max, '\0');
  const iovec into = {text.data(), text.size()};
  std::size_t bytes = 0;
  const int error = socket.receive({&into, 1}, flags, nullptr, bytes);
  text.resize(bytes);
  return error;
}

class StreamSocketTest : public testing::Test {
 protected:
  ~StreamSocketTest() override {
    device_.network.confirms_nothing = false;
    for (const auto& socket : {client_, server_, listener_}) {
      if (socket == nullptr) continue;
      remove_socket(socket->fd());
      socket->close();
    }
  }

  void listen() {
    ASSERT_EQ(create_stream(device_, AF_INET, listener_), 0);
    ASSERT_EQ(listener_->bind(at_port(7)), 0);
    ASSERT_EQ(listener_->listen(4), 0);
  }
  // Returns a socket whose request is on its way.
  std::shared_ptr<Socket> ask() {
    std::shared_ptr<Socket> out;
    EXPECT_EQ(create_stream(device_, AF_INET, out), 0);
    EXPECT_EQ(out->set_flags(O_NONBLOCK), 0);
    EXPECT_EQ(out->connect(at_port(7)), EINPROGRESS);
    return out;
  }
  void connect() {
    listen();
    ASSERT_EQ(create_stream(device_, AF_INET, client_), 0);
    ASSERT_EQ(client_->connect(at_port(7)), 0);
    ASSERT_EQ(listener_->accept(server_), 0);
    add_socket(client_);
    add_socket(server_);
  }
  // The connection of the stream that was accepted.
  FakeConnection& at_server() { return *device_.network.connections.back(); }

  FakeDevice& device_ = FakeDevice::instance();
  // Those who ask stay for longer than their requests, which a listener has.
  std::vector<std::shared_ptr<Socket>> others_;
  std::shared_ptr<Socket> client_;
  std::shared_ptr<Socket> listener_;
  std::shared_ptr<Socket> server_;
};

TEST_F(StreamSocketTest, DataPassesBothWays) {
  connect();
  std::string text(3'000'000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 + i / 1000);
  std::thread echo([this, &text] {
    std::string read;
    for (std::size_t done = 0; done < text.size(); done += read.size()) {
      ASSERT_EQ(receive(*server_, read, 50'000), 0);
      std::size_t bytes = 0;
      ASSERT_EQ(send(*server_, read, bytes), 0);
      ASSERT_EQ(bytes, read.size());
    }
  });
  std::thread sender([this, &text] {
    std::size_t bytes = 0;
    ASSERT_EQ(send(*client_, text, bytes), 0);
    ASSERT_EQ(bytes, text.size());
  });
  std::string back;
  EXPECT_EQ(receive(*client_, back, text.size(), MSG_WAITALL), 0);
  EXPECT_TRUE(back == text);
  sender.join();
  echo.join();
}

TEST_F(StreamSocketTest, PeekingForMoreThanThereIsRoomForEnds) {
  connect();
  const std::string text(3'000'000, 'x');
  std::thread sender([this, &text] {
    std::size_t bytes = 0;
    EXPECT_EQ(send(*client_, text, bytes), 0);
  });
  std::string peeked;
  EXPECT_EQ(receive(*server_, peeked, text.size(), MSG_PEEK | MSG_WAITALL), 0);
  EXPECT_GE(peeked.size(), 10'000u);
  EXPECT_LT(peeked.size(), text.size());
  EXPECT_EQ(receive(*server_, peeked, text.size(), MSG_WAITALL), 0);
  EXPECT_EQ(peeked.size(), text.size());
  sender.join();
}

TEST_F(StreamSocketTest, NobodyListens) {
  ASSERT_EQ(create_stream(device_, AF_INET, client_), 0);
  EXPECT_EQ(client_->connect(at_port(8)), ECONNREFUSED);
  std::size_t bytes = 0;
  EXPECT_EQ(send(*client_, "x", bytes), ENOTCONN);
  EXPECT_EQ(client_->ready(POLLOUT), POLLOUT | POLLERR);
}

TEST_F(StreamSocketTest, ASocketThatNeverBlocksConnectsMeanwhile) {
  listen();
  ASSERT_EQ(create_stream(device_, AF_INET, client_), 0);
  ASSERT_EQ(client_->set_flags(O_NONBLOCK), 0);
  ASSERT_EQ(client_->connect(at_port(7)), EINPROGRESS);
  add_socket(client_);
  pollfd waiting = {client_->fd(), POLLOUT, 0};
  int count = 0;
  EXPECT_EQ(poll_sockets({&waiting, 1}, 10'000, count), 0);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(waiting.revents, POLLOUT);
  ASSERT_EQ(listener_->accept(server_), 0);
  std::string text;
  EXPECT_EQ(receive(*client_, text, 1), EAGAIN);
}

TEST_F(StreamSocketTest, TheEndOfTheStreamIsNoError) {
  connect();
  std::size_t bytes = 0;
  ASSERT_EQ(send(*client_, "last", bytes), 0);
  ASSERT_EQ(client_->shutdown(SHUT_WR), 0);
  EXPECT_EQ(send(*client_, "x", bytes), EPIPE);
  std::string text;
  EXPECT_EQ(receive(*server_, text, 10), 0);
  EXPECT_EQ(text, "last");
  EXPECT_EQ(receive(*server_, text, 10), 0);
  EXPECT_EQ(text, "");
  ASSERT_EQ(send(*server_, "answer", bytes), 0);
  EXPECT_EQ(receive(*client_, text, 10), 0);
  EXPECT_EQ(text, "answer");
}

// As when its process is killed. The server is the one that was accepted, and the client the one
// whose connect() waited.
TEST_F(StreamSocketTest, AThreadThatWaitsHearsOfAPeerThatIsGone) {
  for (const bool client_goes : {true, false}) {
    connect();
    Socket& waits = client_goes ? *server_ : *client_;
    std::thread killer([this, client_goes] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      device_.network.connections[client_goes ? 1 : 2]->close();
    });
    std::string text;
    EXPECT_EQ(receive(waits, text, 1), 0);
    EXPECT_EQ(text, "");
    killer.join();
    for (const auto& socket : {client_, server_, listener_}) {
      remove_socket(socket->fd());
      socket->close();
    }
    client_ = server_ = listener_ = nullptr;
  }
}

// What is on its way is dropped with its listener.
TEST_F(StreamSocketTest, AListenerIsClosedWhileItAnswers) {
  listen();
  device_.network.accepts_slowly = true;
  ASSERT_EQ(create_stream(device_, AF_INET, client_), 0);
  const std::size_t own = device_.network.connections.size();
  client_->set_flags(O_NONBLOCK);
  ASSERT_EQ(client_->connect(at_port(7)), EINPROGRESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  listener_->close();
  listener_ = nullptr;
  device_.network.accepts_slowly = false;
  const auto left = [this] {
    const std::lock_guard guard(device_.network.mutex);
    return device_.network.connections.size();
  };
  for (int i = 0; i < 10'000 && left() >= own; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(left(), own) << "neither the listener's nor the request's is left";
}

// Requests from invented addresses are answered, and nobody confirms the answers.
TEST_F(StreamSocketTest, HalfOpenStreamsLeaveTheBacklogFree) {
  listen();
  device_.network.confirms_nothing = true;
  for (int i = 0; i < 20; ++i) {
    others_.push_back(ask());
    ASSERT_TRUE(becomes(*others_.back(), POLLOUT)) << "request " << i << " was not answered";
  }
  device_.network.confirms_nothing = false;
  client_ = ask();
  ASSERT_TRUE(becomes(*listener_, POLLIN));
  ASSERT_EQ(listener_->accept(server_), 0);
  std::size_t bytes = 0;
  ASSERT_EQ(send(*client_, "hello", bytes), 0);
  std::string text;
  EXPECT_EQ(receive(*server_, text, 10), 0);
  EXPECT_EQ(text, "hello");
}

// Sets how many files the process may have open, for as long as this lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min(files, before_.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(StreamSocketTest, HalfOpenStreamsTakeHalfOfTheDescriptors) {
  const FileLimit limit(320);
  constexpr std::size_t most = 20;  // eight descriptors each
  listen();
  device_.network.confirms_nothing = true;
  const auto ended = [this] {
    return static_cast<std::size_t>(std::ranges::count_if(
        others_, [](const auto& each) { return (each->ready(POLLOUT) & POLLHUP) != 0; }));
  };
  for (std::size_t i = 0; i < 2 * most; ++i) {
    others_.push_back(ask());
    ASSERT_TRUE(becomes(*others_.back(), POLLOUT)) << "request " << i << " was not answered";
    const Clock::time_point due = Clock::now() + 5s;
    while (i >= most && ended() <= i - most && Clock::now() < due) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(ended(), i < most ? 0 : i - most + 1);
  }
}

TEST_F(StreamSocketTest, TheOldestHalfOpenStreamMakesRoom) {
  const FileLimit limit(4'096);
  listen();
  device_.network.confirms_nothing = true;
  for (std::size_t i = 0; i <= Stream::half_open_max; ++i) {
    others_.push_back(ask());
    ASSERT_TRUE(becomes(*others_.back(), POLLOUT)) << "request " << i << " was not answered";
  }
  // Requests that came together may be answered in any order.
  const std::span all(others_);
  const auto ended = [](std::span<const std::shared_ptr<Socket>> among) {
    return std::ranges::count_if(
        among, [](const auto& each) { return (each->ready(POLLOUT) & POLLHUP) != 0; });
  };
  const Clock::time_point due = Clock::now() + 5s;
  while (ended(all) == 0 && Clock::now() < due) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(ended(all.first(Stream::half_open_max / 2)), 1);
  EXPECT_EQ(ended(all), 1);
  // The youngest stays, and is accepted once its peer confirms the answer.
  at_server().confirm();
  EXPECT_TRUE(becomes(*listener_, POLLIN));
  ASSERT_EQ(listener_->accept(server_), 0);
}

std::size_t descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all))) - 1;  // without its own
}

// A request that is taken, and then lacks a descriptor, is refused: strangers who confirm nothing
// could keep all others out.
TEST_F(StreamSocketTest, AHalfOpenStreamMakesRoomForARequestThatLacksDescriptors) {
  listen();
  device_.network.confirms_nothing = true;
  std::size_t each = 0;
  for (int i = 0; i < 2; ++i) {
    const std::size_t before = descriptors();
    others_.push_back(ask());
    ASSERT_TRUE(becomes(*others_.back(), POLLOUT));
    each = descriptors() - before;
  }
  const FileLimit limit(descriptors() + each - 1);
  others_.push_back(ask());
  ASSERT_TRUE(becomes(*others_.back(), POLLOUT));
  EXPECT_EQ(others_.back()->ready(POLLOUT) & POLLHUP, 0) << "the new one was refused";
  EXPECT_TRUE(becomes(*others_.front(), POLLHUP)) << "the oldest one did not end";
}

TEST_F(StreamSocketTest, AHalfOpenStreamEndsInTime) {
  SocketSettings settings = default_settings();
  settings.half_open = 50ms;
  std::unique_ptr<Connection> connection;
  ASSERT_EQ(device_.create_connection(AF_INET, connection), 0);
  listener_ = std::make_shared<Stream>(settings, std::move(connection));
  ASSERT_EQ(listener_->bind(at_port(7)), 0);
  ASSERT_EQ(listener_->listen(4), 0);
  device_.network.confirms_nothing = true;
  client_ = ask();
  EXPECT_TRUE(becomes(*client_, POLLHUP));
}

TEST_F(StreamSocketTest, ConnectionsThatNobodyAcceptsFillTheBacklog) {
  listen();
  bool is_answered = true;
  while (is_answered && others_.size() < 100) {
    others_.push_back(ask());
    is_answered = becomes(*others_.back(), POLLOUT, 50ms);
  }
  EXPECT_FALSE(is_answered);
  std::vector<std::shared_ptr<Socket>> accepted(others_.size());
  for (auto& each : accepted) {
    ASSERT_TRUE(becomes(*listener_, POLLIN));
    ASSERT_EQ(listener_->accept(each), 0);
  }
  EXPECT_TRUE(becomes(*others_.back(), POLLOUT));
}

TEST_F(StreamSocketTest, MappedMemoryIsWrittenDirectly) {
  listen();
  ASSERT_EQ(create_stream(device_, AF_INET, client_), 0);
  const int maps = 4;
  ASSERT_EQ(client_->set_option(SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof maps), 0);
  ASSERT_EQ(client_->connect(at_port(7)), 0);
  ASSERT_EQ(listener_->accept(server_), 0);
  std::vector<std::byte> memory(100);
  std::int64_t offset = 1000;
  auto& server = dynamic_cast<Stream&>(*server_);
  ASSERT_EQ(server.map(memory.data(), memory.size(), PROT_WRITE, offset), 0);
  std::size_t bytes = 0;
  ASSERT_EQ(send(*server_, "mapped", bytes), 0) << "this tells of the map";
  std::string text;
  ASSERT_EQ(receive(*client_, text, 10), 0);
  auto& client = dynamic_cast<Stream&>(*client_);
  const std::vector<std::byte> data(120, std::byte{7});
  EXPECT_EQ(client.write_mapped(data.data(), data.size(), 1050, 0, bytes), 0);
  EXPECT_EQ(bytes, 50u);
  EXPECT_EQ(memory[49], std::byte{0});
  EXPECT_EQ(memory[99], std::byte{7});
  EXPECT_EQ(server.unmap(memory.data(), 99), EINVAL);
  EXPECT_EQ(server.unmap(memory.data(), 100), 0);
}

// A peer that breaks the protocol gets nothing more, and the program hears of it.
class StreamSocketPeerTest : public StreamSocketTest {
 protected:
  void expect_broken() {
    EXPECT_EQ(server_->ready(POLLIN), POLLIN | POLLERR);
    EXPECT_TRUE(at_server().is_stopped());
    std::string text;
    EXPECT_EQ(receive(*server_, text, 1 << 20), EPROTO);
    std::size_t bytes = 0;
    EXPECT_EQ(send(*server_, "x", bytes), EPROTO);
    int error = 0;
    socklen_t length = sizeof error;
    EXPECT_EQ(server_->get_option(SOL_SOCKET, SO_ERROR, &error, length), 0);
    EXPECT_EQ(error, EPROTO);
  }
};

TEST_F(StreamSocketPeerTest, AnImmediateThatLeadsOutOfTheBuffer) {
  connect();
  at_server().hear(to_message(MessageType::data, 0x1FFF'FFFF), 0x1FFF'FFFF);
  expect_broken();
}

TEST_F(StreamSocketPeerTest, ASendInsteadOfAWrite) {
  connect();
  at_server().hear({.is_receive = true, .succeeded = true, .immediate = 1, .bytes = 0});
  expect_broken();
}

TEST_F(StreamSocketPeerTest, AThreadThatWaitsHearsOfIt) {
  connect();
  std::thread peer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    at_server().hear(to_message(MessageType::data, 0), 0);
  });
  std::string text;
  EXPECT_EQ(receive(*server_, text, 10), EPROTO);
  peer.join();
}

// Threads with stacks that do not fit into the address space cannot be made.
TEST(Threads, ThatCannotBeMadeAreLackOfMemory) {
  pthread_attr_t usual;
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(start_thread([] {}), std::bad_alloc);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  sigset_t mask;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &mask), 0);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
}

}  // namespace
}  // namespace tulle::rsockets
