#include "live/fabric/datagrams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "live/message/socket.h"

namespace tulle::live {
namespace {

class DatagramsTest : public testing::Test {
 protected:
  DatagramsTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    sender_.reset(ends[0]);
    receiver_.reset(ends[1]);
  }
  static Datagram datagram_of(std::size_t bytes) {
    Datagram out;
    out.agent = 3;
    for (std::size_t i = 0; i < bytes; ++i) out.bytes.push_back(static_cast<std::byte>(i % 251));
    return out;
  }

  UniqueFd sender_;
  UniqueFd receiver_;
  std::vector<UniqueFd> unused_;
};

// Eight processes that read nothing keep nobody from short tables.
TEST(Datagrams, EachProcessHasALittleRoomForFiles) {
  constexpr std::size_t mebibyte = 1 << 20;
  EXPECT_TRUE(has_room_for_files(128 * mebibyte, 1'024 * mebibyte));
  EXPECT_FALSE(has_room_for_files(128 * mebibyte + 1, 1'000 * mebibyte));
  EXPECT_FALSE(has_room_for_files(2 * mebibyte, 1'026 * mebibyte));
  EXPECT_TRUE(has_room_for_files(mebibyte, 2'000 * mebibyte));
}

TEST_F(DatagramsTest, OfALongOneTheFirstBytesComeFirst) {
  constexpr std::size_t bytes = 300'000;
  const Datagram sent = datagram_of(bytes);
  ASSERT_TRUE(send_datagram(sender_.get(), sent));
  auto arrived = receive_first_bytes(receiver_.get(), unused_);
  ASSERT_TRUE(arrived);
  EXPECT_TRUE(arrived->file);
  EXPECT_EQ(arrived->bytes, bytes);
  EXPECT_EQ(arrived->datagram.agent, 3u);
  EXPECT_EQ(arrived->datagram.bytes.size(), ArrivedDatagram::first_bytes);
  for (const std::size_t now : {100'256u, 100'256u, 200'256u, 300'000u}) {
    ASSERT_TRUE(read_more(*arrived, now - arrived->datagram.bytes.size()));
    EXPECT_EQ(arrived->datagram.bytes.size(), now);
    EXPECT_EQ(arrived->is_whole(), now == bytes);
  }
  ASSERT_TRUE(read_more(*arrived, 1));
  EXPECT_EQ(arrived->datagram.bytes, sent.bytes);
}

TEST_F(DatagramsTest, AShortOneIsWhole) {
  const Datagram sent = datagram_of(256);
  ASSERT_TRUE(send_datagram(sender_.get(), sent));
  auto arrived = receive_first_bytes(receiver_.get(), unused_);
  ASSERT_TRUE(arrived);
  EXPECT_FALSE(arrived->file);
  EXPECT_TRUE(arrived->is_whole());
  EXPECT_EQ(arrived->datagram.bytes, sent.bytes);
  auto none = receive_first_bytes(receiver_.get(), unused_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().error_number, EAGAIN);
}

// Closing them may take long.
TEST_F(DatagramsTest, DescriptorsOfNoUseGoToTheCaller) {
  const std::vector<std::byte> noise(12, std::byte{0x5A});
  const std::array<int, 2> two = {sender_.get(), sender_.get()};
  const auto refuses = [&](std::span<const std::byte> bytes, std::span<const int> fds) {
    EXPECT_TRUE(send_message(sender_.get(), bytes, fds));
    auto arrived = receive_first_bytes(receiver_.get(), unused_);
    EXPECT_EQ(unused_.size(), fds.size());
    return !arrived && arrived.error().error_number == EPROTO;
  };
  Datagram datagram = datagram_of(0);
  EXPECT_TRUE(refuses(noise, std::span(two).first(1)));
  EXPECT_TRUE(refuses(encoded(datagram), std::span(two).first(1))) << "this is no file";
  EXPECT_TRUE(refuses(encoded(datagram), two));
}

}  // namespace
}  // namespace tulle::live
