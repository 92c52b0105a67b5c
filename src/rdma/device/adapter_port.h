#pragma once

// A port of an adapter, with its addresses and the queue pairs that wait to send by it.

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/prefetch.h"
#include "rdma/device/datagram.h"
#include "rdma/device/send_turns.h"
#include "rdma/port/framing/framing.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/port/port.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/address_handle.h"
#include "rdma/wire/path.h"

namespace tulle::device {

class AdapterPort {
 public:
  static constexpr std::size_t gids_max = 256;
  // Packets from some GIDs may have another framing than the configuration's, as at a port of both
  // versions of RoCE. A connected queue pair takes only packets with its own GID's framing.
  struct OtherFraming {
    const port::Framing* framing;  // null: all packets have the configuration's
    std::bitset<gids_max> gids;
  };

  // Null settings mean a port without flow control.
  explicit AdapterPort(const port::Settings* settings);

  // --- addresses (Adapter::set_gids(), set_lid()) ---

  // Keeps those of the withdrawn addresses that are in use.
  void set_gids(std::span<const Gid> gids, const OtherFraming& other,
                const std::bitset<gids_max>& in_use);
  const std::vector<Gid>& gids() const { return gids_; }
  bool has_gid(std::size_t index) const {
    return index < gids_.size() && gids_[index] != Gid{} && !withdrawn_gids_[index];
  }
  const std::bitset<gids_max>& withdrawn_gids() const { return withdrawn_gids_; }
  void set_lid(Lid lid, unsigned lmc) {
    lid_ = lid;
    lmc_ = static_cast<std::uint8_t>(lmc);
  }

  // --- ways of packets ---

  // Says whether a packet came the way that a queue pair's packets go.
  bool is_way_of(const transport::QueuePair& qp, const wire::Path& path) const {
    if (other_.framing == nullptr) [[likely]]
      return true;
    const std::size_t gid_index = qp.attributes().address.source_gid_index;
    return qp.transport.is_datagram ||
           has_other_framing(gid_index) == (path.index() == other_path_kind_);
  }
  // Says whether packets can take this way: the port has the source GID, and its framing can carry
  // that GID and the destination's together. An application may have read a GID whose index has
  // since passed to an address of another family. It learns here that it has no way, as from a
  // kernel, and not by its retries.
  bool is_path(const verbs::AddressVector& to, const port::Framing& usual) const {
    return has_gid(to.source_gid_index) &&
           framing_of(to.source_gid_index, usual)
               .is_pair(gids_[to.source_gid_index], to.destination.gid);
  }
  // Addresses a datagram of a queue pair, by the usual framing unless its GID has another one.
  void address(const transport::QueuePair& qp, const port::Framing& usual, Datagram& out) const {
    const verbs::AddressVector& to = *out.to;
    out.service_level = to.service_level;
    out.packet.pkey = qp.pkey();
    if (out.headers == Datagram::Headers::tcp) [[unlikely]]
      return address_segment(to, out);
    out.flow_entropy = port::source_port(to.flow_label, qp.number, out.packet.destination_qp);
    out.framing = &framing_of(to.source_gid_index, usual);
    out.framing->set_path(route_to(to, out.flow_entropy), out.path);
  }

  void prefetch() const {
    tulle::prefetch(&turns);
    tulle::prefetch(&gids_);
    port.prefetch();
  }

  SendTurns turns;

 private:
  bool has_other_framing(std::size_t gid_index) const {
    return other_.framing != nullptr && gid_index < gids_max && other_.gids[gid_index];
  }
  const port::Framing& framing_of(std::size_t gid_index, const port::Framing& usual) const {
    return has_other_framing(gid_index) ? *other_.framing : usual;
  }
  // The port uses the LID that the path bits select, as its peer expects (IBTA 9.6.1).
  port::Route route_to(const verbs::AddressVector& to, std::uint16_t flow_entropy) const {
    const unsigned path_bits = to.path_bits & ((1u << lmc_) - 1);
    port::Route route;
    if (to.source_gid_index < gids_.size()) route.source_gid = gids_[to.source_gid_index];
    route.source_lid = Lid(static_cast<std::uint16_t>(lid_.value + path_bits));
    route.destination = to.destination;
    route.flow_entropy = flow_entropy;
    route.service_level = to.service_level;
    route.traffic_class = to.traffic_class;
    route.hop_limit = to.hop_limit;
    route.flow_label = to.flow_label;
    return route;
  }
  void address_segment(const verbs::AddressVector& to, Datagram& out) const;

  std::vector<Gid> gids_;
  Lid lid_;
  std::uint8_t lmc_ = 0;
  std::bitset<gids_max> withdrawn_gids_;
  OtherFraming other_{};
  std::size_t other_path_kind_ = 0;  // the alternative of wire::Path that the other framing sets

 public:
  port::Port port;
};

}  // namespace tulle::device
