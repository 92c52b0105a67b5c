#pragma once

// The peers that a datagram socket knows. Anybody who sends a datagram becomes a peer, so that a
// table has a limit: it forgets the peer that was unused for the longest time. A peer that was
// forgotten is met again like a new one.

#include <netinet/in.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <utility>

namespace tulle::rsockets {

// An address and port of IPv4 or IPv6.
struct PeerKey {
  std::uint16_t family = 0;
  std::uint16_t port = 0;  // in network order, like the address
  std::array<std::byte, 16> address{};
  std::uint32_t scope = 0;

  auto operator<=>(const PeerKey&) const = default;  // NOLINT(modernize-use-nullptr)
  static PeerKey of(const sockaddr& from);
};

template <typename Peer>
class PeerTable {
 public:
  explicit PeerTable(std::size_t max) : max_(max) {}

  std::size_t size() const { return peers_.size(); }

  // Returns null if the peer is not known. A peer that is found counts as used.
  std::shared_ptr<Peer> find(const PeerKey& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    peers_.splice(peers_.begin(), peers_, found->second);
    return found->second->second;
  }

  // The peer must not be known yet.
  void add(const PeerKey& key, std::shared_ptr<Peer> peer) {
    while (peers_.size() >= max_ && forget_one()) {
    }
    peers_.emplace_front(key, std::move(peer));
    by_key_[key] = peers_.begin();
  }

 private:
  // Forgets the peer that was unused for the longest time, apart from peers that somebody holds.
  bool forget_one() {
    for (auto each = peers_.rbegin(); each != peers_.rend(); ++each) {
      if (each->second.use_count() > 1) continue;
      by_key_.erase(each->first);
      peers_.erase(std::next(each).base());
      return true;
    }
    return false;
  }

  using Peers = std::list<std::pair<PeerKey, std::shared_ptr<Peer>>>;  // used last comes first

  std::size_t max_;
  Peers peers_;
  std::map<PeerKey, typename Peers::iterator> by_key_;
};

}  // namespace tulle::rsockets
