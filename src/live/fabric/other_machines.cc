#include "live/fabric/other_machines.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/quoted.h"
#include "os/interface_mtu.h"
#include "os/system_error.h"
#include "os/system_random.h"

namespace tulle::live {
namespace {

constexpr std::size_t datagrams_in_a_turn = 64;
constexpr std::size_t datagram_bytes_max = sizeof(fabric::TunnelHeader) +
                                           fabric::SubnetTraffic::packet_bytes_max +
                                           wire::icrc_bytes + wire::vcrc_bytes + seal_bytes;
// The kernel gives less where its own limits are lower (net.core.rmem_max).
constexpr int socket_bytes = 4 << 20;

static_assert(seal_bytes <= fabric::tunnel_seal_bytes);

socklen_t length_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

bool is_same(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto& first = reinterpret_cast<const sockaddr_in&>(a);
    const auto& second = reinterpret_cast<const sockaddr_in&>(b);
    return first.sin_port == second.sin_port && first.sin_addr.s_addr == second.sin_addr.s_addr;
  }
  const auto& first = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& second = reinterpret_cast<const sockaddr_in6&>(b);
  return first.sin6_port == second.sin6_port &&
         std::memcmp(&first.sin6_addr, &second.sin6_addr, sizeof first.sin6_addr) == 0;
}

// Reads "192.0.2.7", "192.0.2.7:24791", "2001:db8::7" or "[2001:db8::7]:24791".
Result<sockaddr_storage> parse(const fabric::Machine& machine) {
  std::string host = machine.address;
  std::string port = fmt::format("{}", machines_port);
  const std::size_t colon = host.rfind(':');
  const bool has_brackets = host.starts_with('[');
  const bool has_port = colon != std::string::npos &&
                        (has_brackets ? host[colon - 1] == ']' : host.find(':') == colon);
  if (has_port) {
    port = host.substr(colon + 1);
    host.resize(colon);
  }
  if (has_brackets && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr) {
    return Error{fmt::format(
        "machine {}: {} is no IP address, such as 192.0.2.7, 192.0.2.7:{} or [2001:db8::7]:{}",
        tulle::quoted(machine.name), tulle::quoted(machine.address), machines_port, machines_port)};
  }
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, std::min<std::size_t>(found->ai_addrlen, sizeof address));
  freeaddrinfo(found);
  return address;
}

Gid gid_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return Gid::from_ipv4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  }
  Gid gid;
  std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr,
              gid.bytes.size());
  return gid;
}

// Returns how long a datagram from the address may be, without its seal, so that IP does not divide
// it: fragments of anyone who can send to the receiver could fill the table where its kernel puts
// them together. On IPv6 nobody can make the path's MTU smaller than the least one.
std::size_t datagram_bytes_at(const sockaddr_storage& address) {
  constexpr std::uint32_t headers_bytes = 20 + 8 + seal_bytes;  // IPv4, UDP
  const std::uint32_t mtu = interface_mtu(address).value_or(0);
  if (address.ss_family != AF_INET || mtu < headers_bytes) return fabric::tunnel_datagram_bytes;
  return std::max<std::size_t>(fabric::tunnel_datagram_bytes, mtu - headers_bytes);
}

// Returns a socket at the address, or an errno.
UniqueFd socket_at(const sockaddr_storage& address) {
  UniqueFd fd(socket(address.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (bind(fd.get(), name, length_of(address)) != 0) return {};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &socket_bytes, sizeof socket_bytes);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &socket_bytes, sizeof socket_bytes);
  // An ICMP message about a path's MTU may be forged, and would make IP divide datagrams.
  const int ignore = IP_PMTUDISC_OMIT;
  setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &ignore, sizeof ignore);
  return fd;
}

std::string state_name(fabric::Tunnels::State state) {
  using State = fabric::Tunnels::State;
  switch (state) {
    case State::own:
      return "this machine";
    case State::heard:
      return "connected";
    case State::deaf:
      return "it receives nothing from this machine";
    case State::silent:
      return "nothing is received from it";
    case State::other_version:
      return "its fabric is of another version of Tulle";
    case State::other_fabric:
      return "its fabric has another file";
  }
  return "unknown";
}

}  // namespace

// --- the socket ---

Result<MachineSocket> MachineSocket::open(const std::vector<fabric::Machine>& machines,
                                          const std::string& named, const std::string& key_file) {
  MachineSocket made;
  if (!key_file.empty()) {
    auto seal = Seal::create(key_file);
    if (!seal) return seal.error();
    made.seal_ = std::move(*seal);
    made.seal_->refuse_earlier();
  }
  for (const fabric::Machine& machine : machines) {
    auto address = parse(machine);
    if (!address) return address.error();
    const bool is_twice = std::ranges::any_of(
        made.addresses_, [&](const auto& other) { return is_same(other, *address); });
    if (is_twice) {
      return Error{fmt::format("machine {}: {} is another machine's address already",
                               tulle::quoted(machine.name), machine.address)};
    }
    if (!made.addresses_.empty() && made.addresses_.front().ss_family != address->ss_family) {
      return Error{fmt::format("machine {}: {} is of another version of IP than the first address",
                               tulle::quoted(machine.name), machine.address)};
    }
    made.addresses_.push_back(*address);
  }
  bool is_known = named.empty();
  Error last{"none of the machines' addresses is this machine's", 0};
  for (std::uint32_t number = 0; number < machines.size(); ++number) {
    if (!named.empty() && machines[number].name != named) continue;
    is_known = true;
    made.fd_ = socket_at(made.addresses_[number]);
    made.own_ = number;
    if (made.fd_) return made;
    if (errno != EADDRNOTAVAIL || !named.empty()) {
      last =
          system_error(fmt::format("machine {}: cannot open a UDP socket at {}",
                                   tulle::quoted(machines[number].name), machines[number].address));
    }
  }
  if (!is_known) return Error{fmt::format("there is no machine {}", tulle::quoted(named))};
  return last;
}

// --- datagrams ---

struct OtherMachines::Buffers {
  std::array<std::array<std::byte, datagram_bytes_max + 1>, datagrams_in_a_turn> bytes;
  std::array<sockaddr_storage, datagrams_in_a_turn> names;
  std::array<iovec, datagrams_in_a_turn> pieces;
  std::array<mmsghdr, datagrams_in_a_turn> messages;
};

OtherMachines::OtherMachines(Time now, MachineSocket socket,
                             const std::vector<fabric::Machine>& machines,
                             const std::vector<std::uint32_t>& machine_of, fabric::Subnet& subnet,
                             fabric::SubnetTraffic& traffic)
    : socket_(std::move(socket)),
      machines_(machines),
      tunnels_(now,
               {machine_of, static_cast<std::uint32_t>(machines.size()), socket_.own(),
                system_random(), datagram_bytes_at(socket_.addresses()[socket_.own()])},
               subnet, traffic),
      buffers_(std::make_unique<Buffers>()) {}

OtherMachines::~OtherMachines() = default;

bool OtherMachines::read(Time now) {
  if (!may_read_) return false;
  Buffers& in = *buffers_;
  for (std::size_t i = 0; i < datagrams_in_a_turn; ++i) {
    in.pieces[i] = {in.bytes[i].data(), in.bytes[i].size()};
    in.messages[i] = {};
    in.messages[i].msg_hdr.msg_name = &in.names[i];
    in.messages[i].msg_hdr.msg_namelen = sizeof in.names[i];
    in.messages[i].msg_hdr.msg_iov = &in.pieces[i];
    in.messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int count = recvmmsg(socket_.descriptor(), in.messages.data(), datagrams_in_a_turn,
                             MSG_DONTWAIT, nullptr);
  for (int i = 0; i < count; ++i) {
    const auto from = std::ranges::find_if(socket_.addresses(), [&](const auto& address) {
      return is_same(address, in.names[static_cast<std::size_t>(i)]);
    });
    const auto machine = static_cast<std::uint32_t>(from - socket_.addresses().begin());
    std::span<const std::byte> datagram =
        std::span(in.bytes[static_cast<std::size_t>(i)])
            .first(in.messages[static_cast<std::size_t>(i)].msg_len);
    bool is_genuine = from != socket_.addresses().end();
    if (is_genuine && socket_.seal() != nullptr) {
      const auto opened = socket_.seal()->open(headers(machine, socket_.own()), datagram);
      is_genuine = opened.has_value();
      datagram = opened.value_or(std::span<const std::byte>());
    }
    // Datagrams of strangers are counted there.
    const auto nobody = static_cast<std::uint32_t>(machines_.size());
    tunnels_.receive(now, is_genuine ? machine : nobody, datagram);
  }
  // An error of one datagram (ICMP) says nothing about the next one.
  may_read_ = count > 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  return may_read_;
}

// What the seal is bound to.
wire::IpUdp OtherMachines::headers(std::uint32_t from, std::uint32_t to) const {
  wire::IpUdp headers;
  headers.source = gid_of(socket_.addresses()[from]);
  headers.destination = gid_of(socket_.addresses()[to]);
  return headers;
}

// Returns a datagram as it is sent, which may be in `room`. It is empty if it cannot be sealed:
// nothing is sent in clear.
std::span<const std::byte> OtherMachines::datagram_to_send(
    const fabric::Tunnels::Outgoing& outgoing, std::span<std::byte> room) {
  if (socket_.seal() == nullptr) return outgoing.datagram;
  const auto whole = room.first(outgoing.datagram.size() + seal_bytes);
  std::ranges::copy(outgoing.datagram, whole.subspan(seal_header_bytes).begin());
  if (socket_.seal()->seal(headers(socket_.own(), outgoing.machine), whole)) return whole;
  return {};
}

void OtherMachines::run(Time now) {
  if (socket_.seal() != nullptr) socket_.seal()->look_at_file(now);
  tunnels_.run(now);
}

bool OtherMachines::send() {
  const bool was_full = !tunnels_.has_room(0);
  Buffers& out = *buffers_;
  const auto& waiting = tunnels_.waiting();  // credits become a datagram even if none can be sent
  while (may_send_) {
    const std::size_t count = std::min(waiting.size(), datagrams_in_a_turn);
    if (count == 0) break;
    for (std::size_t i = 0; i < count; ++i) {
      const auto datagram = datagram_to_send(waiting[i], out.bytes[i]);
      const sockaddr_storage& to = socket_.addresses()[waiting[i].machine];
      out.pieces[i] = {const_cast<std::byte*>(datagram.data()), datagram.size()};
      out.messages[i] = {};
      out.messages[i].msg_hdr.msg_name = const_cast<sockaddr_storage*>(&to);
      out.messages[i].msg_hdr.msg_namelen = length_of(to);
      out.messages[i].msg_hdr.msg_iov = &out.pieces[i];
      out.messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = sendmmsg(socket_.descriptor(), out.messages.data(),
                              static_cast<unsigned>(count), MSG_DONTWAIT | MSG_NOSIGNAL);
    may_send_ = sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    // A datagram that cannot be sent for another reason is lost, as the network loses some.
    if (may_send_) tunnels_.pop(sent > 0 ? static_cast<std::size_t>(sent) : 1);
  }
  return was_full && tunnels_.has_room(0);
}

// --- for people ---

const std::string& OtherMachines::name_of(std::uint32_t node) const {
  return machines_[tunnels_.machine_of(node)].name;
}

std::vector<FabricMachine> OtherMachines::status() const {
  std::vector<FabricMachine> all;
  for (std::uint32_t number = 0; number < machines_.size(); ++number) {
    all.push_back(
        {machines_[number].name, machines_[number].address, state_name(tunnels_.state(number))});
  }
  return all;
}

}  // namespace tulle::live
