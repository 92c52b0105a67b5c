#include "live/path/memory/local_peers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

namespace tulle::live {
namespace {

std::unique_ptr<LocalPeers> make_peers(std::uint32_t slot, LocalPeers::Find find) {
  auto peers = LocalPeers::create(slot, std::move(find));
  EXPECT_TRUE(peers);
  (*peers)->live_with_this_thread();
  return std::move(*peers);
}

// A process may close its connection to the agent, so that another one gets its slot, and live on.
TEST(LocalPeersTest, AnEarlierHolderOfASlotIsNotThePeer) {
  const LocalPeers::Find nobody = [](QpNumber) -> Result<LocalPeers::Found> {
    return Error{"nobody", ENOENT};
  };
  const auto earlier = make_peers(2, nobody), later = make_peers(2, nobody);
  const QpNumber of_earlier{2 * qps_per_slot + 17};
  const QpNumber of_later{2 * qps_per_slot + qps_per_process + 17};
  int asked = 0;
  const auto own = make_peers(1, [&](QpNumber number) -> Result<LocalPeers::Found> {
    ++asked;
    const LocalPeers& peers = number == of_earlier ? *earlier : *later;
    return LocalPeers::Found{getpid(), UniqueFd(dup(peers.table_fd())), {}};
  });
  const LocalPeer* peer = own->find(of_earlier);
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->table->proof, earlier->table().proof);
  peer = own->find(of_later);
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->table->proof, later->table().proof);
  EXPECT_EQ(own->find(of_later), peer);
  EXPECT_EQ(own->find(of_earlier)->table->proof, earlier->table().proof);
  EXPECT_EQ(asked, 2) << "a peer that is known is not asked for again";
}

}  // namespace
}  // namespace tulle::live
