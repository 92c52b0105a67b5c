#include "live/connections/endpoint_table.h"

namespace tulle::live {

EndpointTable::EndpointTable(RandomSource random) : random_(random) {
  next_ = static_cast<std::uint32_t>(random_.next());
}

Endpoint& EndpointTable::create(ChannelNumber channel, PortSpace space, ConnectionQpType qp_type) {
  do {
    ++next_;
  } while (next_ == 0 || endpoints_.contains(next_));
  Endpoint& endpoint = endpoints_[next_];
  endpoint.id = EndpointId{next_};
  endpoint.channel = channel;
  endpoint.space = space;
  endpoint.qp_type = qp_type;
  endpoint.psn = Psn(static_cast<std::uint32_t>(random_.next()));
  return endpoint;
}

Endpoint* EndpointTable::find(EndpointId id) {
  const auto found = endpoints_.find(id.value);
  return found == endpoints_.end() ? nullptr : &found->second;
}

Endpoint* EndpointTable::find(ChannelNumber channel, EndpointId id) {
  Endpoint* endpoint = find(id);
  return endpoint != nullptr && endpoint->channel == channel ? endpoint : nullptr;
}

Endpoint* EndpointTable::find(management::cm::ConnectionId connection) {
  const auto found = by_connection_.find(connection.value);
  return found == by_connection_.end() ? nullptr : find(found->second);
}

void EndpointTable::set_connection(Endpoint& endpoint, management::cm::ConnectionId connection) {
  endpoint.connection = connection;
  by_connection_[connection.value] = endpoint.id;
}

void EndpointTable::forget_connection(Endpoint& endpoint) {
  by_connection_.erase(endpoint.connection.value);
  endpoint.connection = {};
}

void EndpointTable::erase(EndpointId id) {
  if (const Endpoint* endpoint = find(id)) forget_queue_pair(*endpoint);
  endpoints_.erase(id.value);
}

void EndpointTable::set_queue_pair(Endpoint& endpoint, QpNumber number) {
  forget_queue_pair(endpoint);
  endpoint.own_qp = number;
  if (number != QpNumber{}) by_queue_pair_.emplace(number.value, endpoint.id.value);
}

void EndpointTable::forget_queue_pair(const Endpoint& endpoint) {
  by_queue_pair_.erase({endpoint.own_qp.value, endpoint.id.value});
}

std::vector<EndpointId> EndpointTable::with_queue_pairs(QpNumbers numbers) const {
  std::vector<EndpointId> found;
  for (auto each = by_queue_pair_.lower_bound({numbers.first, 0});
       each != by_queue_pair_.end() && numbers.contains(QpNumber{each->first}); ++each) {
    found.push_back(EndpointId{each->second});
  }
  return found;
}

}  // namespace tulle::live
