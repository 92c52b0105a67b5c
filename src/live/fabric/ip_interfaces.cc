#include "live/fabric/ip_interfaces.h"

#include <fmt/format.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <variant>

#include "rdma/wire/pkey.h"

namespace tulle::live {
namespace {

constexpr std::size_t usual_mtu = 2'044;  // of a group of 2,048 bytes (RFC 4391 §7)
constexpr std::size_t packet_bytes_max = 65'536;

// Returns the link-local IPv6 address that is made of a port's GUID (RFC 4391 §8).
std::string link_local_address(std::uint64_t guid) {
  constexpr std::uint64_t universal = std::uint64_t{2} << 56;
  guid |= universal;
  return fmt::format("fe80::{:x}:{:x}:{:x}:{:x}/64", guid >> 48, guid >> 32 & 0xFFFF,
                     guid >> 16 & 0xFFFF, guid & 0xFFFF);
}

}  // namespace

struct IpInterfaces::Link {
  std::uint32_t host = 0;
  std::string name;
  Pkey partition;
  QpNumber qp;
  std::string problem;
  UniqueFd packets;  // none until the keeper has made the interface
  UniqueFd address_socket;
  std::optional<InterfaceAddresses> addresses;
  std::optional<ipoib::Interface> interface;
  std::set<wire::GidBytes> groups;  // that it has at subnet administration
  std::uint32_t generation = 0;     // of the state machine
  std::size_t mtu = usual_mtu;      // that the interface has
  bool has_carrier = true;
  bool is_busy = false;                     // it is in the list
  bool has_more = false;                    // the host may have more packets
  std::deque<std::vector<std::byte>> held;  // packets for which the port had no room
};

IpInterfaces::IpInterfaces(HostAdministration::Now now, const fabric::Subnet& subnet,
                           DataPorts& ports, HostNetworks& networks,
                           AdministrationOf administration_of, Watch watch)
    : now_(std::move(now)),
      subnet_(subnet),
      ports_(ports),
      networks_(networks),
      administration_of_(std::move(administration_of)),
      watch_(std::move(watch)),
      buffer_(packet_bytes_max) {}

IpInterfaces::~IpInterfaces() = default;

// --- making ---

void IpInterfaces::begin(Time now, std::uint32_t host) {
  const auto [made, is_new] = hosts_.try_emplace(host);
  if (is_new) follow(now, host, made->second);
}

// Programs may have all of the port at first, and leave a place for the host's interfaces later.
bool IpInterfaces::has_port(Time now, std::uint32_t host, Host& of) {
  if (of.port) return true;
  auto port = ports_.open_own(now, host, [this, host](Time at, std::span<const std::byte> packet) {
    receive(at, host, packet);
  });
  if (port) of.port = *port;
  return static_cast<bool>(port);
}

IpInterfaces::Link* IpInterfaces::find(std::uint32_t host, const std::string& name) {
  const auto at = hosts_.find(host);
  if (at == hosts_.end()) return nullptr;
  for (const auto& link : at->second.links) {
    if (link->name == name) return link.get();
  }
  return nullptr;
}

// The names are those of Linux. The first interface alone has an address at once: the addresses of
// the others are their administrator's choice.
IpInterfaces::Link& IpInterfaces::add(std::uint32_t host, Host& of, Pkey partition) {
  auto link = std::make_unique<Link>();
  const bool is_first = of.links.empty();
  link->host = host;
  link->name =
      is_first ? std::string("ib0") : fmt::format("ib0.{:04x}", wire::full_member(partition).value);
  link->qp = QpNumber(of.port->first_qp + static_cast<std::uint32_t>(of.links.size()));
  std::vector<std::string> addresses;
  if (is_first) addresses.push_back(infiniband_address(host) + "/16");
  addresses.push_back(link_local_address(subnet_.node(host).port_guid(host_port)));
  const auto asked = networks_.ask_for_interface(host, link->name, link->mtu, addresses);
  if (!asked) link->problem = asked.error().message;
  of.links.push_back(std::move(link));
  return *of.links.back();
}

void IpInterfaces::take(Time now, HostNetworks::Answer answer) {
  if (answer.interface.empty()) {
    if (answer.reason.empty()) begin(now, answer.host);
    return;
  }
  Link* link = find(answer.host, answer.interface);
  if (link == nullptr) return;
  link->problem = answer.reason;
  if (!answer.packets) return;
  link->packets = std::move(answer.packets);
  link->address_socket = std::move(answer.addresses);
  link->addresses.emplace(answer.index);
  link->addresses->ask(link->address_socket.get());
  watch_(link->packets.get(), *link, Source::packets);
  watch_(link->address_socket.get(), *link, Source::addresses);
  read_addresses(now, *link);
  settle(*link);
}

// --- ports ---

void IpInterfaces::follow(Time now) {
  for (auto& [host, of] : hosts_) follow(now, host, of);
}

void IpInterfaces::follow(Time now, std::uint32_t host, Host& of) {
  if (!has_port(now, host, of)) return;
  const auto& node = subnet_.node(host);
  const wire::PortInfo& info = node.port_info(host_port);
  ipoib::PortView view;
  view.gid = port_gid(subnet_, host);
  view.lid = Lid(info.lid);
  view.manager = Lid(info.master_sm_lid);
  view.is_active = node.state(host_port) == wire::PortState::active;

  std::vector<const Link*> in_partition;
  bool is_first = true;
  for (const be16 entry : node.pkeys(host_port)) {
    const Pkey pkey(entry);
    const bool was_first = std::exchange(is_first, false);
    if (wire::is_same_partition(pkey, Pkey{0})) continue;  // an empty entry
    Link* link = nullptr;
    if (was_first && !of.links.empty()) link = of.links.front().get();
    for (const auto& each : of.links) {
      if (link == nullptr && wire::is_same_partition(each->partition, pkey)) link = each.get();
    }
    if (link == nullptr && of.links.size() >= links_max) continue;
    if (link == nullptr) link = &add(host, of, pkey);
    in_partition.push_back(link);
    if (link->interface && link->partition == pkey) continue;
    link->partition = pkey;
    link->interface.emplace(pkey, link->qp);
    ++link->generation;
    if (link->addresses) link->interface->set_addresses(now, link->addresses->addresses());
  }
  for (const auto& link : of.links) {
    if (!link->interface) continue;
    view.is_in_partition =
        std::find(in_partition.begin(), in_partition.end(), link.get()) != in_partition.end();
    if (link->interface->set_port(now, view)) note(*link);
  }
}

std::vector<std::uint32_t> IpInterfaces::hosts() const {
  std::vector<std::uint32_t> all;
  all.reserve(hosts_.size());
  for (const auto& [host, of] : hosts_) all.push_back(host);
  return all;
}

void IpInterfaces::register_anew(Time now, std::uint32_t host) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return;
  for (const auto& link : found->second.links) {
    if (link->interface) link->interface->register_anew(now);
    note(*link);
  }
}

// --- packets ---

void IpInterfaces::note(Link& link) {
  if (std::exchange(link.is_busy, true)) return;
  busy_.push_back(&link);
}

void IpInterfaces::read_addresses(Time now, Link& link) {
  if (!link.addresses->read(link.address_socket.get()) || !link.interface) return;
  link.interface->set_addresses(now, link.addresses->addresses());
  note(link);
}

void IpInterfaces::read(Time now, Link& link, Source source) {
  if (source == Source::addresses) return read_addresses(now, link);
  link.has_more = true;
  note(link);
}

// While packets are held, the interface's queue is the host's to fill: nothing more is read.
void IpInterfaces::read_packets(Time now, Link& link) {
  for (int i = 0; i < packets_in_a_turn && link.held.empty(); ++i) {
    const ssize_t bytes = ::read(link.packets.get(), buffer_.data(), buffer_.size());
    if (bytes < 0 && errno == EINTR) continue;
    link.has_more = bytes > 0;
    if (!link.has_more) return;
    if (!link.interface) continue;
    const auto packet =
        link.interface->send(now, std::span(buffer_).first(static_cast<std::size_t>(bytes)));
    if (!packet.empty()) offer(now, link, packet);
  }
}

// Packets that come are for one of the host's interfaces, or for all.
void IpInterfaces::receive(Time now, std::uint32_t host, std::span<const std::byte> packet) {
  for (const auto& link : hosts_.at(host).links) {
    if (!link->interface) continue;
    const auto ip = link->interface->receive(now, packet);
    // The kernel drops what its queue has no room for, as it does for other interfaces.
    if (!ip.empty() && link->packets) {
      static_cast<void>(!write(link->packets.get(), ip.data(), ip.size()));
    }
    note(*link);
  }
}

void IpInterfaces::offer(Time now, Link& link, std::span<const std::byte> packet) {
  const DataPorts::Own& port = *hosts_.at(link.host).port;
  if (link.held.empty() && ports_.send(now, port, packet)) return;
  if (link.held.size() < held_max) link.held.emplace_back(packet.begin(), packet.end());
}

// Returns true if something was sent.
bool IpInterfaces::send_held(Time now, Link& link) {
  const DataPorts::Own& port = *hosts_.at(link.host).port;
  bool has_sent = false;
  for (; !link.held.empty() && ports_.send(now, port, link.held.front()); has_sent = true) {
    link.held.pop_front();
  }
  return has_sent;
}

// --- subnet administration ---

// Returns the function that takes the answer to a question of the link's interface. An answer for
// an earlier interface, of another P_Key, comes to nothing.
template <typename Record>
auto IpInterfaces::taker(Link& link, std::uint32_t question,
                         void (ipoib::Interface::*take)(Time, std::uint32_t, const Record*)) {
  return
      [this, &link, generation = link.generation, question, take](int error, const Record& record) {
        if (link.generation != generation) return;
        ((*link.interface).*take)(now_(), question, error == 0 ? &record : nullptr);
        note(link);
      };
}

void IpInterfaces::ask(Link& link, const ipoib::Question& question) {
  HostAdministration& administration = administration_of_(link.host);
  if (const auto* path = std::get_if<wire::PathRecord>(&question.record)) {
    const auto take = taker(link, question.number, &ipoib::Interface::take_path);
    if (!administration.find_path(*path, question.components, take)) take(ENETUNREACH, {});
    return;
  }
  const auto& member = std::get<wire::MemberRecord>(question.record);
  if (question.kind == ipoib::Question::Kind::leave) {
    if (link.groups.erase(member.group_gid) == 0) return;
    return administration.leave(member.group_gid, member.scope_and_join_state);
  }
  const bool is_again = !link.groups.insert(member.group_gid).second;
  const auto take = taker(link, question.number, &ipoib::Interface::take_group);
  if (!administration.join(member, question.components, take, is_again)) take(ENETUNREACH, {});
}

// The interface has a carrier while IP packets can pass, and the MTU of the partition.
void IpInterfaces::settle(Link& link) {
  if (!link.interface || !link.packets) return;
  const bool is_running = link.interface->is_running();
  if (is_running != link.has_carrier) {
    int carrier = is_running ? 1 : 0;
    if (ioctl(link.packets.get(), TUNSETCARRIER, &carrier) == 0) link.has_carrier = is_running;
  }
  if (!is_running || link.interface->mtu() == link.mtu) return;
  link.mtu = link.interface->mtu();
  networks_.set_mtu(link.host, link.name, link.mtu);
}

// Returns true if something was sent.
bool IpInterfaces::progress(Time now, Link& link) {
  bool has_sent = send_held(now, link);
  if (link.has_more && link.held.empty()) {
    read_packets(now, link);
    has_sent = true;
  }
  if (!link.interface) return has_sent;
  link.interface->progress(now);
  while (auto question = link.interface->pull_question()) ask(link, *question);
  for (auto packet = link.interface->pull_packet(); !packet.empty();
       packet = link.interface->pull_packet()) {
    offer(now, link, packet);
    has_sent = true;
  }
  settle(link);
  return has_sent;
}

bool IpInterfaces::progress(Time now) {
  if (now >= next_deadline_) {
    for (auto& [host, of] : hosts_) {
      for (const auto& link : of.links) {
        if (link->interface && now >= link->interface->next_deadline()) note(*link);
      }
    }
  }
  for (Link* link : std::exchange(stuck_, {})) note(*link);
  if (busy_.empty()) return false;
  bool has_sent = false;
  for (Link* link : std::exchange(busy_, {})) {
    link->is_busy = false;
    has_sent = progress(now, *link) || has_sent;
    if (!link->held.empty()) {
      stuck_.push_back(link);
    } else if (link->has_more) {
      note(*link);
    }
  }
  next_deadline_ = Time::never();
  for (const auto& [host, of] : hosts_) {
    for (const auto& link : of.links) {
      if (!link->interface) continue;
      next_deadline_ = std::min(next_deadline_, link->interface->next_deadline());
    }
  }
  return has_sent;
}

std::vector<FabricInterface> IpInterfaces::status(std::uint32_t host) const {
  std::vector<FabricInterface> all;
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return all;
  for (const auto& link : found->second.links) {
    const bool is_running = link->packets && link->interface && link->interface->is_running();
    all.push_back({link->name, is_running, link->problem});
  }
  return all;
}

void IpInterfaces::rebase(Time by) {
  for (auto& [number, host] : hosts_) {
    for (const auto& link : host.links) {
      if (link->interface) link->interface->rebase(by);
    }
  }
  tulle::rebase(by, next_deadline_);
}

}  // namespace tulle::live
