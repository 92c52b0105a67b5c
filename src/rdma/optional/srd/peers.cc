#include "rdma/optional/srd/peers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rdma/optional/srd/engine.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::srd {

using verbs::CompletionStatus;
using verbs::SendOpcode;

namespace {

template <typename Peer>
Peer* find_in(const IdMap<Peer>& map, const PeerKey& key) {
  Peer* peer = map.find(key.hash());
  while (peer != nullptr && !(peer->key == key)) peer = peer->next_same_hash;
  return peer;
}

template <typename Peer>
void insert_into(IdMap<Peer>& map, Peer& peer) {
  if (Peer* same = map.find(peer.key.hash())) {
    peer.next_same_hash = std::exchange(same->next_same_hash, &peer);
  } else {
    map.insert(peer.key.hash(), &peer);
  }
}

std::uint32_t segments_of(const QueuePair& qp, const SendWqe& wqe) {
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t full = wqe.length / mtu + (wqe.length % mtu != 0);
  if (wqe.opcode == SendOpcode::write_with_immediate) return full + 1;
  return std::max(full, 1u);
}

}  // namespace

std::uint32_t PartialPool::take() {
  if (free_ == no_partial) {
    partials_.push_back(std::make_unique<Partial>());
    return static_cast<std::uint32_t>(partials_.size() - 1);
  }
  const std::uint32_t ref = std::exchange(free_, partials_[free_]->next);
  *partials_[ref] = {};
  return ref;
}

void PartialPool::give(std::uint32_t ref) { partials_[ref]->next = std::exchange(free_, ref); }

Peers::Peers(Environment& environment, const Settings& settings)
    : environment_(environment), settings_(settings) {
  TULLE_CHECK(settings.paths >= 1 && settings.paths <= paths_max);
}

Counters& Peers::counters() { return environment_.counters; }

std::uint32_t Peers::link_overhead_bytes() const { return environment_.link_overhead_bytes; }

void Peers::rebase(Time by) {
  for (const auto& carrier : carriers_) {
    if (carrier != nullptr) carrier->rebase(by);
  }
  for (const auto& outbound : outbounds_) outbound->rebase(by);
  for (const auto& inbound : inbounds_) inbound->rebase(by);
  tulle::rebase(by, looked_for_silent_at_);
}

Carrier& Peers::carrier(std::uint32_t level) {
  std::unique_ptr<Carrier>& carrier = carriers_[level % levels];
  if (carrier == nullptr) carrier = std::make_unique<Carrier>(*this);
  return *carrier;
}

Peers& Peers::of(Environment& environment) { return static_cast<Peers&>(*environment.peers); }

bool Peers::handle_unknown(Time now, const wire::Packet& packet, Payload payload,
                           const wire::Path& path) {
  if (wire::transport_of(packet.opcode) != wire::TransportClass::srd) return false;
  handle_packet(now, nullptr, packet, payload, path);
  return true;
}

std::uint32_t Peers::take_attention() { return std::exchange(attention_, 0); }

void Peers::attend(Outbound& outbound) {
  carrier(outbound.key.service_level).attend(outbound);
  attention_ |= 1u << outbound.key.service_level % levels;
}

void Peers::answer(std::uint8_t service_level, const Answer& answer) {
  carrier(service_level).answer(answer);
  attention_ |= 1u << service_level % levels;
}

bool Peers::end_silent(Time now) {
  if (now < looked_for_silent_at_ + Time{settings_.give_up.ps / 4}) return false;
  looked_for_silent_at_ = now;
  bool any = false;
  for (const auto& inbound : inbounds_) any |= inbound->end_if_silent(now);
  return any;
}

// --- peers ---

PeerKey Peers::key_of(const Gid& gid, QpNumber qp, std::uint8_t service_level) const {
  return {gid, qp.value >> settings_.queue_pair_bits, service_level};
}

Outbound& Peers::outbound_to(const PeerKey& key, const verbs::AddressVector& to) {
  if (Outbound* found = find_in(outbounds_by_hash_, key)) return *found;
  outbounds_.push_back(std::make_unique<Outbound>(*this, key, to));
  insert_into(outbounds_by_hash_, *outbounds_.back());
  return *outbounds_.back();
}

Inbound& Peers::inbound_from(const PeerKey& key) {
  if (Inbound* found = find_in(inbounds_by_hash_, key)) return *found;
  const auto index = static_cast<std::uint32_t>(inbounds_.size());
  inbounds_.push_back(std::make_unique<Inbound>(*this, index, key));
  insert_into(inbounds_by_hash_, *inbounds_.back());
  return *inbounds_.back();
}

const Outbound* Peers::find_outbound(const Gid& gid, QpNumber qp,
                                     std::uint8_t service_level) const {
  return find_in(outbounds_by_hash_, key_of(gid, qp, service_level));
}

// A generation is later than all earlier ones, including those from before a restart of the
// adapter: it is the time in milliseconds, or the last generation plus one if that is more.
std::uint32_t Peers::name(Time now, Outbound& outbound) {
  const auto milliseconds = static_cast<std::uint32_t>(now.to_microseconds() / 1'000);
  last_generation_ = std::max(last_generation_ + 1, milliseconds) & Context::generation_mask;
  if (last_generation_ == 0) last_generation_ = 1;
  outbounds_by_generation_.insert(last_generation_, &outbound);
  return last_generation_;
}

std::uint8_t Peers::gid_index(const Gid& gid) const {
  const auto& gids = environment_.port(1).gids;
  const auto found = std::find(gids.begin(), gids.end(), gid);
  return found == gids.end() ? std::uint8_t{0} : static_cast<std::uint8_t>(found - gids.begin());
}

// An answer takes a path that depends on the path of the packet that it answers.
std::uint32_t Peers::answer_label(const PeerKey& key, std::uint8_t path) const {
  constexpr std::uint32_t flow_labels = (1u << 20) - 1;
  const std::uint64_t mixed =
      (settings_.seed ^ key.hash() ^ std::uint64_t{path} << 32) * 0x9E37'79B9'7F4A'7C15;
  return 1 + static_cast<std::uint32_t>((mixed >> 32) % flow_labels);
}

// --- work ---

void Peers::post(QueuePair& qp, SendWqe& wqe) {
  const DatagramTarget& target = qp.send_queue.datagram_target(wqe);
  const MessageRef ref = messages.take();
  Message& message = messages[ref];
  message.qp = &qp;
  message.wqe = &wqe;
  message.segments = segments_of(qp, wqe);
  message.destination = target.qp;
  message.source = qp.number;
  message.pkey = qp.pkey();
  message.refusals_left = qp.attributes().rnr_retry;
  const std::uint32_t longest =
      settings_.send_bytes_max == 0 ? qp.mtu_bytes() : settings_.send_bytes_max;
  if (!wqe.is_write() && wqe.length > longest) wqe.status = CompletionStatus::local_length_error;
  Outbound& outbound =
      outbound_to(key_of(target.to.destination.gid, target.qp, target.to.service_level), target.to);
  message.peer = &outbound;
  outbound.add(ref);
  attend(outbound);
}

void Peers::finish(QueuePair& qp, SendWqe& wqe, CompletionStatus status) {
  Engine::of(qp).finish(qp, wqe, status);
}

Outbound* Peers::find_answered(const Gid& from, const Context& context) const {
  Outbound* found = outbounds_by_generation_.find(context.generation);
  return found != nullptr && found->key.gid == from ? found : nullptr;
}

void Peers::handle_packet(Time now, QueuePair* qp, const wire::Packet& packet, Payload payload,
                          const wire::Path& path) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const Context context = Context::of(packet.srd_context);
  if (info.srdeth) {
    Inbound& inbound =
        inbound_from(key_of(wire::source_of(path).gid, packet.source_qp, context.service_level));
    return inbound.handle_packet(now, qp, packet, payload, path);
  }
  Outbound* outbound = info.srd_ack ? find_answered(wire::source_of(path).gid, context) : nullptr;
  if (outbound == nullptr) {
    ++counters().dropped_packets;
    return;
  }
  outbound->handle_acknowledgement(now, packet);
  attend(*outbound);
}

void Peers::forget(QueuePair& qp) {
  for (MessageRef ref = 0; ref < messages.size(); ++ref) {
    if (messages[ref].qp == &qp) messages[ref].peer->forget(ref);
  }
  for (const auto& outbound : outbounds_) attend(*outbound);
  for (const auto& inbound : inbounds_) inbound->forget(qp);
}

}  // namespace tulle::transport::srd
