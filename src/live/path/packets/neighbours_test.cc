#include "live/path/packets/neighbours.h"

#include <gtest/gtest.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "live/test_network_test.h"

namespace tulle::live {
namespace {

constexpr Gid peer = Gid::from_ipv4(0x0A00'0002);
constexpr wire::MacAddress mac = {2, 3, 4, 5, 6, 7};

void append(std::vector<std::byte>& to, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  to.insert(to.end(), at, at + bytes);
  to.resize((to.size() + 3) / 4 * 4);
}

void append_attribute(std::vector<std::byte>& to, unsigned short type, const void* data,
                      std::size_t bytes) {
  const rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(bytes)), type};
  append(to, &attribute, sizeof attribute);
  append(to, data, bytes);
}

std::vector<std::byte> message(std::uint16_t state, bool has_mac = true) {
  nlmsghdr header{};
  ndmsg about{};
  header.nlmsg_type = RTM_NEWNEIGH;
  about.ndm_ifindex = 3;
  about.ndm_state = state;
  const std::array<std::uint8_t, 4> address = {10, 0, 0, 2};
  std::vector<std::byte> bytes;
  append(bytes, &header, sizeof header);
  append(bytes, &about, sizeof about);
  append_attribute(bytes, NDA_DST, address.data(), address.size());
  if (has_mac) append_attribute(bytes, NDA_LLADDR, mac.data(), mac.size());
  header.nlmsg_len = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(NeighboursTest, AMessageNamesANeighbour) {
  std::vector<Neighbour> found;
  read_neighbours(message(NUD_REACHABLE), found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].interface_index, 3u);
  EXPECT_EQ(found[0].gid, peer);
  EXPECT_EQ(found[0].mac, mac);
}

TEST(NeighboursTest, WhoDoesNotAnswerIsNoNeighbour) {
  std::vector<Neighbour> found;
  read_neighbours(message(NUD_FAILED), found);
  read_neighbours(message(NUD_INCOMPLETE), found);
  read_neighbours(message(NUD_REACHABLE, false), found);
  EXPECT_TRUE(found.empty());
}

TEST(NeighboursTest, SeveralMessagesMayComeAtOnce) {
  std::vector<std::byte> both = message(NUD_STALE);
  const std::vector<std::byte> second = message(NUD_PERMANENT);
  both.insert(both.end(), second.begin(), second.end());
  std::vector<Neighbour> found;
  read_neighbours(both, found);
  EXPECT_EQ(found.size(), 2u);
}

TEST(NeighboursTest, AMessageThatIsCutOffIsNotRead) {
  const std::vector<std::byte> whole = message(NUD_REACHABLE);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    std::vector<Neighbour> found;
    read_neighbours(std::span(whole).first(bytes), found);
    EXPECT_TRUE(found.empty()) << bytes;
  }
}

TEST(NeighboursTest, TheKernelIsAskedAboutAnUnknownNeighbour) {
  enter_test_network();
  auto neighbours = Neighbours::open();
  ASSERT_TRUE(neighbours) << neighbours.error().message;
  EXPECT_FALSE(neighbours->look_up(if_nametoindex("lo"), peer));
  const auto unknown_source = resolve_neighbour(if_nametoindex("lo"), peer, peer);
  EXPECT_FALSE(unknown_source);
}

}  // namespace
}  // namespace tulle::live
