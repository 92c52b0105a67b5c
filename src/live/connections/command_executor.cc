#include "live/connections/command_executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

namespace tulle::live {
namespace {

// The maximum of requests that Linux's ucma module lets wait (max_backlog).
constexpr std::uint32_t backlog_max = 1024;

// Values of rdma_user_cm.h: RDMA_OPTION_ID and RDMA_OPTION_IB, and the options of each.
constexpr std::uint32_t level_id = 0;
constexpr std::uint32_t level_ib = 1;
constexpr std::uint32_t option_tos = 0;
constexpr std::uint32_t option_reuse_address = 1;
constexpr std::uint32_t option_ipv6_only = 2;
constexpr std::uint32_t option_ack_timeout = 3;
constexpr std::uint32_t option_path = 1;

template <typename T>
bool read_option(std::span<const std::byte> bytes, T& value) {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return true;
}

}  // namespace

ConnectionReply CommandExecutor::execute(ProgramChannel& channel,
                                         const ConnectionCommand& command) {
  return std::visit([&](const auto& each) { return dispatch(channel, each); }, command);
}

template <typename Command>
ConnectionReply CommandExecutor::dispatch(Channel& channel, const Command& command) {
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
    Endpoint* endpoint = endpoints_.find(channel.number, command.endpoint);
    if (endpoint == nullptr) {
      error = EINVAL;
    } else if constexpr (std::is_same_v<Reply, reply::Done>) {
      error = run(channel, *endpoint, command);
    } else {
      error = run(channel, *endpoint, command, reply);
    }
  }
  if (error != 0) return reply::Failed{error};
  return reply;
}

int CommandExecutor::run(Channel& channel, const command::Create& command, reply::Created& reply) {
  const PortSpace space = command.port_space;
  const bool is_known = space == PortSpace::tcp || space == PortSpace::udp ||
                        space == PortSpace::ipoib || space == PortSpace::ib;
  if (!is_known) return EPROTONOSUPPORT;
  if (!resources_.may_create(channel)) return ENOMEM;
  reply.endpoint = resources_.create(channel, space, command.qp_type).id;
  return 0;
}

int CommandExecutor::run(Channel& channel, Endpoint& endpoint, const command::Bind& command,
                         reply::Bound& reply) {
  const int error = addresses_.bind(channel, endpoint, command.address);
  if (error != 0) return error;
  reply.address = endpoint.source;
  resources_.expect_listener(endpoint, endpoint.space);
  return 0;
}

int CommandExecutor::run(Channel& channel, Endpoint& endpoint, const command::Listen& command) {
  if (endpoint.state == State::idle) {
    SocketAddress any;
    any.family = AF_INET;
    if (const int error = addresses_.bind(channel, endpoint, any); error != 0) return error;
  }
  if (endpoint.state != State::bound && endpoint.state != State::listening) return EINVAL;
  endpoint.requests_max =
      command.backlog == 0 ? backlog_max : std::min(command.backlog, backlog_max);
  if (endpoint.state == State::listening) return 0;
  return resources_.listen(endpoint);
}

int CommandExecutor::run(Channel&, Endpoint& endpoint, const command::Query&,
                         EndpointStatus& reply) {
  reply = status_of(endpoint);
  return 0;
}

int CommandExecutor::run(Channel&, Endpoint& endpoint, const command::GetQpAttributes&,
                         QpAttributesOfStates& attributes) {
  if (!endpoint.has_device) return EINVAL;
  attributes = attributes_of(endpoint);
  return 0;
}

int CommandExecutor::run(Channel& channel, Endpoint& endpoint, const command::SetOption& command) {
  const std::uint32_t option = command.option;
  const std::vector<std::byte>& bytes = command.value;
  if (command.level == level_ib) {
    if (option != option_path || bytes.empty()) return option == option_path ? EINVAL : ENOSYS;
    return addresses_.use_route(channel, endpoint, bytes);
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

// The report goes to the program itself, in the order of its channel's events.
int CommandExecutor::run(Channel& channel, Endpoint& endpoint, const command::Report& command) {
  const bool may_be_reported = command.type == ConnectionEventType::address_information_resolved ||
                               command.type == ConnectionEventType::address_information_error ||
                               command.type == ConnectionEventType::user;
  if (!may_be_reported) return EINVAL;
  if (!channels_.may_ask_for_event(channel)) return ENOBUFS;
  channels_.tell(endpoint,
                 event::Reported{command.type, endpoint.id, command.status, command.argument});
  return 0;
}

int CommandExecutor::run(Channel& channel, Endpoint& endpoint, const command::Destroy& command,
                         reply::Destroyed& reply) {
  reply.is_held = endpoint.events_sent > command.events_taken;
  channel.is_held |= reply.is_held;
  resources_.destroy(endpoint, true);
  return 0;
}

int CommandExecutor::run(Channel& channel, Endpoint&, const command::Hold&) {
  channel.is_held = true;
  return 0;
}

}  // namespace tulle::live
