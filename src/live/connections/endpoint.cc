#include "live/connections/endpoint.h"

#include <algorithm>

#include "rdma/verbs/types.h"

namespace tulle::live {

void use_device(Endpoint& endpoint, const DeviceInfo& device, const LocalAddress& local) {
  endpoint.has_device = true;
  endpoint.device = device.name;
  endpoint.local = local;
  endpoint.local_lid = device.infiniband ? device.infiniband->lid : std::uint16_t{0};
}

management::cm::Route route_of(const Endpoint& endpoint) {
  return {endpoint.local.gid, endpoint.remote, endpoint.traffic_class, endpoint.route.remote_lid,
          endpoint.local.is_roce_v1};
}

ConnectionPath path_of(const Endpoint& endpoint) {
  ConnectionPath path;
  path.source = endpoint.local.gid;
  path.destination = endpoint.remote;
  path.gid_index = endpoint.local.gid_index;
  path.lid = endpoint.route.remote_lid;
  path.source_lid = endpoint.local_lid;
  path.service_level = endpoint.route.service_level;
  // Within a subnet of InfiniBand, LIDs are enough.
  path.is_global = path.lid == 0;
  path.hop_limit = path.is_global ? roce_hop_limit : 0;
  path.traffic_class = endpoint.traffic_class;
  return path;
}

EndpointStatus status_of(const Endpoint& endpoint) {
  EndpointStatus status;
  status.source = endpoint.source;
  status.destination = endpoint.destination;
  status.has_device = endpoint.has_device;
  if (!endpoint.has_device) return status;
  status.device = endpoint.device;
  status.port_number = 1;
  status.pkey = default_pkey.value;
  status.has_path = endpoint.route.path_mtu != 0;
  status.path_mtu_bytes = verbs::mtu_bytes(endpoint.route.path_mtu);
  status.packet_lifetime = endpoint.route.packet_lifetime;
  status.path = path_of(endpoint);
  return status;
}

QpAttributesOfStates attributes_of(const Endpoint& endpoint) {
  namespace bit = qp_attribute;
  QpAttributesOfStates states;
  auto& [init, receiving, sending] = states;
  const auto begin = [](QpAttributes& a, QpTarget target, std::uint32_t mask) {
    a.state = static_cast<std::uint8_t>(target);
    a.mask = bit::state | mask;
    a.port_number = 1;
  };
  begin(init, QpTarget::init, bit::pkey_index | bit::port);
  if (is_datagram(endpoint.space)) {
    init.mask |= bit::qkey;
    begin(receiving, QpTarget::ready_to_receive, 0);
    begin(sending, QpTarget::ready_to_send, bit::sq_psn);
    for (QpAttributes* each : {&init, &receiving, &sending}) {
      each->qkey = qkey_of(endpoint);
      each->sq_psn = endpoint.psn.value();
    }
    return states;
  }
  // These are ibv_access_flags: remote write 2, read 4, atomic 8.
  init.mask |= bit::access_flags;
  const bool is_asked = endpoint.connection != management::cm::ConnectionId{};
  init.access_flags = static_cast<std::uint8_t>(!is_asked                           ? 0
                                                : endpoint.responder_resources != 0 ? 2 | 4 | 8
                                                                                    : 2);
  const bool is_peer_known = endpoint.state == Endpoint::State::requested ||
                             endpoint.state == Endpoint::State::answered ||
                             endpoint.state == Endpoint::State::connected;
  if (!is_peer_known) return states;
  const bool is_reliable = endpoint.qp_type != ConnectionQpType::uc;
  begin(receiving, QpTarget::ready_to_receive,
        bit::address_vector | bit::path_mtu | bit::destination_qp | bit::rq_psn);
  if (is_reliable) receiving.mask |= bit::max_dest_rd_atomic | bit::min_rnr_timer;
  receiving.path = path_of(endpoint);
  receiving.path_mtu_bytes = verbs::mtu_bytes(endpoint.route.path_mtu);
  receiving.destination_qp = endpoint.remote_qp.value;
  receiving.rq_psn = endpoint.psn.value();
  receiving.max_dest_rd_atomic = endpoint.responder_resources;
  begin(sending, QpTarget::ready_to_send, bit::sq_psn);
  if (is_reliable) {
    sending.mask |= bit::timeout | bit::retry_count | bit::rnr_retry | bit::max_rd_atomic;
  }
  sending.sq_psn = endpoint.remote_psn.value();
  sending.timeout = endpoint.ack_timeout != 0 ? endpoint.ack_timeout
                                              : ack_timeout_for(endpoint.route.packet_lifetime,
                                                                endpoint.target_ack_delay);
  sending.retry_count = endpoint.retry_count;
  sending.rnr_retry = endpoint.rnr_retry;
  sending.max_rd_atomic = endpoint.initiator_depth;
  return states;
}

std::uint32_t qkey_of(const Endpoint& endpoint) {
  return endpoint.qkey != 0 ? endpoint.qkey : Endpoint::default_qkey;
}

std::uint8_t ack_timeout_for(std::uint8_t packet_lifetime, std::uint8_t ack_delay) {
  unsigned timeout = packet_lifetime + 1u;
  if (timeout > ack_delay) {
    timeout += ack_delay + 1u >= timeout;
  } else {
    timeout = ack_delay + 1u;
  }
  return static_cast<std::uint8_t>(std::min(timeout, 31u));
}

}  // namespace tulle::live
