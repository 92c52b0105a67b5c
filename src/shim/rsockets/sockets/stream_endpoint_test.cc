#include "shim/rsockets/sockets/stream_endpoint.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

#include "shim/rsockets/sockets/fake_device_test.h"
#include "shim/rsockets/sockets/lingering_sockets.h"
#include "shim/rsockets/sockets/mapped_memory.h"
#include "shim/rsockets/sockets/stream.h"

namespace tulle::rsockets {
namespace {

// An end whose peer has said that it has room, and says no more unless the test does.
class StreamEndpointTest : public testing::Test {
 protected:
  StreamEndpointTest() {
    auto made = std::make_unique<FakeConnection>(network);
    connection = made.get();
    stream = std::make_shared<Stream>(default_settings(), std::move(made));
    endpoint = std::make_unique<StreamEndpoint>(*stream, *connection);
  }
  ~StreamEndpointTest() override { endpoint->close(); }

  void establish() {
    ASSERT_EQ(endpoint->open(settings), 0);
    const ConnectionData data = endpoint->protocol().own_data();
    ASSERT_EQ(endpoint->protocol().open(std::as_bytes(std::span(&data, 1))), 0);
    endpoint->establish();
  }

  FakeNetwork network;
  SocketSettings settings = default_settings();
  FakeConnection* connection = nullptr;
  std::shared_ptr<Stream> stream;
  std::unique_ptr<StreamEndpoint> endpoint;
  std::mutex mutex;
};

TEST_F(StreamEndpointTest, IsConnectedOnceThePeerHasConfirmed) {
  EXPECT_FALSE(endpoint->has_send_buffer());
  ASSERT_EQ(endpoint->open(settings), 0);
  EXPECT_TRUE(endpoint->has_send_buffer());
  EXPECT_TRUE(endpoint->has_receive_buffer());
  EXPECT_EQ(endpoint->open(settings), 0) << "it is open already";
  EXPECT_FALSE(endpoint->is_connected());
  const ConnectionData data = endpoint->protocol().own_data();
  ASSERT_EQ(endpoint->protocol().open(std::as_bytes(std::span(&data, 1))), 0);
  EXPECT_FALSE(endpoint->is_connected());
  endpoint->establish();
  EXPECT_TRUE(endpoint->is_connected());
}

TEST_F(StreamEndpointTest, APeerThatBreaksTheProtocolIsStopped) {
  establish();
  connection->hear({.is_receive = true, .succeeded = true, .is_write = false});
  endpoint->poll_completions();
  EXPECT_FALSE(endpoint->is_connected());
  EXPECT_TRUE(endpoint->protocol().is_broken());
  EXPECT_TRUE(connection->is_stopped());
  StreamEndpoint::Lock lock(mutex);
  EXPECT_NE(endpoint->await_room(lock, {}), 0);
}

TEST_F(StreamEndpointTest, AwaitPollsUntilItMayBlockNoLonger) {
  establish();
  StreamEndpoint::Lock lock(mutex);
  EXPECT_EQ(endpoint->await(lock, {}, [] { return false; }), EAGAIN);
  int polls = 0;
  EXPECT_EQ(endpoint->await(lock, {.may_block = true, .polling = std::chrono::seconds(10)},
                            [&] { return ++polls == 3; }),
            0);
  EXPECT_EQ(polls, 3);
  EXPECT_TRUE(lock.owns_lock());
}

TEST_F(StreamEndpointTest, MemoryIsMappedOnceAndUnmapped) {
  establish();
  MappedMemory memory;
  std::array<std::byte, 64> bytes;
  StreamMaps& maps = endpoint->protocol().maps();
  std::int64_t offset = -1;
  ASSERT_EQ(memory.map(*connection, maps, bytes, false, offset), 0);
  EXPECT_EQ(offset, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(bytes.data())));
  EXPECT_EQ(memory.unmap(maps, std::span(bytes).first(8)), EINVAL);
  EXPECT_EQ(memory.unmap(maps, bytes), 0);
  EXPECT_EQ(memory.unmap(maps, bytes), EINVAL);
}

TEST_F(StreamEndpointTest, TheOldestLingeringSocketMakesRoom) {
  LingeringSockets lingering;
  EXPECT_TRUE(lingering.is_over(*stream, false)) << "it does not linger";
  EXPECT_EQ(lingering.add(stream), nullptr);
  EXPECT_FALSE(lingering.is_over(*stream, false));
  std::shared_ptr<Socket> oldest;
  for (std::size_t i = 0; i < LingeringSockets::count_max; ++i) {
    EXPECT_EQ(oldest, nullptr);
    oldest = lingering.add(
        std::make_shared<Stream>(settings, std::make_unique<FakeConnection>(network)));
  }
  EXPECT_EQ(oldest, stream);
  EXPECT_TRUE(lingering.is_over(*stream, false));
}

}  // namespace
}  // namespace tulle::rsockets
