#include "live/fabric/host_services.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/quoted.h"
#include "rdma/wire/cm.h"
#include "rdma/wire/pkey.h"

namespace tulle::live {
namespace {

using management::DatagramService;

std::int32_t errno_of(DatagramService::Refusal refusal) {
  switch (refusal) {
    case DatagramService::Refusal::none:
      return 0;
    case DatagramService::Refusal::taken:
      return EPERM;
    case DatagramService::Refusal::no_room:
      return ENOMEM;
    case DatagramService::Refusal::unknown_agent:
    case DatagramService::Refusal::too_long:
      return EINVAL;
  }
  return EINVAL;
}

struct CableEnd {
  std::uint32_t node = 0;
  std::optional<std::uint32_t> port;
};

Result<CableEnd> parse_end(const fabric::Subnet& subnet, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string name = text.substr(0, colon);
  const auto node = subnet.find(name);
  if (!node) {
    return Error{
        fmt::format("the fabric has no host or switch {}; `tulle fabric status` lists them",
                    tulle::quoted(name))};
  }
  if (colon == std::string::npos) return CableEnd{*node, std::nullopt};
  std::uint32_t port = 0;
  const char* last = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, last, port);
  if (read.ptr != last || port == 0 || port > subnet.topology().ports[*node]) {
    return Error{fmt::format("{} has the ports 1 to {}, and not {}", name,
                             subnet.topology().ports[*node],
                             tulle::quoted(text.substr(colon + 1)))};
  }
  return CableEnd{*node, port};
}

bool is_at(const CableEnd& end, std::uint32_t node, std::uint32_t port) {
  return end.node == node && (!end.port || *end.port == port + 1);
}

}  // namespace

Result<std::uint32_t> find_cable(const fabric::Subnet& subnet,
                                 const std::array<std::string, 2>& ends) {
  auto first = parse_end(subnet, ends[0]);
  if (!first) return first.error();
  auto second = parse_end(subnet, ends[1]);
  if (!second) return second.error();
  const auto& links = subnet.topology().links;
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    const fabric::Link& link = links[i];
    const bool joins =
        (is_at(*first, link.a, link.a_port) && is_at(*second, link.b, link.b_port)) ||
        (is_at(*first, link.b, link.b_port) && is_at(*second, link.a, link.a_port));
    if (!joins) continue;
    if (!subnet.is_elsewhere(link.a) || !subnet.is_elsewhere(link.b)) return i;
    return Error{
        fmt::format("the cable between {} and {} has no end on this machine", ends[0], ends[1])};
  }
  return Error{fmt::format("no cable joins {} and {}", ends[0], ends[1])};
}

HostPort HostServices::describe(std::uint32_t host, const std::string& manager_file) const {
  return {subnet_.node(host).settings().guid, port_of(host), manager_file};
}

InfinibandPort HostServices::port_of(std::uint32_t host) const {
  const auto& node = subnet_.node(host);
  const wire::PortInfo& info = node.port_info(host_port);
  InfinibandPort out;
  out.port_guid = node.port_guid(host_port);
  out.gid_prefix = info.gid_prefix;
  out.lid = info.lid;
  out.lmc = static_cast<std::uint8_t>(wire::lmc_of(info));
  out.sm_lid = info.master_sm_lid;
  out.sm_sl = wire::lower_half(info.neighbor_mtu_and_master_sm_sl);
  out.state = static_cast<std::uint8_t>(node.state(host_port));
  out.physical_state = static_cast<std::uint8_t>(node.physical_state(host_port));
  out.capability_mask = info.capability_mask;
  out.mtu_code = wire::upper_half(info.neighbor_mtu_and_master_sm_sl);
  out.virtual_lanes_code = wire::upper_half(info.operational_lanes_and_enforcement);
  out.width = info.link_width_active;
  out.speed = wire::upper_half(info.speed_active_and_enabled);
  out.extended_speed = wire::upper_half(info.extended_speed_active_and_supported);
  out.gigabits_per_second = wire::link_rate_of(info) / 10;
  for (const be16 pkey : node.pkeys(host_port)) out.pkeys.push_back(pkey);
  return out;
}

PortCounters HostServices::counters(std::uint32_t host) const {
  const management::performance::Counters& counted = subnet_.counters(host, host_port);
  PortCounters out;
  out.values = {counted.bytes_sent / 4,   counted.bytes_received / 4, counted.packets_sent,
                counted.packets_received, counted.transmit_discards,  counted.link_downed};
  return out;
}

FabricNode HostServices::node_status(std::uint32_t index) const {
  const auto& node = subnet_.node(index);
  const auto& topology = subnet_.topology();
  const fabric::Wiring& wiring = subnet_.wiring();
  FabricNode out;
  out.name = subnet_.name(index);
  out.description = node.settings().description;
  out.is_switch = node.is_switch();
  out.guid = node.settings().guid;
  const wire::PortInfo& addresses = node.port_info(node.addressed_port(host_port));
  out.lid = addresses.lid;
  out.lmc = static_cast<std::uint8_t>(wire::lmc_of(addresses));
  out.is_manager = (addresses.capability_mask & wire::capability_is_sm) != 0;
  out.is_master = out.is_manager && addresses.lid != 0 && addresses.lid == addresses.master_sm_lid;
  if (topology.is_host(index)) {
    std::set<pid_t> processes;
    for (const auto& [client, process] : hosts_[index].clients) processes.insert(process);
    out.programs = static_cast<std::uint32_t>(processes.size());
  }
  for (std::uint8_t number = 1; number <= node.ports(); ++number) {
    FabricPort each;
    each.number = number;
    each.state = static_cast<std::uint8_t>(node.state(number));
    each.physical_state = static_cast<std::uint8_t>(node.physical_state(number));
    each.gigabits_per_second = wire::link_rate_of(node.port_info(number)) / 10;
    const auto& peer = wiring.peer(index, static_cast<std::uint16_t>(number - 1));
    if (peer.link != fabric::Wiring::no_link) {
      each.is_cut = subnet_.is_cut(peer.link);
      each.peer = subnet_.name(peer.node);
      each.peer_port = static_cast<std::uint8_t>(peer.port + 1);
    }
    out.ports.push_back(std::move(each));
  }
  return out;
}

void HostServices::leave(std::uint32_t host, std::uint32_t client) {
  hosts_[host].service.remove_client(client);
  hosts_[host].clients.erase(client);
}

AgentRegistered HostServices::add(std::uint32_t host, std::uint32_t client,
                                  const RegisterAgent& wanted) {
  const bool takes_connections = wanted.management_class == wire::cm::management_class &&
                                 (wanted.methods[0] | wanted.methods[1]) != 0;
  return takes_connections ? AgentRegistered{0, EPERM} : add_any(host, client, wanted);
}

std::uint32_t HostServices::add_own(std::uint32_t host, std::uint32_t client,
                                    const RegisterAgent& wanted) {
  const AgentRegistered added = add_any(host, client, wanted);
  TULLE_CHECK(added.error == 0);
  return added.agent;
}

AgentRegistered HostServices::add_any(std::uint32_t host, std::uint32_t client,
                                      const RegisterAgent& wanted) {
  management::Registration registration;
  registration.management_class = wanted.management_class;
  registration.class_version = wanted.class_version;
  registration.oui = wanted.oui;
  registration.has_transactions = wanted.has_transactions;
  for (std::size_t method = 0; method < registration.methods.size(); ++method) {
    registration.methods[method] = (wanted.methods[method / 64] >> method % 64 & 1) != 0;
  }
  const auto added = hosts_[host].service.add(client, registration);
  return {added.agent, errno_of(added.refusal)};
}

AgentRegistered HostServices::remove(std::uint32_t host, std::uint32_t client,
                                     std::uint32_t agent) {
  return {agent, errno_of(hosts_[host].service.remove(client, agent))};
}

// Returns the question without the bytes of a transaction of many packets.
DatagramService::Question HostServices::question_of(std::uint32_t host,
                                                    const Datagram& datagram) const {
  const auto& node = subnet_.node(host);
  const wire::PortInfo& info = node.port_info(host_port);
  DatagramService::Question question;
  question.agent = datagram.agent;
  question.timeout = Time::milliseconds(datagram.timeout_milliseconds);
  question.retries = datagram.retries;
  management::Packet& packet = question.packet;
  packet.source = lid_of_path(Lid(info.lid), wire::lmc_of(info), datagram.path_bits);
  packet.destination = Lid(datagram.lid);
  packet.service_level = datagram.service_level & 0xF;
  packet.source_qp = packet.destination_qp = QpNumber(datagram.qp & qp_number_max);
  packet.qkey = Qkey(datagram.qkey);
  const auto pkeys = node.pkeys(host_port);
  packet.pkey = Pkey(pkeys[std::min<std::size_t>(datagram.pkey_index, pkeys.size() - 1)]);
  const std::size_t bytes = std::min(datagram.bytes.size(), packet.mad.size());
  std::copy_n(datagram.bytes.begin(), bytes, packet.mad.begin());
  if (packet.source_qp.value > 1) packet.source_qp = wire::general_services_qp;
  return question;
}

bool HostServices::can_send(std::uint32_t host, std::uint32_t client, const Datagram& first,
                            std::size_t bytes) const {
  const auto refusal = hosts_[host].service.check_long(client, question_of(host, first), bytes);
  return refusal == DatagramService::Refusal::none;
}

void HostServices::send(Time now, std::uint32_t host, std::uint32_t client, Datagram datagram) {
  DatagramService::Question question = question_of(host, datagram);
  question.whole = std::exchange(datagram.bytes, {});
  const management::Packet packet = question.packet;
  const auto refusal = hosts_[host].service.send(now, client, std::move(question));
  if (refusal != DatagramService::Refusal::none) give_back(client, datagram, packet);
}

void HostServices::give_back(std::uint32_t host, std::uint32_t client, const Datagram& datagram) {
  give_back(client, datagram, question_of(host, datagram).packet);
}

// Nobody waits for a datagram without an answer.
void HostServices::give_back(std::uint32_t client, const Datagram& datagram,
                             const management::Packet& packet) {
  if (datagram.timeout_milliseconds == 0) return;
  refused_.push_back({client, datagram.agent, true, packet, {}});
}

void HostServices::progress(Time now, const Deliver& deliver) {
  for (Delivery& each : std::exchange(refused_, {})) deliver(std::move(each));
  for (Host& host : hosts_) {
    if (host.service.next_timeout() > now) continue;
    while (auto expired = host.service.expire(now)) deliver(std::move(*expired));
  }
  bool is_moving = true;
  while (is_moving) {
    is_moving = managers_ != nullptr && managers_->progress(now);
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
      while (const auto packet = hosts_[host].service.take_packet()) {
        subnet_.send(now, host, host_port, *packet);
        is_moving = true;
      }
    }
    subnet_.run(now);
    while (const auto arrival = subnet_.take_arrival()) {
      receive(now, *arrival, deliver);
      is_moving = true;
    }
  }
}

// What comes for the manager of a port is that one's alone: traps have the key of their nodes, and
// a program that answered in the place of subnet administration could lead others anywhere.
// Administration itself sends reports, and its subscribers are programs.
bool HostServices::is_for_managers(const fabric::Subnet::Arrival& arrival) const {
  if (managers_ == nullptr || !managers_->is_at(arrival.host)) return false;
  const wire::MadHeader header = management::header_of(arrival.packet.mad);
  if (arrival.packet.is_subnet_management()) {
    return header.method == management::method_trap || management::asks(header);
  }
  return header.management_class == wire::subnet_administration_class &&
         (header.method & management::response_bit) == 0 && header.method != wire::method_report;
}

// A datagram that no program takes may be for the fabric's own manager.
void HostServices::receive(Time now, const fabric::Subnet::Arrival& arrival,
                           const Deliver& deliver) {
  const wire::MadHeader header = management::header_of(arrival.packet.mad);
  if (arrival.host < hosts_.size() && !is_for_managers(arrival)) {
    auto delivery = hosts_[arrival.host].service.receive(now, arrival.packet);
    const bool is_for_connections = header.management_class == wire::cm::management_class;
    if (!delivery && is_for_connections && begin_connections_) {
      begin_connections_(arrival.host);
      delivery = hosts_[arrival.host].service.receive(now, arrival.packet);
    }
    if (delivery) return deliver(std::move(*delivery));
  }
  if (managers_ != nullptr) managers_->receive(now, arrival);
}

void HostServices::set_manager(Time now, std::uint32_t host, bool is_manager) {
  subnet_.set_manager(now, host, host_port, is_manager);
  if (managers_ != nullptr) managers_->set_program(now, host, is_manager);
}

Time HostServices::next_timeout() const {
  Time next = refused_.empty() ? Time::never() : Time::zero();
  for (const Host& host : hosts_) next = std::min(next, host.service.next_timeout());
  return managers_ == nullptr ? next : std::min(next, managers_->next_timeout());
}

Datagram HostServices::as_message(std::uint32_t host, Delivery delivery) const {
  const management::Packet& packet = delivery.packet;
  const wire::PortInfo& info = subnet_.node(host).port_info(host_port);
  Datagram out;
  out.agent = delivery.agent;
  out.status = delivery.has_timed_out ? ETIMEDOUT : 0;
  const bool is_own = delivery.has_timed_out;
  out.qp = is_own ? packet.destination_qp.value : packet.source_qp.value;
  out.qkey = packet.qkey.value;
  out.lid = is_own ? packet.destination.value : packet.source.value;
  out.service_level = packet.service_level;
  out.path_bits =
      static_cast<std::uint8_t>(packet.destination.value & ((1u << wire::lmc_of(info)) - 1));
  const auto pkeys = subnet_.node(host).pkeys(host_port);
  const auto found = std::find_if(pkeys.begin(), pkeys.end(), [&](const be16 each) {
    return wire::is_same_partition(Pkey(each), packet.pkey);
  });
  out.pkey_index = static_cast<std::uint16_t>(found == pkeys.end() ? 0 : found - pkeys.begin());
  out.bytes = std::move(delivery.whole);
  if (out.bytes.empty()) out.bytes.assign(packet.mad.begin(), packet.mad.end());
  return out;
}

}  // namespace tulle::live
