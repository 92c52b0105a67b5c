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

}  // namespace tulle::live
