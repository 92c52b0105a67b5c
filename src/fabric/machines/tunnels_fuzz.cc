// Another machine's process sends anything at all: reports of ports, credits, packets, and bytes
// that are nothing. Nothing is read beyond its end, every run ends, and once the other machine is
// silent its links are down.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "fabric/machines/tunnels.h"
#include "fabric/settle_test.h"
#include "fabric/subnet_managers.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t own_session = 42;
constexpr std::uint64_t other_session = 7;
constexpr std::uint32_t links = 6;

// Hosts 0 and 1 at switch 4 are here; hosts 2 and 3 at switch 5 are elsewhere. The two switches
// have two cables between them.
Topology spread_topology() {
  auto topology = from_csv(
      "a,b,gbps,delay_ns\n0,4,100,1\n1,4,100,1\n2,5,100,1\n3,5,100,1\n4,5,100,1\n4,5,50,1\n",
      "fuzz");
  return std::move(*topology);
}

std::uint32_t slot_of_any(QpNumber qp) { return qp.value >> 17; }

struct Here {
  Time now = Time::seconds(1);
  Tunnels::Settings settings{{0, 0, 1, 1, 0, 1}, 2, 0, own_session};
  Subnet subnet{now, spread_topology(), Tunnels::elsewhere(settings)};
  SubnetManagers managers{now, subnet, {}};
  SubnetTraffic traffic{now, subnet, slot_of_any};
  Tunnels tunnels{now, settings, subnet, traffic};
  std::uint32_t sequence = 0;

  void turn() {
    settle(now, subnet, managers);
    traffic.follow(now);
    while (!traffic.run(now)) continue;
    tunnels.follow();
    tunnels.run(now);
    tunnels.pop(tunnels.waiting().size());
  }
  Bytes begin(TunnelKind kind) {
    TunnelHeader header;
    header.kind = static_cast<std::uint8_t>(kind);
    header.machine = 1;
    header.session = kind == TunnelKind::hello ? own_session : own_session ^ other_session;
    header.sequence = ++sequence;
    Bytes bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }
  template <typename Record>
  static void append(const Record& record, Bytes& to) {
    const auto bytes = std::as_bytes(std::span(&record, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  void say_hello() {
    Bytes bytes = begin(TunnelKind::hello);
    TunnelHello hello;
    hello.session = other_session;
    hello.digest = digest_of(subnet.topology(), settings.machines);
    hello.hears = 1;
    append(hello, bytes);
    tunnels.receive(now, 1, bytes);
  }
};

Bytes any_ports(Here& here, base::Script& script) {
  Bytes bytes = here.begin(TunnelKind::ports);
  for (unsigned i = script.below(4); i > 0; --i) {
    PortRecord record;
    record.node = script.one_in(8) ? script.word() : script.below(6);
    record.port = static_cast<std::uint8_t>(script.one_in(8) ? script.byte() : script.below(5));
    record.is_willing = script.one_in(4) ? 0 : 1;
    record.attempt = script.below(3);
    record.heard = script.below(20);
    record.info = here.subnet.node(5).port_info(1);
    auto info = std::as_writable_bytes(std::span(&record.info, 1));
    for (unsigned k = script.below(8); k > 0; --k) {
      info[script.below(sizeof record.info)] = static_cast<std::byte>(script.byte());
    }
    Here::append(record, bytes);
  }
  return bytes;
}

Bytes any_credits(Here& here, base::Script& script) {
  Bytes bytes = here.begin(TunnelKind::credits);
  for (unsigned i = script.below(6); i > 0; --i) {
    const std::uint32_t link = script.one_in(8) ? script.word() : script.below(links);
    Here::append(CreditRecord{link, wire::flow_control_packet(script.below(16) & 0xF, script.half(),
                                                              script.half())},
                 bytes);
  }
  return bytes;
}

void name_link(base::Script& script, Bytes& bytes) {
  TunnelHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.link = script.one_in(8) ? script.word() : script.below(links);
  header.hops = script.one_in(4) ? script.byte() : std::uint8_t{0};
  header.number = script.below(4);
  std::memcpy(bytes.data(), &header, sizeof header);
}

Bytes any_management(Here& here, base::Script& script) {
  Bytes bytes = here.begin(TunnelKind::management);
  name_link(script, bytes);
  management::Packet packet;
  packet.source = Lid(static_cast<std::uint16_t>(script.below(8)));
  packet.destination =
      Lid(script.one_in(2) ? wire::permissive_lid : static_cast<std::uint16_t>(script.below(8)));
  packet.source_qp = packet.destination_qp = QpNumber(script.below(2));
  for (unsigned k = script.below(24); k > 0; --k) {
    packet.mad[script.below(120)] = static_cast<std::byte>(script.byte());
  }
  packet.mad[0] = std::byte{1};
  const auto encoded = encode(packet);
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  return bytes;
}

Bytes packet_to(Lid to, QpNumber qp, std::size_t payload) {
  wire::LocalPath path;
  path.local.source = Lid(1);
  path.local.destination = to;
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::uc, wire::Operation::send_only);
  packet.destination_qp = qp;
  Bytes bytes(8 + wire::header_bytes(packet.opcode) + payload);
  const std::size_t link = port::encode_link_headers(path, bytes.size() - 8, bytes);
  wire::encode(packet, std::span(bytes).subspan(link));
  return bytes;
}

Bytes any_data(Here& here, base::Script& script) {
  Bytes bytes = here.begin(TunnelKind::data);
  name_link(script, bytes);
  const Lid to(script.one_in(4) ? script.half() : static_cast<std::uint16_t>(script.below(8)));
  const Bytes packet = packet_to(to, QpNumber(script.below(4) << 17), 4 * script.below(1'025));
  append_packet(packet, script.below(16) & 0xF, bytes);
  return bytes;
}

void spoil(base::Script& script, Bytes& bytes);

// Sends a datagram with data as pieces of any lengths, of which some are lost or damaged.
void send_pieces(Here& here, base::Script& script) {
  const Bytes whole = any_data(here, script);
  const std::size_t body_bytes = whole.size() - sizeof(TunnelHeader);
  for (std::size_t offset = 0; offset < body_bytes;) {
    Bytes bytes = here.begin(TunnelKind::piece);
    const std::uint32_t sequence = here.sequence;
    std::copy_n(whole.begin(), sizeof(TunnelHeader), bytes.begin());
    TunnelHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.kind = static_cast<std::uint8_t>(TunnelKind::piece);
    header.sequence = sequence;
    std::memcpy(bytes.data(), &header, sizeof header);
    TunnelPiece piece;
    piece.whole = script.one_in(16) ? script.half() : static_cast<std::uint16_t>(body_bytes);
    piece.offset = script.one_in(16) ? script.half() : static_cast<std::uint16_t>(offset);
    Here::append(piece, bytes);
    const std::size_t part = std::min<std::size_t>(1 + script.half(), body_bytes - offset);
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>(sizeof(TunnelHeader) + offset);
    bytes.insert(bytes.end(), from, from + static_cast<std::ptrdiff_t>(part));
    offset += part;
    if (script.one_in(16)) spoil(script, bytes);
    if (!script.one_in(16)) here.tunnels.receive(here.now, 1, bytes);
    if (script.is_over()) return;
  }
}

void spoil(base::Script& script, Bytes& bytes) {
  for (unsigned k = script.below(4); k > 0; --k) {
    bytes[script.below(static_cast<std::uint32_t>(bytes.size()))] =
        static_cast<std::byte>(script.byte());
  }
  if (script.one_in(4)) bytes.resize(script.below(static_cast<std::uint32_t>(bytes.size())));
}

// Time passes without datagrams from the other machine. Its links are down then, and nothing waits
// for them.
void let_it_go(Here& here) {
  for (int i = 0; i < 100; ++i) {
    here.now += Time::milliseconds(50);
    here.turn();
  }
  TULLE_CHECK(here.tunnels.state(1) == Tunnels::State::silent);
  for (const std::uint8_t port : {std::uint8_t{3}, std::uint8_t{4}}) {
    TULLE_CHECK(here.subnet.node(4).physical_state(port) != wire::PhysicalState::link_up);
  }
  TULLE_CHECK(here.tunnels.waiting().empty());
}

}  // namespace
}  // namespace tulle::fabric

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  base::Script script(data, size);
  fabric::Here here;
  here.traffic.attach(here.now, {0, 1});
  here.traffic.attach(here.now, {1, 1});
  here.turn();
  here.say_hello();
  while (!script.is_over()) {
    fabric::Bytes bytes;
    switch (script.below(8)) {
      case 0:
      case 1:
        bytes = any_ports(here, script);
        break;
      case 2:
        bytes = any_credits(here, script);
        break;
      case 3:
        bytes = any_management(here, script);
        break;
      case 4:
        bytes = any_data(here, script);
        break;
      case 5:
        send_pieces(here, script);
        break;
      case 6:
        here.now += Time::milliseconds(script.byte());
        here.say_hello();
        break;
      default:
        while (!here.traffic.take(here.now, {1, 1}).empty()) continue;
        break;
    }
    if (!bytes.empty()) {
      if (script.one_in(8)) fabric::spoil(script, bytes);
      here.tunnels.receive(here.now, 1, bytes);
    }
    here.turn();
    TULLE_CHECK(here.tunnels.next_event() >= here.now);
  }
  fabric::let_it_go(here);
  return 0;
}
