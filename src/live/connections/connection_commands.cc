// The commands that programs give to the connection manager.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

#include "live/connections/connection_service.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/sa.h"

namespace tulle::live {
namespace {

namespace cm = management::cm;

constexpr std::uint8_t hop_limit = 64;  // on RoCE, whose packets have IP headers
// The maximum of requests that Linux's ucma module lets wait (max_backlog).
constexpr std::uint32_t backlog_max = 1024;
// The most endpoints that a program has in one channel: half of the connections that the manager
// keeps.
constexpr std::size_t endpoints_max = 32'768;
// The most that a user who is limited has in all: half of those that peers may ask for.
constexpr std::size_t endpoints_of_limited_max = 16'384;
// The most ports that a user who is limited holds: half of the ephemeral ones.
constexpr std::size_t ports_max = 14'116;
// The most that all such users have together: three quarters. The agent's own user has the rest.
constexpr std::size_t endpoints_of_all_limited_max = 24'576;
constexpr std::size_t ports_of_all_limited_max = 21'174;
// The delay that a process that is not running may add to an acknowledgement, as the device reports
// it.
constexpr std::uint8_t local_ack_delay = 15;

// The header in front of a request's private data, which names the two addresses (IBTA A11).
// Between GIDs there is none.
std::size_t hello_bytes(const SocketAddress& destination) {
  return destination.is_gid() ? 0 : sizeof(wire::cm::IpHello);
}

// Values of rdma_user_cm.h: RDMA_OPTION_ID and RDMA_OPTION_IB, and the options of each.
constexpr std::uint32_t level_id = 0;
constexpr std::uint32_t level_ib = 1;
constexpr std::uint32_t option_tos = 0;
constexpr std::uint32_t option_reuse_address = 1;
constexpr std::uint32_t option_ipv6_only = 2;
constexpr std::uint32_t option_ack_timeout = 3;
constexpr std::uint32_t option_path = 1;

std::array<std::byte, 16> hello_address(const SocketAddress& address) {
  std::array<std::byte, 16> out{};
  if (address.family == AF_INET) {
    std::copy_n(address.address.begin(), 4, out.begin() + 12);
  } else {
    out = address.address;
  }
  return out;
}

cm::PrivateData with_hello(const SocketAddress& source, const SocketAddress& destination,
                           std::span<const std::byte> private_data) {
  if (destination.is_gid()) return cm::PrivateData(private_data);
  wire::cm::IpHello hello;
  wire::cm::IpHello::IpVersion::set(hello.ip_version, destination.family == AF_INET ? 4 : 6);
  hello.source_port = source.port;
  hello.source = hello_address(source);
  hello.destination = hello_address(destination);
  cm::PrivateData data;
  std::memcpy(data.bytes.data(), &hello, sizeof(hello));
  std::copy(private_data.begin(), private_data.end(), data.bytes.begin() + sizeof(hello));
  data.size = static_cast<std::uint8_t>(sizeof(hello) + private_data.size());
  return data;
}

// Returns the ACK timeout for the round trip and the peer's ACK delay: about their sum, in
// exponents.
std::uint8_t ack_timeout(std::uint8_t packet_lifetime, std::uint8_t ack_delay) {
  unsigned timeout = packet_lifetime + 1u;
  if (timeout > ack_delay) {
    timeout += ack_delay + 1u >= timeout;
  } else {
    timeout = ack_delay + 1u;
  }
  return static_cast<std::uint8_t>(std::min(timeout, 31u));
}

bool is_known_family(const SocketAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6 || address.is_gid();
}

template <typename T>
bool read_option(std::span<const std::byte> bytes, T& value) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return true;
}

cm::Service service_of(ConnectionQpType type) {
  if (type == ConnectionQpType::uc) return cm::Service::uc;
  const bool is_xrc = type == ConnectionQpType::xrc_send || type == ConnectionQpType::xrc_receive;
  return is_xrc ? cm::Service::xrc : cm::Service::rc;
}

}  // namespace

// Returns true if the channel's owner may have another endpoint.
bool ConnectionService::may_have_more(const Channel& channel) const {
  const auto found = held_.find(channel.owner.user);
  const bool has_most =
      (found != held_.end() && found->second.endpoints >= endpoints_of_limited_max) ||
      held_by_limited_.endpoints >= endpoints_of_all_limited_max;
  return channel.endpoints.size() < endpoints_max && !(channel.owner.is_limited && has_most);
}

ConnectionReply ConnectionService::execute(ChannelNumber number, CommandMessage message) {
  Channel& channel = channels_.at(number);
  note_taken(channel, message.events_taken);
  return std::visit([&](auto& command) { return dispatch(channel, command); }, message.command);
}

template <typename Command>
ConnectionReply ConnectionService::dispatch(Channel& channel, Command& command) {
  using Reply = typename Command::Reply;
  Reply reply;
  int error = 0;
  if constexpr (!requires { command.endpoint; }) {
    if constexpr (std::is_same_v<Reply, reply::Done>) {
      error = run(channel, command);
    } else {
      error = run(channel, command, reply);
    }
  } else {
    Endpoint* endpoint = find(channel, command.endpoint);
    if (endpoint == nullptr) {
      error = EINVAL;
    } else if constexpr (std::is_same_v<Reply, reply::Done>) {
      error = run(channel, *endpoint, command);
    } else {
      error = run(channel, *endpoint, command, reply);
    }
    progress();
  }
  if (error != 0) return reply::Failed{error};
  return reply;
}

int ConnectionService::run(Channel& channel, command::Create& command, reply::Created& reply) {
  const PortSpace space = command.port_space;
  const bool is_known = space == PortSpace::tcp || space == PortSpace::udp ||
                        space == PortSpace::ipoib || space == PortSpace::ib;
  if (!is_known) return EPROTONOSUPPORT;
  if (!may_have_more(channel)) return ENOMEM;
  reply.endpoint = create(channel, space, command.qp_type).id;
  return 0;
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Query&, EndpointStatus& reply) {
  reply = status_of(endpoint);
  return 0;
}

// The report goes to the program itself, in the order of its channel's events.
int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::Report& command) {
  const bool may_be_reported = command.type == ConnectionEventType::address_information_resolved ||
                               command.type == ConnectionEventType::address_information_error ||
                               command.type == ConnectionEventType::user;
  if (!may_be_reported) return EINVAL;
  if (channel.waiting.size() >= events_waiting_max || !may_wait(channel, 1)) return ENOBUFS;
  tell(endpoint, event::Reported{command.type, endpoint.id, command.status, command.argument});
  return 0;
}

void ConnectionService::use_device(Endpoint& endpoint, const DeviceInfo& device,
                                   const LocalAddress& local) {
  endpoint.has_device = true;
  endpoint.device = device.name;
  endpoint.local = local;
  endpoint.local_lid = device.infiniband ? device.infiniband->lid : std::uint16_t{0};
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::Bind& command,
                           reply::Bound& reply) {
  if (const int error = bind(channel, endpoint, command.address); error != 0) return error;
  reply.address = endpoint.source;
  expect_listener(channel, endpoint, endpoint.space);
  return 0;
}

// Returns 0 or an errno. A wildcard is an address of every device that it can belong to.
int ConnectionService::bind_to_device(const Channel& channel, Endpoint& endpoint,
                                      const SocketAddress& address) {
  if (!address.is_wildcard()) {
    if (const int error = network_.check_is_local(address); error != 0) return error;
  }
  auto device = describe(channel);
  if (!device) return ENODEV;
  // Linux, too, knows GIDs as addresses only on InfiniBand (rdma_cap_af_ib).
  if (address.is_gid() && !device->infiniband) return ENODEV;
  if (address.is_wildcard()) return 0;
  const auto local = local_address_of(*device, address);
  if (!local) return ENODEV;
  use_device(endpoint, *device, *local);
  return 0;
}

int ConnectionService::bind(Channel& channel, Endpoint& endpoint, SocketAddress address) {
  if (endpoint.state != State::idle) return EINVAL;
  if (!is_known_family(address)) return EAFNOSUPPORT;
  if (!address.is_wildcard() || address.is_gid()) {
    if (const int error = bind_to_device(channel, endpoint, address); error != 0) return error;
  }
  Held& held = held_.at(channel.owner.user);  // the endpoint at least
  const bool has_most =
      held.ports >= ports_max || held_by_limited_.ports >= ports_of_all_limited_max;
  if (channel.owner.is_limited && has_most) {
    endpoint.has_device = false;
    return EADDRNOTAVAIL;
  }
  PortTable::Binding binding;
  binding.endpoint = endpoint.id;
  binding.address = address;
  binding.may_share = endpoint.may_share;
  binding.is_ipv6_only = endpoint.is_ipv6_only;
  const int error = ports_.bind(endpoint.space, binding, address,
                                static_cast<std::uint32_t>(random_.next() >> 32));
  if (error != 0) {
    endpoint.has_device = false;
    return error;
  }
  ++held.ports;
  held_by_limited_.ports += channel.owner.is_limited;
  endpoint.source = address;
  endpoint.state = State::bound;
  return 0;
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::Listen& command) {
  if (endpoint.state == State::idle) {
    SocketAddress any;
    any.family = AF_INET;
    if (const int error = bind(channel, endpoint, any); error != 0) return error;
  }
  if (endpoint.state != State::bound && endpoint.state != State::listening) return EINVAL;
  endpoint.requests_max =
      command.backlog == 0 ? backlog_max : std::min(command.backlog, backlog_max);
  if (endpoint.state == State::listening) return 0;
  const int error = ports_.listen(endpoint.space, endpoint.source.port, endpoint.id);
  if (error != 0) return error;
  endpoint.listened_service =
      wire::cm::ip_service_id(static_cast<std::uint16_t>(endpoint.space), endpoint.source.port);
  manager_.listen(now(), endpoint.listened_service, address_of(endpoint));
  endpoint.state = State::listening;
  return 0;
}

// Resolves at once, but answers by an event. The kernel's routing knows the source address. No link
// address is resolved here, since the kernel's sockets do that.
int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::ResolveAddress& command) {
  const SocketAddress& destination = command.destination;
  if (!is_known_family(destination)) return EAFNOSUPPORT;
  if (channel.waiting.size() >= events_waiting_max || !may_wait(channel, 1)) return ENOBUFS;
  const bool may = endpoint.state == State::idle || endpoint.state == State::bound ||
                   endpoint.state == State::address_resolved;
  if (!may) return EINVAL;
  if (endpoint.state == State::idle) {
    SocketAddress own = command.source;
    if (own.family == 0) own.family = destination.family;
    if (own.family != destination.family) return EINVAL;
    if (const int error = bind(channel, endpoint, own); error != 0) return error;
  }
  if (endpoint.source.family != destination.family) return EINVAL;
  const std::uint16_t port = endpoint.source.port;
  SocketAddress own = endpoint.source;
  const auto fail = [&](int error) {
    tell(endpoint, event::AddressError{endpoint.id, -error});
    return 0;
  };
  SocketAddress target = destination;
  // A wildcard destination means this host, as in connect().
  if (target.is_wildcard()) {
    target.address[target.family == AF_INET ? 3 : 15] = std::byte{1};
    if (target.family == AF_INET) target.address[0] = std::byte{127};
  }
  if (const int error = network_.find_source(own, target); error != 0) return fail(error);
  auto device = describe(channel);
  if (!device) return fail(ENODEV);
  const auto local = local_address_of(*device, own);
  if (!local) return fail(ENODEV);
  use_device(endpoint, *device, *local);
  const auto is_known = local_address_of(*device, target);
  const auto remote = network_.gid_of(target);
  if (!remote && !is_known) return fail(EHOSTUNREACH);
  // A loopback destination is the GID that the device uses for it.
  endpoint.remote = is_known && (is_loopback(target) || !remote) ? is_known->gid : *remote;
  if (is_loopback(target) && !is_loopback(own)) endpoint.remote = local->gid;
  endpoint.source = own;
  endpoint.source.port = port;
  endpoint.destination = target;
  endpoint.state = State::address_resolved;
  tell(endpoint, event::AddressResolved{endpoint.id, status_of(endpoint), attributes_of(endpoint)});
  return 0;
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::ResolveRoute&) {
  return resolve_route(channel, endpoint);
}

int ConnectionService::resolve_route(Channel& channel, Endpoint& endpoint) {
  if (endpoint.state != State::address_resolved) return EINVAL;
  auto device = describe(channel);
  if (!device) return ENODEV;
  endpoint.state = State::resolving_route;
  const auto route = network_.find_route(endpoint.id, *device, endpoint.local, endpoint.remote);
  if (route) take_route(endpoint.id, *route);
  return 0;
}

void ConnectionService::take_route(EndpointId asker, Result<ConnectionRoute> found) {
  Endpoint* endpoint = find(asker);
  if (endpoint == nullptr || endpoint->state != State::resolving_route) return;
  if (!found) {
    endpoint->state = State::address_resolved;
    return tell(*endpoint, event::RouteError{asker, -found.error().error_number});
  }
  endpoint->route = *found;
  if (endpoint->ack_timeout != 0) {
    endpoint->route.packet_lifetime = static_cast<std::uint8_t>(endpoint->ack_timeout - 1);
  }
  endpoint->state = State::route_resolved;
  tell(*endpoint, event::RouteResolved{asker, status_of(*endpoint)});
}

// A program may know a path. All paths of RoCE are alike, so that the resolved one is kept there.
int ConnectionService::take_given_route(Channel& channel, Endpoint& endpoint,
                                        std::span<const std::byte> bytes) {
  if (endpoint.state == State::route_resolved) return 0;
  if (endpoint.state != State::address_resolved) return EINVAL;
  auto device = describe(channel);
  if (!device) return ENODEV;
  // struct ibv_path_data: flags, a reserved word, and the record.
  constexpr std::size_t record_offset = 8;
  wire::PathRecord record;
  if (!device->infiniband || bytes.size() < record_offset + sizeof(record)) {
    return resolve_route(channel, endpoint);
  }
  std::memcpy(&record, bytes.data() + record_offset, sizeof(record));
  endpoint.state = State::resolving_route;
  take_route(endpoint.id, ConnectionRoute::of(record));
  return 0;
}

std::optional<LocalAddress> ConnectionService::local_address_of(
    const DeviceInfo& device, const SocketAddress& address) const {
  return local_address(device, address, network_.gid_of(address).value_or(address.gid()));
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Connect& command) {
  const ConnectionParameters& parameters = command.parameters;
  if (endpoint.state != State::route_resolved) return EINVAL;
  if (is_datagram(endpoint.space)) return ask_service(endpoint, parameters);
  constexpr std::size_t data_max = sizeof(wire::cm::Request::private_data);
  if (parameters.private_data.size() > data_max - hello_bytes(endpoint.destination)) return EINVAL;
  endpoint.qp_type = command.qp_type;
  endpoint.responder_resources = parameters.responder_resources;
  endpoint.initiator_depth = parameters.initiator_depth;
  endpoint.retry_count = std::min<std::uint8_t>(parameters.retry_count, 7);
  endpoint.rnr_retry = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);

  cm::Request request;
  request.route = route_of(endpoint);
  request.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(endpoint.space),
                                               endpoint.destination.port);
  request.service = service_of(command.qp_type);
  request.qp = QpNumber{parameters.qp_number & qp_number_max};
  request.starting_psn = endpoint.psn;
  request.responder_resources = parameters.responder_resources;
  request.initiator_depth = parameters.initiator_depth;
  request.flow_control = parameters.flow_control != 0;
  request.srq = parameters.srq != 0;
  request.retry_count = endpoint.retry_count;
  request.rnr_retry_count = endpoint.rnr_retry;
  request.path_mtu = endpoint.route.path_mtu;
  request.packet_lifetime = endpoint.route.packet_lifetime;
  request.ack_timeout = ack_timeout(endpoint.route.packet_lifetime, 0);
  const bool has_lids = endpoint.route.remote_lid != 0;
  request.hop_limit = has_lids ? 0 : hop_limit;
  if (has_lids) {
    request.lids = {endpoint.local_lid, endpoint.route.remote_lid, endpoint.route.service_level};
  }
  request.private_data = with_hello(endpoint.source, endpoint.destination, parameters.private_data);
  return begin_connecting(endpoint, manager_.connect(now(), request));
}

cm::Route ConnectionService::route_of(const Endpoint& endpoint) {
  return {endpoint.local.gid, endpoint.remote, endpoint.traffic_class, endpoint.route.remote_lid,
          endpoint.local.is_roce_v1};
}

// Returns ENOMEM if the manager has too many connections.
int ConnectionService::begin_connecting(Endpoint& endpoint, cm::ConnectionId connection) {
  endpoint.connection = connection;
  if (endpoint.connection == cm::ConnectionId{}) return ENOMEM;
  by_connection_[endpoint.connection.value] = endpoint.id;
  endpoint.state = State::connecting;
  return 0;
}

int ConnectionService::ask_service(Endpoint& endpoint, const ConnectionParameters& parameters) {
  constexpr std::size_t data_max = sizeof(wire::cm::ServiceIdRequest::private_data);
  if (parameters.private_data.size() > data_max - hello_bytes(endpoint.destination)) return EINVAL;
  cm::ServiceQuestion question;
  question.route = route_of(endpoint);
  question.service_id = wire::cm::ip_service_id(static_cast<std::uint16_t>(endpoint.space),
                                                endpoint.destination.port);
  question.private_data =
      with_hello(endpoint.source, endpoint.destination, parameters.private_data);
  return begin_connecting(endpoint, manager_.ask_service(now(), question));
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Accept& command) {
  const ConnectionParameters& parameters = command.parameters;
  if (endpoint.state != State::requested) return EINVAL;
  if (is_datagram(endpoint.space)) return answer_service(endpoint, parameters);
  if (parameters.private_data.size() > sizeof(wire::cm::Reply::private_data)) return EINVAL;
  endpoint.qp_type = command.qp_type;
  endpoint.responder_resources = parameters.responder_resources;
  endpoint.initiator_depth = parameters.initiator_depth;
  cm::Reply reply;
  reply.qp = QpNumber{parameters.qp_number & qp_number_max};
  reply.starting_psn = endpoint.psn;
  reply.responder_resources = parameters.responder_resources;
  reply.initiator_depth = parameters.initiator_depth;
  reply.flow_control = parameters.flow_control != 0;
  reply.srq = parameters.srq != 0;
  reply.rnr_retry_count = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);
  reply.target_ack_delay = local_ack_delay;
  reply.private_data = cm::PrivateData(parameters.private_data);
  if (!manager_.accept(now(), endpoint.connection, reply)) return EINVAL;
  endpoint.state = State::answered;
  return 0;
}

int ConnectionService::answer_service(Endpoint& endpoint, const ConnectionParameters& parameters) {
  if (parameters.private_data.size() > sizeof(wire::cm::ServiceIdReply::private_data)) {
    return EINVAL;
  }
  endpoint.qkey = parameters.qkey != 0 ? parameters.qkey : default_qkey;
  cm::ServiceAnswer answer;
  answer.status = wire::cm::ServiceStatus::valid;
  answer.qp = QpNumber{parameters.qp_number & qp_number_max};
  answer.qkey = Qkey{endpoint.qkey};
  answer.private_data = cm::PrivateData(parameters.private_data);
  if (!manager_.answer_service(now(), endpoint.connection, answer)) return EINVAL;
  forget_connection(endpoint);
  endpoint.state = State::connected;
  return 0;
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Establish&) {
  if (endpoint.state != State::answered || endpoint.is_passive) return EINVAL;
  if (!manager_.establish(now(), endpoint.connection, {})) return EINVAL;
  endpoint.state = State::connected;
  return 0;
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Reject& command) {
  const std::vector<std::byte>& private_data = command.private_data;
  const bool is_answer = endpoint.state == State::answered && !endpoint.is_passive;
  if (endpoint.state != State::requested && !is_answer) return EINVAL;
  bool is_done;
  if (is_datagram(endpoint.space)) {
    if (private_data.size() > sizeof(wire::cm::ServiceIdReply::private_data)) return EINVAL;
    cm::ServiceAnswer answer;
    answer.status = wire::cm::ServiceStatus::rejected;
    answer.private_data = cm::PrivateData(private_data);
    is_done = manager_.answer_service(now(), endpoint.connection, answer);
  } else {
    if (private_data.size() > sizeof(wire::cm::Reject::private_data)) return EINVAL;
    const auto code = command.reason == 0 ? wire::cm::Reason::consumer
                                          : static_cast<wire::cm::Reason>(command.reason);
    is_done = manager_.reject(now(), endpoint.connection, code, private_data);
  }
  if (!is_done) return EINVAL;
  forget_connection(endpoint);
  endpoint.state = State::closed;
  return 0;
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::NotifyEstablished&) {
  return manager_.notify_established(now(), endpoint.connection) ? 0 : EINVAL;
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::Disconnect&) {
  if (is_datagram(endpoint.space)) return EINVAL;
  if (manager_.disconnect(now(), endpoint.connection, {})) return 0;
  // The connection is disconnecting already, or closed: programs on both sides usually disconnect.
  return endpoint.state == State::disconnected || endpoint.state == State::closed ||
                 endpoint.state == State::connected
             ? 0
             : EINVAL;
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::SetOption& command) {
  const std::uint32_t option = command.option;
  const std::vector<std::byte>& bytes = command.value;
  if (command.level == level_ib) {
    if (option != option_path || bytes.empty()) return option == option_path ? EINVAL : ENOSYS;
    return take_given_route(channel, endpoint, bytes);
  }
  if (command.level != level_id) return ENOSYS;
  int number = 0;
  switch (option) {
    case option_tos:
      return read_option(bytes, endpoint.traffic_class) ? 0 : EINVAL;
    case option_ack_timeout: {
      std::uint8_t timeout = 0;
      if (!read_option(bytes, timeout) || timeout > 31) return EINVAL;
      endpoint.ack_timeout = timeout;
      return 0;
    }
    case option_reuse_address:
      if (!read_option(bytes, number) || endpoint.state != State::idle) return EINVAL;
      endpoint.may_share = number != 0;
      return 0;
    case option_ipv6_only:
      if (!read_option(bytes, number) || endpoint.state != State::idle) return EINVAL;
      endpoint.is_ipv6_only = number != 0;
      return 0;
    default:
      return ENOSYS;
  }
}

int ConnectionService::run(Channel&, Endpoint& endpoint, command::GetQpAttributes&,
                           QpAttributesOfStates& attributes) {
  if (!endpoint.has_device) return EINVAL;
  attributes = attributes_of(endpoint);
  return 0;
}

// The endpoint has a device.
QpAttributesOfStates ConnectionService::attributes_of(const Endpoint& endpoint) const {
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
      each->qkey = endpoint.qkey != 0 ? endpoint.qkey : default_qkey;
      each->sq_psn = endpoint.psn.value();
    }
    return states;
  }
  // These are ibv_access_flags: remote write 2, read 4, atomic 8.
  init.mask |= bit::access_flags;
  const bool is_asked = endpoint.connection != cm::ConnectionId{};
  init.access_flags = static_cast<std::uint8_t>(!is_asked                           ? 0
                                                : endpoint.responder_resources != 0 ? 2 | 4 | 8
                                                                                    : 2);
  const bool is_peer_known = endpoint.state == State::requested ||
                             endpoint.state == State::answered ||
                             endpoint.state == State::connected;
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
  sending.timeout = endpoint.ack_timeout != 0
                        ? endpoint.ack_timeout
                        : ack_timeout(endpoint.route.packet_lifetime, endpoint.target_ack_delay);
  sending.retry_count = endpoint.retry_count;
  sending.rnr_retry = endpoint.rnr_retry;
  sending.max_rd_atomic = endpoint.initiator_depth;
  return states;
}

int ConnectionService::run(Channel& channel, Endpoint& endpoint, command::Destroy& command,
                           reply::Destroyed& reply) {
  reply.is_held = endpoint.events_sent > command.events_taken;
  channel.is_held |= reply.is_held;
  destroy(endpoint, true);
  return 0;
}

EndpointStatus ConnectionService::status_of(const Endpoint& endpoint) const {
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

ConnectionPath ConnectionService::path_of(const Endpoint& endpoint) const {
  ConnectionPath path;
  path.source = endpoint.local.gid;
  path.destination = endpoint.remote;
  path.gid_index = endpoint.local.gid_index;
  path.lid = endpoint.route.remote_lid;
  path.source_lid = endpoint.local_lid;
  path.service_level = endpoint.route.service_level;
  // Within a subnet of InfiniBand, LIDs are enough.
  path.is_global = path.lid == 0;
  path.hop_limit = path.is_global ? hop_limit : 0;
  path.traffic_class = endpoint.traffic_class;
  return path;
}

}  // namespace tulle::live
