#pragma once

// The scalable reliable datagram of one adapter. As in Amazon's cards, it is below the queue pairs:
// there is a context for each adapter that this one exchanges messages with, which all queue pairs
// at either end share.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/id_map.h"
#include "base/time.h"
#include "rdma/optional/srd/carrier.h"
#include "rdma/optional/srd/inbound.h"
#include "rdma/optional/srd/message.h"
#include "rdma/optional/srd/outbound.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/shared_peers.h"
#include "rdma/transport/srd_settings.h"
#include "rdma/wire/path.h"

namespace tulle::transport {
struct Counters;
struct Environment;
}  // namespace tulle::transport

namespace tulle::transport::srd {

// The messages that have arrived in part. MessagePool (message.h) does the same for sent messages.
class PartialPool {
 public:
  Partial& operator[](std::uint32_t ref) { return *partials_[ref]; }
  std::uint32_t take();
  void give(std::uint32_t ref);

 private:
  std::vector<std::unique_ptr<Partial>> partials_;
  std::uint32_t free_ = no_partial;
};

class Peers final : public SharedPeers {
 public:
  // Those of an adapter with an SRD queue pair.
  static Peers& of(Environment& environment);

  Peers(Environment& environment, const Settings& settings);

  const Settings& settings() const { return settings_; }
  Counters& counters();
  std::uint32_t link_overhead_bytes() const;

  // --- for queue pairs ---

  // Begins a work request.
  void post(QueuePair& qp, SendWqe& wqe);
  // An SRD packet came. `qp` is null if no queue pair has its destination number.
  void handle_packet(Time now, QueuePair* qp, const wire::Packet& packet, Payload payload,
                     const wire::Path& path);
  void forget(QueuePair& qp);

  // --- for the adapter ---

  bool handle_unknown(Time now, const wire::Packet& packet, Payload payload,
                      const wire::Path& path) override;
  std::uint32_t take_attention() override;
  std::unique_ptr<QueuePair> make_carrier(QpNumber number, std::uint8_t service_level) override;
  bool wants_attention() const { return attention_ != 0; }
  Carrier& carrier(std::uint32_t level);
  void rebase(Time by) override;

  // --- for peers and carriers ---

  Inbound& inbound(std::uint32_t index) { return *inbounds_[index]; }
  void answer(std::uint8_t service_level, const Answer& answer);
  // A message found no receive request: ends what silent senders have sent in part, as that may
  // hold some. Looks seldom, however often it is called. Returns true if any was ended.
  bool end_silent(Time now);
  void finish(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  // Names a peer's context: returns a new generation, by which answers to its packets find it.
  std::uint32_t name(Time now, Outbound& outbound);
  void forget_name(std::uint32_t generation) { outbounds_by_generation_.erase(generation); }
  std::uint8_t gid_index(const Gid& gid) const;
  std::uint32_t answer_label(const PeerKey& key, std::uint8_t path) const;
  MessagePool messages;
  PartialPool partials;

  // For observers: returns what is known of the way to a peer, or null if nothing was sent to it.
  const Outbound* find_outbound(const Gid& gid, QpNumber qp, std::uint8_t service_level) const;

 private:
  PeerKey key_of(const Gid& gid, QpNumber qp, std::uint8_t service_level) const;
  Outbound& outbound_to(const PeerKey& key, const verbs::AddressVector& to);
  Inbound& inbound_from(const PeerKey& key);
  Outbound* find_answered(const Gid& from, const Context& context) const;
  void attend(Outbound& outbound);

  Environment& environment_;
  Settings settings_;
  std::uint32_t attention_ = 0;
  std::uint32_t last_generation_ = 0;
  Time looked_for_silent_at_ = Time::zero();
  std::array<std::unique_ptr<Carrier>, levels> carriers_;
  std::vector<std::unique_ptr<Outbound>> outbounds_;
  std::vector<std::unique_ptr<Inbound>> inbounds_;
  IdMap<Outbound> outbounds_by_hash_;
  IdMap<Inbound> inbounds_by_hash_;
  IdMap<Outbound> outbounds_by_generation_;
};

}  // namespace tulle::transport::srd
