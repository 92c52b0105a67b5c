// Hosts of a subnet send any management datagrams, cables are cut and joined, and managers come and
// go. Nothing is read beyond its end; every run ends; what arrives at a host is an answer, a trap
// or what is meant for programs; and the nodes continue to answer.

#include <cstring>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "fabric/subnet.h"
#include "rdma/wire/pma.h"
#include "rdma/wire/smp.h"

namespace tulle::fabric {
namespace {

using management::Packet;

Topology small_topology() {
  auto topology =
      from_csv("a,b,gbps,delay_ns\n0,3,100,1\n1,3,100,1\n2,4,100,1\n3,4,100,1\n3,4,50,1\n", "fuzz");
  return std::move(*topology);
}

Packet any_packet(base::Script& script) {
  constexpr std::array<std::uint8_t, 6> classes = {wire::subnet_directed_class,
                                                   wire::subnet_directed_class,
                                                   wire::subnet_class,
                                                   wire::performance_class,
                                                   0x03,
                                                   0x32};
  constexpr std::array<std::uint8_t, 6> methods = {
      management::method_get,  management::method_set,          management::method_set,
      management::method_trap, management::method_trap_repress, management::method_get_response};
  Packet packet;
  wire::MadHeader header;
  header.management_class = classes[script.below(classes.size())];
  header.class_version = 1;
  header.method = methods[script.below(methods.size())];
  header.status = script.one_in(4) ? wire::directed_route_returns : std::uint16_t{0};
  const unsigned hops = script.below(6);
  const unsigned pointer = script.one_in(4) ? script.byte() : 0;
  header.class_specific =
      static_cast<std::uint16_t>(pointer << 8 | (script.one_in(16) ? 255 : hops));
  header.transaction_id = script.below(16);
  header.attribute_id = static_cast<std::uint16_t>(script.below(0x22));
  header.attribute_modifier = script.one_in(4) ? script.word() : script.below(6);
  std::memcpy(packet.mad.data(), &header, sizeof header);
  wire::SubnetHeader subnet;
  subnet.management_key = script.below(3);
  subnet.directed_source = subnet.directed_destination = wire::permissive_lid;
  if (script.one_in(8)) subnet.directed_source = static_cast<std::uint16_t>(script.below(8));
  if (script.one_in(8)) subnet.directed_destination = static_cast<std::uint16_t>(script.below(8));
  std::memcpy(packet.mad.data() + wire::subnet_header_offset, &subnet, sizeof subnet);
  for (unsigned i = script.below(40); i > 0; --i) {
    const std::size_t at = wire::subnet_data_offset + script.below(64);
    packet.mad[at] = static_cast<std::byte>(script.one_in(2) ? script.below(8) : script.byte());
  }
  for (unsigned hop = 1; hop <= hops; ++hop) {
    packet.mad[wire::initial_path_offset + hop] = static_cast<std::byte>(script.below(6));
    packet.mad[wire::return_path_offset + hop] = static_cast<std::byte>(script.below(6));
  }
  packet.source = Lid(static_cast<std::uint16_t>(script.below(8)));
  packet.destination =
      Lid(script.one_in(2) ? wire::permissive_lid : static_cast<std::uint16_t>(script.below(8)));
  const bool is_subnet = header.management_class == wire::subnet_directed_class ||
                         header.management_class == wire::subnet_class;
  packet.source_qp = packet.destination_qp = QpNumber(is_subnet != script.one_in(16) ? 0 : 1);
  return packet;
}

void check_that_nodes_answer(Subnet& subnet, Time now) {
  for (std::uint32_t host = 0; host < subnet.topology().hosts; ++host) {
    while (subnet.take_arrival()) {
    }
    Packet packet;
    packet.source = packet.destination = Lid(wire::permissive_lid);
    wire::MadHeader header;
    header.management_class = wire::subnet_directed_class;
    header.class_version = 1;
    header.method = management::method_get;
    header.transaction_id = 77;
    header.attribute_id = wire::attribute_node_info;
    std::memcpy(packet.mad.data(), &header, sizeof header);
    wire::SubnetHeader subnet_header;
    subnet_header.management_key = subnet.node(host).port_info(1).management_key;
    std::memcpy(packet.mad.data() + wire::subnet_header_offset, &subnet_header,
                sizeof subnet_header);
    subnet.send(now, host, 1, packet);
    subnet.run(now);
    const auto answer = subnet.take_arrival();
    TULLE_CHECK(answer && answer->host == host);
    TULLE_CHECK(management::header_of(answer->packet.mad).transaction_id == 77);
  }
}

}  // namespace
}  // namespace tulle::fabric

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  base::Script script(data, size);
  Time now = Time::seconds(1);
  fabric::Subnet subnet(now, fabric::small_topology());
  while (!script.is_over()) {
    now += Time::milliseconds(script.half() % 2'000);
    switch (script.below(8)) {
      case 0:
        subnet.set_cut(now, script.below(5), script.one_in(2));
        break;
      case 1:
        subnet.set_manager(now, script.below(3), 1, script.one_in(2));
        break;
      default:
        subnet.send(now, script.below(3), 1, fabric::any_packet(script));
        break;
    }
    subnet.run(now);
    while (const auto arrival = subnet.take_arrival()) {
      TULLE_CHECK(arrival->host < subnet.topology().hosts && arrival->port == 1);
    }
    TULLE_CHECK(subnet.next_event() > now);
  }
  fabric::check_that_nodes_answer(subnet, now);
  return 0;
}
